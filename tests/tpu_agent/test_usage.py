"""What jobs have made of a worker's time, over all their starts."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline_store.formats import ExitKind, JobTime, JobUsage, Progress, Seconds, SpentOn
from tests.tpu_agent.world import World
from tpu_agent.state import JobRecord, ProcessRun, WorkDir
from tpu_agent.usage import moves, seconds, unsaved, usage

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def work_dir(tmp_path: Path) -> WorkDir:
    return WorkDir(tmp_path)


def add(work_dir: WorkDir, job_id: str, started: datetime, *words: Progress | None) -> None:
    folder = work_dir.job(job_id)
    JobRecord(started=started, starts=len(words)).write(folder.record)
    for number, word in enumerate(words, start=1):
        if word is not None:
            folder.progress(number).write_text(word.model_dump_json())


def word(step: int, first: datetime | None = None, stepping: float = 0.0) -> Progress:
    return Progress(step=step, train_steps=100, first_step=first, stepping_seconds=stepping)


def test_the_starts_of_a_job_add_up(work_dir: WorkDir) -> None:
    add(
        work_dir,
        "010-train",
        NOON,
        word(5, NOON + MINUTE, 2.5),
        None,
        word(3),
        word(9, NOON + 9 * MINUTE, 4.0),
    )
    expected = JobUsage(
        job_id="010-train", started=NOON, first_step=NOON + MINUTE, stepping_seconds=6.5
    )
    assert usage(work_dir, NOON) == [expected]


def test_jobs_are_in_the_order_of_their_starts(work_dir: WorkDir) -> None:
    add(work_dir, "010-later", NOON + MINUTE, word(1))
    add(work_dir, "020-earlier", NOON, None)
    JobRecord().write(work_dir.job("030-refused").record)
    assert [
        (job.job_id, job.first_step, job.stepping_seconds) for job in usage(work_dir, NOON)
    ] == [
        ("020-earlier", None, 0.0),
        ("010-later", None, 0.0),
    ]


def test_nothing_is_known_before_the_first_job(work_dir: WorkDir) -> None:
    assert usage(work_dir, NOON) == []
    assert moves(work_dir) == frozenset()


def test_what_is_no_progress_does_not_count(work_dir: WorkDir) -> None:
    add(work_dir, "010-train", NOON, word(1, NOON, 1.0), None)
    work_dir.job("010-train").progress(2).write_text("{")
    assert usage(work_dir, NOON)[0].stepping_seconds == 1.0


def test_every_step_and_every_start_is_progress(work_dir: WorkDir) -> None:
    seen = set()
    for words in ([None], [word(1)], [word(2)], [word(2), word(2)], [word(2), word(3)]):
        add(work_dir, "010-train", NOON, *words)
        seen.add(moves(work_dir))
    assert len(seen) == 5


def told(seconds: Seconds, until: float, now: SpentOn, unsaved: float = 0.0) -> JobTime:
    return JobTime(told=at(until), now=now, seconds=seconds, unsaved_seconds=unsaved)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


STEPS: Seconds = {SpentOn.COMPILE: 20, SpentOn.STEP: 60}


def test_a_process_that_runs_goes_on_with_what_it_said_last() -> None:
    runs = [ProcessRun(started=at(0))]
    found = seconds(runs, [told(STEPS, 90, SpentOn.STEP, unsaved=30)], at(100))
    assert found == {SpentOn.PROGRAM_STARTUP: 10, SpentOn.COMPILE: 20, SpentOn.STEP: 70}


def test_what_a_process_would_lose_is_known_while_it_runs() -> None:
    words = [told(STEPS, 90, SpentOn.STEP, unsaved=30)]
    assert unsaved([ProcessRun(started=at(0))], words, at(100)).unsaved_seconds == 40
    ended = [ProcessRun(started=at(0), ended=at(95))]
    assert unsaved(ended, words, at(100)).unsaved_seconds == 0
    assert unsaved([ProcessRun(started=at(0))], [None], at(100)).unsaved_seconds == 0


@pytest.mark.parametrize(("resumed", "lost"), [(10, 35), (20, 15), (30, 0)])
def test_what_the_next_process_goes_on_from_is_not_lost(resumed: int, lost: float) -> None:
    """The one before may be killed between the commit of a checkpoint and its next word."""
    runs = [ProcessRun(started=at(0), ended=at(95)), ProcessRun(started=at(97))]
    first = told(STEPS, 90, SpentOn.STEP, unsaved=30).model_copy(
        update={"begun_at": 10, "last_step": 29, "unsaved_after": {10: 30.0, 20: 10.0}}
    )
    second = told({}, 98, SpentOn.COMPILE).model_copy(update={"begun_at": resumed})
    found = seconds(runs, [first, second], at(100))
    assert found.get(SpentOn.LOST_STEPS, 0.0) == lost
    assert found[SpentOn.STEP] + lost == 65
    while_it_ran = unsaved(runs[:1], [first], at(90))
    assert while_it_ran.begun_at == 10
    under_way = unsaved([ProcessRun(started=at(0))], [first], at(100))
    assert under_way.unsaved_after == {10: 40.0, 20: 20.0}


def test_what_a_killed_process_had_not_saved_is_lost_once() -> None:
    runs = [ProcessRun(started=at(0), ended=at(95)), ProcessRun(started=at(97))]
    words = [told(STEPS, 90, SpentOn.STEP, unsaved=30), None]
    assert seconds(runs, words, at(100)) == {
        SpentOn.PROGRAM_STARTUP: 13,
        SpentOn.COMPILE: 20,
        SpentOn.STEP: 30,
        SpentOn.LOST_STEPS: 35,
        SpentOn.RECOVERY: 2,
    }


def test_from_the_last_move_of_a_job_that_hung_it_is_a_stall() -> None:
    runs = [ProcessRun(started=at(0), ended=at(200), hung_since=at(90))]
    found = seconds(runs, [told(STEPS, 90, SpentOn.SAVE)], at(999))
    assert found[SpentOn.STALL] == 110
    assert sum(found.values()) == 200
    assert seconds(runs, [None], at(999)) == {SpentOn.PROGRAM_STARTUP: 90, SpentOn.STALL: 110}


def test_after_its_agent_was_killed_the_last_word_of_a_process_ends_it() -> None:
    runs = [ProcessRun(started=at(0)), ProcessRun(started=at(120), ended=at(130))]
    found = seconds(runs, [told(STEPS, 90, SpentOn.SAVE), None], at(999))
    assert found[SpentOn.RECOVERY] == 30
    assert sum(found.values()) == 130


def test_the_heartbeat_tells_it_also_after_a_kill_and_to_a_new_agent(world: World) -> None:
    world.add_job("010-train", "steps", max_restarts=2)
    first = world.start_agent()
    trainer = world.wait_starts(1)
    before = world.wait_heartbeat(
        "steps", lambda beat: bool(beat.usage and beat.usage[0].stepping_seconds >= 3)
    )
    os.kill(trainer, signal.SIGKILL)
    world.wait_starts(2)
    first.kill()
    first.wait()
    agent = world.start_agent()
    world.wait_starts(3)
    world.wait_heartbeat(
        "more steps",
        lambda beat: bool(beat.usage) and beat.usage[0].stepping_seconds >= 5,
    )
    world.go()
    assert world.wait_status("010-train").exit_kind is ExitKind.OK
    after = world.wait_heartbeat("an idle beat", lambda beat: beat.job_id is None)
    (job,) = after.usage
    assert (job.job_id, job.started) == ("010-train", before.usage[0].started)
    assert job.first_step == before.usage[0].first_step
    assert job.ended is not None
    assert sum(job.seconds.values()) == pytest.approx((job.ended - job.started).total_seconds())
    status = world.wait_status("010-train")
    assert status.usage == job
    world.finish_agent(agent)
