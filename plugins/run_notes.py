"""Writes the notes of runs, which Airflow shows in its lists, and passes facts to their tasks.

Tasks cannot set the note of their run. They leave its text as an XCom, and a listener copies it
when the run's state changes: in the scheduler, or in the API server if a person changed the state.
The listener queries Airflow's own database and nothing else, least of all a bucket, because it
blocks the scheduler's loop. A savepoint confines its failures: the end of a run does not depend on
the note.

In the other direction, the listener leaves XComs that answer what no task can ask: who ended the
run by hand, and which runs belong to its backfill. A run that a person marked as failed stays
failed: Airflow still runs its teardowns, and their success alone would make the run a success.

Every Airflow component executes this file, so it imports nothing heavy.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from hooks.notes import BACKFILL, ENDED_BY, FIRST_TASK, LAST_TASK, NOTE

DAG_IDS = ("bert_repretraining", "bert_finetuning")
"""DAGs whose runs get notes. In a shared Airflow, the DAGs of others are left alone."""

WRITER = "bert-repretraining"
"""Author of our notes, which distinguishes them from a person's."""

SEPARATOR = "\n\n---\n\n"
"""Between our note and a person's note, which is kept."""

MAX_NOTE = 1000
"""Most characters of a note that Airflow's database stores."""

MAX_LOCK_WAIT, MAX_STATEMENT = "1s", "2s"
"""How long the scheduler's loop may wait for a row lock and for a query, in PostgreSQL's syntax."""

_BY_HAND = "manually set"
"""Part of Airflow's own message when a person sets a run's state."""

_SOMEBODY = "a person"

log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:
    """Forget who ended the run before; if it belongs to a backfill, leave the backfill's runs."""
    if dag_run.dag_id in DAG_IDS:
        _in_savepoint(dag_run, _begin)


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Write the note of a run that has ended."""
    _note_end(dag_run, msg, "success")


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Write the note of a run that has ended, or that a person is ending."""
    _note_end(dag_run, msg, "failed")


def joined_note(ours: str, known: str | None, author: str | None) -> str:
    """Return our note with a person's text kept below it.

    :param known: the current note.
    :param author: who wrote the current note.
    """
    if known is None or (author == WRITER and SEPARATOR not in known):
        theirs = ""
    else:
        theirs = known.rpartition(SEPARATOR)[2]
    room = MAX_NOTE - len(SEPARATOR + theirs) if theirs else MAX_NOTE
    if room < MAX_NOTE // 4:
        # A person's long note is worth more than the rest of ours.
        theirs, room = theirs[: MAX_NOTE - MAX_NOTE // 4 - len(SEPARATOR)], MAX_NOTE // 4
    shown = ours if len(ours) <= room else f"{ours[: room - 2]} …"
    return f"{shown}{SEPARATOR}{theirs}" if theirs else shown


def _note_end(dag_run: Any, msg: str, state: str) -> None:
    if dag_run.dag_id not in DAG_IDS:
        return
    if _BY_HAND in msg:
        # While the run's teardowns are still to come, Airflow has not changed its state yet.
        _in_savepoint(dag_run, partial(_leave_person, state=state))
        _in_savepoint(dag_run, _note_person)
    else:
        # The run's state comes first: writing the note may fail.
        _in_savepoint(dag_run, partial(_keep_failed, state=state))
        _in_savepoint(dag_run, _note_left)


def _in_savepoint(dag_run: Any, act: Any) -> None:
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        log.warning("Run %s has no database session; its note stays as it is", dag_run.run_id)
        return
    try:
        # A savepoint of the connection and not of the session: the scheduler forbids its sessions
        # to commit, and mistakes the end of their savepoints for a commit.
        connection = session.connection()
        with connection.begin_nested(), _short_waits(connection):
            act(connection, dag_run)
        session.expire(dag_run, ["dag_run_note"])
    except Exception:
        log.exception("What was to be noted about run %s failed, and was undone", dag_run.run_id)


@contextmanager
def _short_waits(connection: Any) -> Iterator[None]:
    """Limit how long the note may wait for locked rows and for slow queries.

    A lock may last as long as a session that is idle in its transaction. A failure rolls back to
    the savepoint, which also resets the limits.
    """
    if connection.dialect.name != "postgresql":
        yield
        return
    limits = {"lock_timeout": MAX_LOCK_WAIT, "statement_timeout": MAX_STATEMENT}
    before = {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in limits}
    _limit(connection, limits)
    yield
    _limit(connection, before)


def _limit(connection: Any, limits: dict[str, Any]) -> None:
    for name, value in limits.items():
        connection.exec_driver_sql(f"SET LOCAL {name} = '{value}'")


def _keep_failed(connection: Any, dag_run: Any, *, state: str) -> None:
    """Keep a run failed that a person marked as failed, whatever its teardowns' outcome."""
    left = _newest(connection, dag_run, ENDED_BY)
    if left is not None and left[0]["state"] == "failed" != state:
        from airflow.utils.state import DagRunState

        dag_run.set_state(DagRunState.FAILED)


def _note_left(connection: Any, dag_run: Any) -> None:
    """Copy the note that a task left, unless a person ended the run after that."""
    left = _newest(connection, dag_run, ENDED_BY)
    text = _newest(connection, dag_run, NOTE)
    if text is not None and text[0] and (left is None or left[1] < text[1]):
        _write_note(connection, dag_run, str(text[0]))


def _newest(connection: Any, dag_run: Any, key: str) -> Any:
    """Return value and time of the newest XCom of the run with a key."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    table = XComModel.__table__
    wanted = (
        select(table.c.value, table.c.timestamp)
        .where(table.c.dag_run_id == dag_run.id, table.c.key == key)
        .order_by(table.c.timestamp.desc())
        .limit(1)
    )
    return connection.execute(wanted).first()


def _leave_person(connection: Any, dag_run: Any, *, state: str) -> None:
    """Leave an XCom with who ended the run, in which state, for the task that records its end."""
    try:
        with connection.begin_nested():
            person = _person(connection, dag_run)
    except Exception:
        # Keeping the run failed must not depend on a table with a million rows.
        log.exception("Nobody can say who has ended run %s", dag_run.run_id)
        person = _SOMEBODY
    _leave(connection, dag_run, FIRST_TASK, ENDED_BY, {"name": person, "state": state})


def _note_person(connection: Any, dag_run: Any) -> None:
    """Write into the note who ended the run."""
    left = _newest(connection, dag_run, ENDED_BY)
    if left is not None:
        about = _newest(connection, dag_run, NOTE)
        what = f"Marked as {left[0]['state']} by {left[0]['name']}"
        _write_note(connection, dag_run, ". ".join([what, *([str(about[0])] if about else [])]))


def _person(connection: Any, dag_run: Any) -> str:
    """Return who has just set the run's state, from Airflow's audit log."""
    from airflow.models.log import Log
    from sqlalchemy import and_, or_, select

    table = Log.__table__
    in_bulk = table.c.extra.contains(dag_run.run_id, autoescape=True)
    newest = (
        select(table.c.owner_display_name, table.c.owner)
        .where(
            or_(
                and_(table.c.event == "patch_dag_run", table.c.run_id == dag_run.run_id),
                and_(table.c.event == "bulk_dag_runs", in_bulk),
            ),
            table.c.dag_id.in_([dag_run.dag_id, "~"]),
        )
        .order_by(table.c.id.desc())
        .limit(1)
    )
    found = connection.execute(newest).first()
    return (found and (found[0] or found[1])) or _SOMEBODY


def _begin(connection: Any, dag_run: Any) -> None:
    _forget(connection, dag_run, FIRST_TASK, ENDED_BY)
    if dag_run.backfill_id is not None:
        _leave_backfill(connection, dag_run)


def _leave_backfill(connection: Any, dag_run: Any) -> None:
    from airflow.models.backfill import BackfillDagRun
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    listed, runs = BackfillDagRun.__table__, DagRun.__table__
    wanted = (
        select(runs.c.run_id, listed.c.partition_key)
        .join(runs, runs.c.id == listed.c.dag_run_id)
        .where(listed.c.backfill_id == dag_run.backfill_id)
        .order_by(listed.c.sort_ordinal)
    )
    found = {run_id: key for run_id, key in connection.execute(wanted) if key}
    keys = list(found.values())
    is_backwards = len(keys) > 1 and keys[0] > keys[-1]
    value = {"backfill_id": dag_run.backfill_id, "runs": found, "is_backwards": is_backwards}
    _leave(connection, dag_run, LAST_TASK, BACKFILL, value)


def _leave(connection: Any, dag_run: Any, task_id: str, key: str, value: Any) -> None:
    """Leave an XCom for the run's tasks."""
    from datetime import UTC, datetime

    from airflow.models.xcom import XComModel
    from sqlalchemy import insert

    _forget(connection, dag_run, task_id, key)
    names = {"dag_id": dag_run.dag_id, "run_id": dag_run.run_id, "task_id": task_id, "key": key}
    more = {"dag_run_id": dag_run.id, "map_index": -1, "timestamp": datetime.now(UTC)}
    connection.execute(insert(XComModel.__table__).values(value=value, **names, **more))


def _forget(connection: Any, dag_run: Any, task_id: str, key: str) -> None:
    from airflow.models.xcom import XComModel
    from sqlalchemy import delete

    table = XComModel.__table__
    is_it = (table.c.dag_run_id == dag_run.id, table.c.task_id == task_id, table.c.key == key)
    connection.execute(delete(table).where(*is_it))


def _write_note(connection: Any, dag_run: Any, text: str) -> None:
    from datetime import UTC, datetime

    from airflow.models.dagrun import DagRunNote
    from sqlalchemy import insert, select, update

    table = DagRunNote.__table__
    is_run = table.c.dag_run_id == dag_run.id
    known = connection.execute(select(table.c.content, table.c.user_id).where(is_run)).first()
    now = datetime.now(UTC)
    if known is None:
        values = {"content": joined_note(text, None, None), "user_id": WRITER}
        times = {"created_at": now, "updated_at": now}
        connection.execute(insert(table).values(dag_run_id=dag_run.id, **values, **times))
    else:
        values = {"content": joined_note(text, known[0], known[1]), "user_id": WRITER}
        connection.execute(update(table).where(is_run).values(updated_at=now, **values))


LISTENERS: list[Any] = [sys.modules[__name__]]


class RunNotes(AirflowPlugin):
    """Registers the listener."""

    name = "run_notes"
    listeners = LISTENERS
