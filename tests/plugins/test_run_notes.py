"""Notes of runs, and what the listener leaves for tasks, in a database as Airflow has one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.backfill import Backfill, BackfillDagRun
from airflow.models.base import Base
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.tasklog import LogTemplate
from airflow.models.xcom import XComModel
from sqlalchemy import create_engine, event, select
from sqlalchemy.orm import Session

import run_notes
from hooks.notes import BACKFILL, ENDED_BY, FIRST_TASK, LAST_TASK, NOTE, BackfillList, backfill_of
from local.stack import settings
from local.stack.paths import RuntimePaths
from tests.local.stack.database import runtime

__all__ = ["runtime"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAG_ID = "bert_repretraining"
BY_HAND = "Dag Run's state was manually set to `failed`."


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    for model in (LogTemplate, DagRun, DagRunNote, XComModel, Log, Backfill, BackfillDagRun):
        model.__table__.create(engine)
    with Session(engine) as session:
        yield session


class Listened:
    """A run as listeners get it: of a session that forbids to commit, as the scheduler's does."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        self.session, self.expired = session, False
        given = {"dag_id": DAG_ID, "run_id": "r1", "id": 1, "backfill_id": None, "state": "failed"}
        self.run = SimpleNamespace(**given | more)
        self.run.set_state = lambda state: setattr(self.run, "state", state)
        monkeypatch.setattr("sqlalchemy.orm.object_session", lambda run: session)
        monkeypatch.setattr(session, "expire", lambda run, names: None)

        def refuse(session: Session) -> None:
            raise RuntimeError("UNEXPECTED COMMIT")

        event.listen(session, "before_commit", refuse)

    def leave(self, key: str, value: Any, task_id: str = "t", minute: int = 0) -> None:
        self.session.connection().execute(
            XComModel.__table__.insert().values(
                dag_run_id=1,
                task_id=task_id,
                map_index=-1,
                key=key,
                value=value,
                dag_id=DAG_ID,
                run_id="r1",
                timestamp=NOW.replace(minute=minute),
            )
        )

    def left(self, task_id: str, key: str) -> Any:
        table = XComModel.__table__
        wanted = select(table.c.value).where(table.c.task_id == task_id, table.c.key == key)
        return self.session.connection().scalar(wanted)

    @property
    def note(self) -> str | None:
        return self.session.connection().scalar(select(DagRunNote.__table__.c.content))


@pytest.fixture
def listened(session: Session, monkeypatch: pytest.MonkeyPatch) -> Listened:
    return Listened(session, monkeypatch)


def test_the_newest_text_that_a_task_has_left_becomes_the_note(listened: Listened) -> None:
    listened.leave(NOTE, "Rejected: worse", task_id="promotion.release", minute=5)
    listened.leave(NOTE, "Partition p, lineage l", task_id="validate", minute=1)
    for _ in range(2):
        run_notes.on_dag_run_success(listened.run, "success")
    assert listened.note == "Rejected: worse"


def test_a_person_who_ends_a_run_is_noted_and_told_to_its_last_task(listened: Listened) -> None:
    rows = [("patch_dag_run", "r1", "ada"), ("patch_dag_run", "r2", "bob")]
    for name, run_id, owner in rows:
        log = {"event": name, "run_id": run_id, "owner": owner, "dag_id": DAG_ID}
        listened.session.connection().execute(Log.__table__.insert().values(**log))
    run_notes.on_dag_run_failed(listened.run, BY_HAND)
    assert listened.note == "Marked as failed by ada"
    assert listened.left(FIRST_TASK, ENDED_BY) == {"name": "ada", "state": "failed"}
    # A run that goes on is nobody's end any more.
    run_notes.on_dag_run_running(listened.run, "started")
    assert listened.left(FIRST_TASK, ENDED_BY) is None


@pytest.mark.parametrize(("marked", "ends"), [("failed", "failed"), ("success", "success")])
def test_what_a_person_says_is_not_undone_by_teardowns_that_succeed(
    listened: Listened, marked: str, ends: str
) -> None:
    listened.leave(NOTE, "Partition p, lineage l", task_id="validate")
    listened.run.state = "running"  # as Airflow leaves it until the teardowns have ended
    mark = run_notes.on_dag_run_failed if marked == "failed" else run_notes.on_dag_run_success
    mark(listened.run, BY_HAND)
    assert listened.note == f"Marked as {marked} by a person. Partition p, lineage l"
    listened.run.state = "success"
    run_notes.on_dag_run_success(listened.run, "success")
    assert listened.run.state == ends
    assert listened.note == f"Marked as {marked} by a person. Partition p, lineage l"


def test_without_an_audit_log_it_was_a_person(listened: Listened) -> None:
    run_notes.on_dag_run_failed(listened.run, BY_HAND)
    assert listened.left(FIRST_TASK, ENDED_BY) == {"name": "a person", "state": "failed"}


@pytest.mark.parametrize("is_backwards", [False, True])
def test_a_run_of_a_backfill_is_told_the_runs_of_that_one(
    listened: Listened, is_backwards: bool
) -> None:
    ordinals = {1: 1, 2: 2, 3: 3} if is_backwards else {1: 2, 2: 1, 3: 3}
    listened.run.backfill_id = 7
    add = listened.session.connection().execute
    for number, (backfill, partition) in enumerate([(7, "b"), (7, "a"), (8, "c")], start=1):
        add(
            DagRun.__table__.insert().values(
                id=number,
                dag_id=DAG_ID,
                run_id=f"r{number}",
                run_after=NOW,
                run_type="backfill",
                state="queued",
            )
        )
        add(
            BackfillDagRun.__table__.insert().values(
                backfill_id=backfill,
                dag_run_id=number,
                partition_key=partition,
                sort_ordinal=ordinals[number],
            )
        )
    run_notes.on_dag_run_running(listened.run, "started")
    value = listened.left(LAST_TASK, BACKFILL)
    runs = {"r1": "b", "r2": "a"}
    assert value == {"backfill_id": 7, "runs": runs, "is_backwards": is_backwards}
    ti = SimpleNamespace(xcom_pull=lambda task_ids, key: value)
    context: Any = {"ti": ti, "dag_run": SimpleNamespace(run_type="backfill")}
    assert backfill_of(context) == BackfillList(7, runs, is_backwards)


@pytest.mark.parametrize("left", [None, "text", {"runs": []}, {"backfill_id": 1}])
def test_a_run_without_a_list_is_of_no_backfill(left: Any) -> None:
    ti = SimpleNamespace(xcom_pull=lambda task_ids, key: left)
    context: Any = {"ti": ti, "dag_run": SimpleNamespace(run_type="backfill")}
    assert backfill_of(context) is None


def test_a_note_that_cannot_be_written_undoes_nothing_else(
    listened: Listened, monkeypatch: pytest.MonkeyPatch
) -> None:
    listened.leave(NOTE, "text")

    def fail(connection: Any, run: Any, text: str) -> None:
        connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)")

    monkeypatch.setattr(run_notes, "_write_note", fail)
    run_notes.on_dag_run_success(listened.run, "success")
    assert listened.note is None
    assert listened.left("t", NOTE) == "text"


@pytest.mark.parametrize("fails", ["at its end", "when it is marked", "the audit log"])
def test_what_a_person_has_marked_as_failed_ends_so_though_no_note_can_be_written(
    listened: Listened, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def fail(connection: Any, run: Any, *_: Any) -> None:
        connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)")

    with monkeypatch.context() as patch:
        if fails != "at its end":
            patch.setattr(run_notes, "_person" if "audit" in fails else "_write_note", fail)
        run_notes.on_dag_run_failed(listened.run, BY_HAND)
    assert listened.left(FIRST_TASK, ENDED_BY)["state"] == "failed"
    listened.run.state = "success"
    listened.leave(NOTE, "what came of it")
    if fails == "at its end":
        monkeypatch.setattr(run_notes, "_write_note", fail)
    run_notes.on_dag_run_success(listened.run, "success")
    assert listened.run.state == "failed"


@pytest.mark.thorough
def test_a_note_that_somebody_has_locked_holds_up_no_end(runtime: RuntimePaths) -> None:
    engine = create_engine(settings.database_url("+psycopg2", runtime))
    import_all_models()
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        run = DagRun(dag_id=DAG_ID, run_id="r1", run_after=NOW, run_type="manual", state="running")
        session.add(run)
        session.flush()
        task = {"dag_id": DAG_ID, "run_id": "r1", "task_id": "t", "pool": "default_pool"}
        session.execute(TaskInstance.__table__.insert().values(**task))
        key = {"dag_run_id": run.id, "task_id": "t", "map_index": -1, "key": NOTE}
        more = {"dag_id": DAG_ID, "run_id": "r1", "timestamp": NOW, "value": "Failed: a"}
        session.execute(XComModel.__table__.insert().values(**key, **more))
        session.execute(DagRunNote.__table__.insert().values(dag_run_id=run.id, content="mine"))
        session.commit()
    wanted = select(DagRun).where(DagRun.run_id == "r1")
    lock = select(DagRunNote.__table__.c.content).with_for_update()
    with engine.connect() as somebody, Session(engine) as session:
        assert somebody.scalar(lock) == "mine"
        ended = session.scalars(wanted).one()
        ended.state = "failed"
        session.flush()
        run_notes.on_dag_run_failed(ended, "task_failure")
        # What the scheduler does next in the same transaction works, and waits as it did before.
        assert session.connection().exec_driver_sql("SHOW lock_timeout").scalar() == "0"
        session.commit()
        assert ended.note == "mine"
        somebody.rollback()
        run_notes.on_dag_run_failed(ended, "task_failure")
        assert session.connection().exec_driver_sql("SHOW statement_timeout").scalar() == "0"
        session.commit()
        assert (ended.state, ended.note) == ("failed", f"Failed: a{run_notes.SEPARATOR}mine")


def test_runs_of_other_dags_are_left_alone(listened: Listened) -> None:
    listened.run.dag_id = "somebody_elses"
    listened.leave(NOTE, "text")
    run_notes.on_dag_run_success(listened.run, "success")
    run_notes.on_dag_run_failed(listened.run, BY_HAND)
    assert listened.note is None


def test_what_a_person_has_written_stays_below_ours() -> None:
    once = run_notes.joined_note("Failed: a", "look at this", "ada")
    assert once == f"Failed: a{run_notes.SEPARATOR}look at this"
    assert run_notes.joined_note("Promoted: b", once, run_notes.WRITER) == (
        f"Promoted: b{run_notes.SEPARATOR}look at this"
    )
    assert run_notes.joined_note("Promoted: b", "Failed: a", run_notes.WRITER) == "Promoted: b"
    long = run_notes.joined_note("a" * 2000, "b" * 2000, "ada")
    assert len(long) <= run_notes.MAX_NOTE
