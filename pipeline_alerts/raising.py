"""Raises alerts: one file per scope and cause, however often and by whichever check it is found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline_alerts.causes import (
    ENDS,
    FAILURES,
    Cause,
    is_one_of,
    times_cleared,
    uncleared,
)
from pipeline_alerts.delivery import is_alert
from pipeline_alerts.facts import RunFacts, read_facts
from pipeline_store import identity, uris
from pipeline_store.formats import Alert, FormatError, RunRefusal
from pipeline_store.layout import StoreLayout

MAX_REASON = 2000
"""Most characters of a reason; mails and chats are read on phones."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class AlertedRun:
    """A DAG run of Airflow that an alert is about.

    :param link: its page in Airflow.
    :param times_cleared: how often people have cleared tasks of it: each time it may end again,
        which is a new alert. None, if Airflow no longer has the run: the highest count in its
        alerts.
    :param failed_tasks: the tasks that are failed now, as Airflow names them. An earlier alert
        about one of them still counts, although another task was cleared since.
    """

    dag_id: str
    run_id: str
    link: str | None = None
    times_cleared: int | None = 0
    failed_tasks: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the run's key in the store, which is the scope of its alerts."""
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
    """Create a run's alert, without delivering it.

    :param summary: end of the title, such as ``candidate rejected: worse``.
    :param reason: why; must not quote corpus text unless ``with_text``.
    :param detail: instance of the cause, such as the task; each has an alert of its own.
    :param with_text: whether log lines may be quoted.
    :param facts: facts about the run, if they were read already.
    :param remedy: a more specific remedy than the advice for the cause, if one is known.
    :returns: the alert; None when there is one with this cause already.
    """
    name = alert_name(cause, detail, _times_cleared(store, run) if cause in ENDS else 0)
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
    """Return the refusal of a run that was refused, and so has no record."""
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
    """Create an alert about something other than a run, without delivering it.

    :param scope: its subject and occurrence, so that the next occurrence has an alert of its own.
    :param about: the subject, for the title.
    :param lineage_id: the lineage on whose page it is shown; None: on those of all lineages.
    :returns: the alert; None when there is one with this scope and cause already.
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
    store: StoreLayout, run: AlertedRun, causes: Collection[Cause] = FAILURES
) -> bool:
    """Return whether there is an alert that the run failed since it was last cleared.

    :param causes: causes that count.
    """
    return bool(_ends_told(store, run, causes))


def failure_reasons(store: StoreLayout, run: AlertedRun) -> list[str]:
    """Return why tasks of a run failed since it was last cleared, ordered by the tasks' names."""
    told = _ends_told(store, run, (Cause.TASK_FAILED,))
    return [alert.reason for uri in told if (alert := _readable(uri)) is not None]


def _readable(uri: str) -> Alert | None:
    """Return an alert; None if it is damaged, so that only its reason is lost."""
    try:
        return Alert.load(uri)
    except FormatError:
        return None


def _name(uri: str) -> str:
    return uri.rpartition("/")[2].removesuffix(".json")


def _ends_told(store: StoreLayout, run: AlertedRun, causes: Collection[Cause]) -> list[str]:
    """Return the files of alerts about how a run ended, by cause and task: the newest of each.

    They are those since it was last cleared, and those of tasks that have failed now.
    """
    found = {uri: _name(uri) for uri in _of_run(store, run)}
    now = _newest(found.values()) if run.times_cleared is None else run.times_cleared
    failed = {alert_name(Cause.TASK_FAILED, task) for task in _as_alerts_do(run.failed_tasks)}
    told: dict[str, str] = {}
    for uri, name in sorted(found.items(), key=lambda one: times_cleared(one[1])):
        end = uncleared(name)
        if is_one_of(name, causes) and (times_cleared(name) == now or end in failed):
            told[end] = uri
    return [told[end] for end in sorted(told)]


def _as_alerts_do(tasks: Iterable[str]) -> Iterator[str]:
    """Yield the names of tasks; of what may be one of a mapped task, with its number in brackets.

    Airflow joins the number by an underscore where it lists states.
    """
    for task in tasks:
        yield task
        yield re.sub(r"_(\d+)$", r"[\1]", task)


def _times_cleared(store: StoreLayout, run: AlertedRun) -> int:
    if run.times_cleared is not None:
        return run.times_cleared
    return _newest(_name(uri) for uri in _of_run(store, run))


def _newest(names: Iterable[str]) -> int:
    return max((times_cleared(name) for name in names), default=0)


def _of_run(store: StoreLayout, run: AlertedRun) -> list[str]:
    files = uris.list_files(uris.join(store.alerts, run.key))
    return [uri for uri in files if is_alert(store, uri)]


def alert_name(cause: Cause, detail: str, cleared: int = 0) -> str:
    """Return the name of an alert within its scope.

    :param cleared: how often the run had been cleared; see :func:`causes.times_cleared`.
    """
    name = file_name(f"{cause}.{detail}" if detail else str(cause))
    return f"{name}.cleared-{cleared}" if cleared else name


def file_name(text: str) -> str:
    """Return the text as part of a file's name; each unsafe character becomes a hyphen."""
    return _UNSAFE.sub("-", text)[:120]


def _title(*parts: str) -> str:
    return " ".join(f"[repretraining] {' '.join(parts[:-1])}: {parts[-1]}".split())


def _reason(text: str) -> str:
    stripped = text.strip()
    return stripped if len(stripped) <= MAX_REASON else f"{stripped[:MAX_REASON]} …"
