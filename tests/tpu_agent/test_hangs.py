"""A job that hangs is found, explained and started again; one that is only slow is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline_store import uris
from pipeline_store.formats import (
    ExitKind,
    HangReport,
    JobLimits,
    JobPhase,
    JobStatus,
    PhaseName,
)
from tests.tpu_agent.world import TOKEN, World, wait_for
from tpu_agent.hang_files import SLOW_SECONDS, Answered
from tpu_agent.hang_watch import Judge, PhaseFile

JOB = "010-train"
BEGIN = datetime(2026, 1, 31, tzinfo=UTC)
LIMITS = JobLimits(
    max_hangs=1,
    workers=1,
    loop_floor_seconds=10,
    phase_seconds={PhaseName.SAVE: 30, PhaseName.FIRST_LOOP: 100, PhaseName.OTHER: 50},
)


def phase(name: PhaseName, count: int = 0, entered: int = 0, **more: float) -> JobPhase:
    return JobPhase(name=name, count=count, entered=BEGIN + timedelta(seconds=entered), **more)


def loops(*moments: float, **more: float) -> list[tuple[float, JobPhase]]:
    return [(moment, phase(PhaseName.LOOP, count, **more)) for count, moment in enumerate(moments)]


JUDGED: dict[str, tuple[list[tuple[float, JobPhase]], float, float | None]] = {
    "quick loops have the floor": (loops(0, 1, 2), 2, 10),
    "so has a loop before any other": (loops(0), 0, 10),
    "slow loops have six times the slowest": (loops(0, 5, slowest_loop_seconds=5), 5, 30),
    "but not more than the first, which compiles": (loops(0, slowest_loop_seconds=40), 0, 100),
    "unless loops are hardly shorter than that": (loops(0, slowest_loop_seconds=90), 0, 180),
    "other phases have a stated limit": ([(0, phase(PhaseName.SAVE))], 0, 30),
    "also the first loop": ([(0, phase(PhaseName.FIRST_LOOP))], 0, 100),
    "each move has the whole limit": (
        [(float(at), phase(PhaseName.SAVE, at)) for at in range(3)],
        2,
        30,
    ),
    "a phase that is entered again begins anew": (
        [(0, phase(PhaseName.SAVE)), (20, phase(PhaseName.SAVE, entered=20))],
        20,
        30,
    ),
    "some phases never hang": ([(0, phase(PhaseName.LENDING))], 0, None),
}


@pytest.mark.parametrize(("seen", "since", "limit"), JUDGED.values(), ids=JUDGED)
def test_when_a_phase_hangs(
    seen: list[tuple[float, JobPhase]], since: float, limit: float | None
) -> None:
    judge = Judge(LIMITS)
    for now, what in seen:
        assert not judge.see(what, now).is_hang
    last = seen[-1][1]
    if limit is None:
        assert not judge.see(last, since + 1e9).is_hang
        return
    assert not judge.see(last, since + limit).is_hang
    standing = judge.see(last, since + limit + 0.1)
    assert standing.is_hang
    assert (standing.limit, standing.phase) == (limit, last)


Talk = Callable[[Answered, list[float]], None]


def _answers_quickly(answered: Answered, now: list[float]) -> None:
    for _ in range(3):
        answered.ask()
        now[0] += 1
        answered.answer()
        now[0] += 5


def _fails_and_answers(answered: Answered, now: list[float]) -> None:
    now[0] = 5  # the last answer was at 0
    answered.ask()
    now[0] = 7
    answered.fail()
    now[0] = 20
    answered.ask()
    answered.answer()
    now[0] = 25


def _still_fails(answered: Answered, now: list[float]) -> None:
    answered.ask()
    answered.fail()
    now[0] = 30


def _does_not_come_back(answered: Answered, now: list[float]) -> None:
    now[0] = 3
    answered.ask()
    now[0] = 3 + SLOW_SECONDS + 1


@pytest.mark.parametrize(
    ("talk", "away"),
    [
        (_answers_quickly, 0),
        (_fails_and_answers, 20),
        (_still_fails, 30),
        (_does_not_come_back, 3 + SLOW_SECONDS + 1),
    ],
)
def test_how_long_the_store_was_away(talk: Talk, away: float) -> None:
    now = [0.0]
    answered = Answered(lambda: now[0])
    talk(answered, now)
    assert answered.away() == away


def test_what_a_job_says_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "phase.json"
    file = PhaseFile(path)
    begin = file.read()
    assert begin.name is PhaseName.OTHER
    saving = phase(PhaseName.SAVE)
    path.write_text(saving.model_dump_json())
    assert file.read() == saving
    path.write_text("{}")
    assert file.read() == saving


def hang(world: World, number: int, worker: int = 0) -> HangReport:
    uri = world.mailbox.hang(JOB, number, worker)
    report: HangReport = wait_for(f"report {number}", lambda: HangReport.load_or_none(uri))
    return report


@pytest.mark.parametrize("how", ["sleeps", "stops"])
def test_a_hung_job_is_explained_and_started_again(world: World, how: str) -> None:
    world.add_limits(JOB)
    world.add_job(JOB, "hangs", "1", how, "loop", max_restarts=0)
    world.start_agent()
    status = world.wait_status(JOB)
    assert (status.exit_kind, status.restarts, len(world.starts())) == (ExitKind.OK, 1, 2)
    report = hang(world, 1)
    assert (report.worker, report.token, report.phase.name) == (0, TOKEN, PhaseName.LOOP)
    assert report.limit_seconds is not None
    assert report.still_seconds >= report.limit_seconds >= 1.0
    assert "in helps" in report.stacks
    assert f"in {how}" in report.stacks
    assert report.top[0].startswith(f"{how} (training/hangs.py:")
    log = world.log(JOB)
    assert f"in phase loop, before its first step. Its main thread is in {how} (" in log
    assert "training.hangs hung; starting it again (1 of 2)" in log
    # A process that was stopped, or sleeps, can still save.
    assert (world.scratch / "saved").exists()


def test_a_job_that_hangs_too_often_ends_as_hung(world: World) -> None:
    world.add_limits(JOB, max_hangs=1)
    world.add_job(JOB, "hangs", "9", "sleeps", "save")
    world.start_agent()
    status = world.wait_status(JOB)
    assert (status.exit_kind, status.exit_code, status.restarts) == (ExitKind.HUNG, 47, 1)
    assert "hang 2: nothing moved for" in status.message
    assert "in phase save" in status.message
    assert [hang(world, number).number for number in (1, 2)] == [1, 2]


def test_a_job_that_says_and_answers_nothing_is_explained_by_the_kernel(world: World) -> None:
    world.add_limits(JOB, max_hangs=0, phase_seconds={PhaseName.OTHER: 2.0})
    world.add_job(JOB, "stubborn")
    world.start_agent(stop_grace="0.2")
    status = world.wait_status(JOB)
    assert (status.exit_kind, status.restarts) == (ExitKind.HUNG, 0)
    report = hang(world, 1)
    assert (report.phase.name, report.top) == (PhaseName.OTHER, [])
    assert "training.stubborn" in report.stacks
    assert "no answer" in report.stacks
    assert "1 thread(s) python" in report.stacks


@contextmanager
def away(world: World) -> Iterator[None]:
    """Make the store fail while the block runs, as a link that the kernel refuses to follow."""
    store = Path(world.store.root)
    real = store.resolve()
    for target in (store, real):
        link = store.with_name("link")
        link.symlink_to(target)
        link.replace(store)
        if target == store:
            yield


def test_while_the_store_does_not_answer_nothing_hangs(world: World) -> None:
    world.add_limits(JOB)
    world.add_job(JOB, "hangs", "1", "sleeps", "save")
    store = Path(world.store.root)
    store.rename(store.with_name("real"))
    store.symlink_to(store.with_name("real"))
    world.start_agent()
    world.wait_starts(1)
    with away(world):
        wait_for("a failed look", lambda: "the agent tries again" in world.agent_log)
        seen = world.agent_log.count("the agent tries again")
        # Looks for ten times as long as the phase may stand still.
        enough = seen + 100
        wait_for("more", lambda: world.agent_log.count("the agent tries again") >= enough)
        assert "nothing moved" not in world.agent_log
    assert world.wait_status(JOB).exit_kind is ExitKind.OK
    assert hang(world, 1).phase.name is PhaseName.SAVE


def test_what_another_host_has_found_ends_the_job_here_too(world: World) -> None:
    world.add_limits(JOB, workers=2)
    world.add_job(JOB, "hangs", "1", "waits", "loop", max_restarts=0)
    world.start_agent()
    world.wait_heartbeat("loops", lambda beat: beat.phase is not None and beat.phase.count > 5)
    there = HangReport(
        worker=1,
        token=TOKEN,
        job_id=JOB,
        number=1,
        found=datetime.now(UTC),
        phase=phase(PhaseName.LOOP),
        still_seconds=2,
        limit_seconds=1,
        step=None,
        top=[],
        stacks="",
    )
    assert there.create(world.mailbox.hang(JOB, 1, 1))
    here = hang(world, 1)
    assert here.limit_seconds is None
    assert "in waits" in here.stacks
    status = world.wait_status(JOB)
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 1)


def test_a_report_outlives_the_agent_that_could_not_upload_it(world: World) -> None:
    folder = world.work_dir / "jobs" / JOB / "hangs"
    folder.mkdir(parents=True)
    world.add_limits(JOB)
    world.add_job(JOB, "exits", "0")
    kept = HangReport(
        worker=0,
        token=TOKEN,
        job_id=JOB,
        number=1,
        found=datetime.now(UTC),
        phase=phase(PhaseName.SAVE),
        still_seconds=2,
        limit_seconds=1,
        step=3,
        top=["here"],
        stacks="there",
    )
    kept.write(str(folder / "1.json"))
    world.start_agent()
    assert world.wait_status(JOB).exit_kind is ExitKind.OK
    assert hang(world, 1) == kept


def test_the_heartbeat_says_what_the_job_does(world: World) -> None:
    world.add_limits(JOB)
    world.add_job(JOB, "hangs", "1", "waits", "loop")
    world.start_agent()
    beat = world.wait_heartbeat("a phase", lambda b: b.phase and b.phase.name is PhaseName.LOOP)
    assert beat.phase_limit_seconds is not None
    world.go()
    world.wait_status(JOB)
    idle = world.wait_heartbeat("an idle beat", lambda b: b.job_id is None)
    assert (idle.phase, idle.phase_limit_seconds) == (None, None)


def test_without_limits_no_job_hangs(world: World) -> None:
    world.add_job(JOB, "hangs", "1", "waits", "save")
    world.start_agent()
    world.wait_starts(1)
    world.go()
    status: JobStatus = world.wait_status(JOB)
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 0)
    assert uris.list_files(world.mailbox.hangs) == []
