"""Raises alerts: one file for each pair of scope and cause, whoever finds it and however often."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline_alerts.causes import FAILURES, Cause, is_one_of
from pipeline_alerts.delivery import is_alert
from pipeline_alerts.facts import RunFacts, read_facts
from pipeline_store import identity, uris
from pipeline_store.formats import Alert, FormatError, RunRefusal, WatchedRun
from pipeline_store.layout import StoreLayout

MAX_REASON = 2000
"""Characters of a reason; mails and chats are read on phones."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class AlertedRun:
    """A DAG run of Airflow that an alert is about.

    :param link: its page in Airflow.
    """

    dag_id: str
    run_id: str
    link: str | None = None

    @property
    def key(self) -> str:
        """Return the run's name outside Airflow, which is the scope of its alerts."""
        return identity.run_key(self.dag_id, self.run_id)


def raise_about_run(
    store: StoreLayout,
    run: AlertedRun,
    cause: Cause,
    *,
    summary: str,
    reason: str,
    detail: str = "",
    with_text: bool = False,
    facts: RunFacts | None = None,
    remedy: str = "",
) -> Alert | None:
    """Create a run's alert; nobody is told yet.

    :param summary: end of the title, such as ``candidate rejected: worse``.
    :param reason: why; must hold no corpus text unless ``with_text``.
    :param detail: what of the cause, such as the task; each has an alert of its own.
    :param with_text: whether log lines may be quoted.
    :param facts: of the run, if they have been read already.
    :param remedy: what helps, where that is known better than by the cause.
    :returns: the alert; None when there is one of this cause already.
    """
    name = alert_name(cause, detail)
    if uris.exists(store.alert(run.key, name)):
        return None
    known = facts or read_facts(store.run(run.key), with_text=with_text)
    record = known.record or _refusal(store, run)
    alert = Alert(
        scope=run.key,
        cause=name,
        title=_title(run.dag_id, (record and record.partition) or run.run_id, summary),
        reason=_reason(f"{reason}\n{known.unreadable}"),
        time=datetime.now(UTC),
        dag_id=run.dag_id,
        run_id=run.run_id,
        partition=(record.partition or None) if record else None,
        lineage_id=(record.lineage_id or None) if record else None,
        link=run.link,
        spent=known.spent,
        tpus=known.tpus,
        log_place=known.log_place,
        log_lines=known.log_lines,
        remedy=remedy,
    )
    return alert if alert.create(store.alert(run.key, name)) else None


def _refusal(store: StoreLayout, run: AlertedRun) -> RunRefusal | None:
    """Return what is kept of a run that was refused, which has no record."""
    try:
        return RunRefusal.load_or_none(store.run(run.key).refusal)
    except (OSError, FormatError):
        return None


def raise_about_installation(
    store: StoreLayout,
    scope: str,
    cause: Cause,
    *,
    about: str,
    summary: str,
    reason: str,
    link: str | None = None,
    lineage_id: str | None = None,
) -> Alert | None:
    """Create an alert about something else than a run; nobody is told yet.

    :param scope: what and which occurrence of it, so that the next occurrence has one of its own.
    :param about: what it is about, in the title.
    :param lineage_id: on whose page it is shown; None: on those of all lineages.
    :returns: the alert; None when there is one of this scope and cause already.
    """
    folder, name = file_name(scope), str(cause)
    if uris.exists(store.alert(folder, name)):
        return None
    alert = Alert(
        scope=folder,
        cause=name,
        title=_title(about, summary),
        reason=_reason(reason),
        time=datetime.now(UTC),
        link=link,
        lineage_id=lineage_id,
    )
    return alert if alert.create(store.alert(folder, name)) else None


def has_failure_alert(
    store: StoreLayout,
    run_key: str,
    causes: Collection[Cause] = FAILURES,
    *,
    goes_on: bool = False,
) -> bool:
    """Return whether somebody was or will be told that the run failed.

    Of a run that goes on after it had ended only what was raised since then counts.

    :param causes: what counts.
    :param goes_on: the run has gone on if the watch has dealt with it, though the watch did not see
        it running: it looks at no other ones.
    """
    return any(is_one_of(_name(uri), causes) for uri in _of_run(store, run_key, goes_on=goes_on))


def failure_reasons(store: StoreLayout, run_key: str, *, goes_on: bool = False) -> list[str]:
    """Return why tasks of a run failed, as people were told; ordered by the tasks' names.

    :param goes_on: as in :func:`has_failure_alert`.
    """
    causes = (Cause.TASK_FAILED,)
    found = _of_run(store, run_key, goes_on=goes_on)
    told = [uri for uri in found if is_alert(store, uri) and is_one_of(_name(uri), causes)]
    return [alert.reason for uri in sorted(told) if (alert := _readable(uri)) is not None]


def _readable(uri: str) -> Alert | None:
    """Return an alert; a damaged one costs a reason, and not the run's end."""
    try:
        return Alert.load(uri)
    except FormatError:
        return None


def _name(uri: str) -> str:
    return uri.rpartition("/")[2].removesuffix(".json")


def _of_run(store: StoreLayout, run_key: str, *, goes_on: bool) -> list[str]:
    """Return the files of a run's alerts; of a run that goes on those that are newer than that."""
    watched = WatchedRun.load_or_none(store.watched_run(run_key))
    has_gone_on = watched is not None and (goes_on or watched.outcome is None)
    goes_on_since = watched.time if watched is not None and has_gone_on else None
    return [
        found.uri
        for found in uris.list_details(uris.join(store.alerts, run_key))
        if goes_on_since is None or found.modified > goes_on_since
    ]


def alert_name(cause: Cause, detail: str) -> str:
    """Return what an alert is called within its scope."""
    return file_name(f"{cause}.{detail}" if detail else str(cause))


def file_name(text: str) -> str:
    """Return the text as part of a file's name; any other sign becomes a hyphen."""
    return _UNSAFE.sub("-", text)[:120]


def _title(*parts: str) -> str:
    return " ".join(f"[repretraining] {' '.join(parts[:-1])}: {parts[-1]}".split())


def _reason(text: str) -> str:
    stripped = text.strip()
    return stripped if len(stripped) <= MAX_REASON else f"{stripped[:MAX_REASON]} …"
