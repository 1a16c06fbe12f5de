"""Collects the findings of one pass: current, new and cleared ones, and checks that failed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pipeline_alerts.causes import Cause, is_one_of
from pipeline_alerts.delivery import is_alert
from pipeline_alerts.raising import AlertedRun, alert_name, raise_about_run
from pipeline_store import uris
from pipeline_store.formats import Alert, AlertCleared
from pipeline_store.layout import StoreLayout

CLEARED = ".cleared.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Finding:
    """A finding to raise an alert about.

    :ivar detail: occurrence of the cause; each gets an alert.
    """

    cause: Cause
    summary: str
    reason: str
    detail: str = ""

    @property
    def name(self) -> str:
        """Return the name of its alert within its scope."""
        return alert_name(self.cause, self.detail)


@dataclass
class Findings:
    """The findings of a pass.

    :ivar begun: when the pass began.
    :ivar found: all current findings, with a new alert or not, by scope and name of the alert.
    :ivar raised: alerts that did not exist before.
    :ivar cleared: alerts whose cause is gone as of this pass.
    :ivar problems: checks that failed, one line each.
    """

    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    found: dict[tuple[str, str], Finding] = field(default_factory=dict)
    raised: list[Alert] = field(default_factory=list)
    cleared: list[Alert] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def tell(
        self, store: StoreLayout, run: AlertedRun, finding: Finding, *, with_text: bool = False
    ) -> None:
        """Raise an alert about a run unless there is one, without delivering it.

        :param with_text: whether it may quote log lines.
        """
        self.found[run.key, finding.name] = finding
        alert = raise_about_run(
            store,
            run,
            finding.cause,
            summary=finding.summary,
            reason=finding.reason,
            detail=finding.detail,
            with_text=with_text,
        )
        self.add(alert)

    def add(self, alert: Alert | None) -> None:
        """Add an alert to the raised ones; None: it existed before."""
        if alert is not None:
            self.raised.append(alert)

    @contextmanager
    def collected(self, what: str) -> Iterator[None]:
        """Turn any exception into a problem: one damaged file must not stop the watch."""
        try:
            yield
        except Exception as error:
            log.exception("The watch cannot look at %s", what)
            self.problems.append(f"{what}: {type(error).__name__}: {error}")

    def clear(
        self, store: StoreLayout, causes: Collection[Cause], unseen: Collection[str] = ()
    ) -> None:
        """Record as cleared each open alert that this pass has not found again.

        An alert that another process raised during this pass is left to the next one.

        :param causes: causes that this pass checks.
        :param unseen: scopes that could not be checked.
        """
        for scope, name in open_alerts(store, causes):
            if (scope, name) in self.found or scope in unseen:
                continue
            with self.collected(f"alert {scope}/{name}"):
                self._clear(store, scope, name)

    def _clear(self, store: StoreLayout, scope: str, name: str) -> None:
        alert = Alert.load(store.alert(scope, name))
        over = AlertCleared(time=datetime.now(UTC))
        if alert.time < self.begun and over.create(store.alert_cleared(scope, name)):
            self.cleared.append(alert)


def open_alerts(store: StoreLayout, causes: Collection[Cause]) -> list[tuple[str, str]]:
    """Return scope and name of all alerts of some causes that have not cleared, from a listing."""
    files = uris.list_files(store.alerts)
    over = {uri.removesuffix(CLEARED) for uri in files if uri.endswith(CLEARED)}
    stems = (uri.removesuffix(".json") for uri in files if is_alert(store, uri))
    names = (tuple(stem.rsplit("/", 2)[-2:]) for stem in stems if stem not in over)
    return [(scope, name) for scope, name in names if is_one_of(name, causes)]
