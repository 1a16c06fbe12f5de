"""What one pass has found: what was true, what of it is new, what is over, what went wrong."""

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
    """One thing to raise an alert about.

    :ivar detail: which occurrence of the cause; each is told.
    """

    cause: Cause
    summary: str
    reason: str
    detail: str = ""

    @property
    def name(self) -> str:
        """Return what its alert is called within its scope."""
        return alert_name(self.cause, self.detail)


@dataclass
class Findings:
    """What a pass has found.

    :ivar begun: when the pass began.
    :ivar found: what was true at this pass, told before or not, by scope and name of its alert.
    :ivar raised: alerts that did not exist before.
    :ivar cleared: alerts about what is over since this pass.
    :ivar problems: what could not be looked at, as lines.
    """

    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    found: dict[tuple[str, str], Finding] = field(default_factory=dict)
    raised: list[Alert] = field(default_factory=list)
    cleared: list[Alert] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def tell(
        self, store: StoreLayout, run: AlertedRun, finding: Finding, *, with_text: bool = False
    ) -> None:
        """Raise an alert about a run unless there is one; nobody is told yet.

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
        """Take note of an alert; None: it existed before."""
        if alert is not None:
            self.raised.append(alert)

    @contextmanager
    def collected(self, what: str) -> Iterator[None]:
        """Make whatever goes wrong a problem: one damaged file must not blind the watch."""
        try:
            yield
        except Exception as error:
            log.exception("The watch cannot look at %s", what)
            self.problems.append(f"{what}: {type(error).__name__}: {error}")

    def clear(
        self, store: StoreLayout, causes: Collection[Cause], unseen: Collection[str] = ()
    ) -> None:
        """Record of each alert whose matter this pass has not found that it is over.

        An alert that somebody else raised during this pass is left to the next one.

        :param causes: those that this pass looks for.
        :param unseen: scopes that could not be looked at.
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
