"""Jobs run once, in order, and their end is told as it was."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline_store import job_signatures, uris
from pipeline_store.formats import AgentHello, ExitKind
from tests.tpu_agent.world import JOB_KEY, TOKEN, Clock, World, is_running, wait_for


def test_two_jobs_run_in_order_and_report(world: World) -> None:
    world.add_job("020-evaluate", "exits", "0")
    world.add_job("010-train", "train", "--run", "x y")
    agent = world.start_agent()
    train = world.wait_status("010-train")
    evaluate = world.wait_status("020-evaluate")
    for status in (train, evaluate):
        assert (status.exit_kind, status.exit_code, status.restarts) == (ExitKind.OK, 0, 0)
        assert (status.worker, status.token, status.message) == (0, TOKEN, "")
    assert train.finished <= evaluate.started
    log = world.log("010-train")
    assert f"holder {world.run.holder} token {TOKEN}" in log
    assert f"arguments ['--run', 'x y'] folder {world.code}" in log
    assert "to stderr" in log
    hello = AgentHello.load(world.mailbox.hello(0))
    assert (hello.starts, hello.token, hello.bundle_sha256) == (1, TOKEN, world.bundle.sha256)
    assert agent.poll() is None, "the agent waits for further jobs"
    world.add_job("030-more", "exits", "0")
    assert world.wait_status("030-more").exit_kind is ExitKind.OK
    world.finish_agent(agent)
    assert len(world.starts()) == 3


def test_heartbeat_tells_progress_and_goes_on(world: World) -> None:
    world.add_job("010-train", "progress")
    agent = world.start_agent()
    first = world.wait_heartbeat("progress", lambda beat: beat.progress is not None)
    assert (first.job_id, first.token, first.worker) == ("010-train", TOKEN, 0)
    assert first.progress is not None
    assert (first.progress.step, first.progress.train_steps) == (7, 10)
    assert first.disk_free_bytes > 0
    world.wait_heartbeat("a later beat", lambda beat: beat.time > first.time)
    world.go()
    world.wait_status("010-train")
    idle = world.wait_heartbeat("an idle beat", lambda beat: beat.job_id is None)
    assert idle.progress is None
    world.finish_agent(agent)


def test_exit_codes_become_kinds_without_restart(world: World) -> None:
    kinds = [
        ExitKind.USER_ERROR,
        ExitKind.BAD_DATA,
        ExitKind.OUT_OF_MEMORY,
        ExitKind.PREEMPTED,
        ExitKind.FAILED,
    ]
    for kind in kinds:
        world.add_job(f"010-{kind}", "exits", str(kind.exit_code))
    world.start_agent()
    for kind in kinds:
        status = world.wait_status(f"010-{kind}")
        assert (status.exit_kind, status.exit_code, status.restarts) == (kind, kind.exit_code, 0)
        assert ("last words" in status.message) == (kind is not ExitKind.PREEMPTED)
    assert len(world.starts()) == len(kinds)


def test_a_mailbox_on_cloud_storage(cloud_world: World) -> None:
    cloud_world.add_job("010-train", "train")
    agent = cloud_world.start_agent()
    status = cloud_world.wait_status("010-train")
    assert (status.exit_kind, status.log_chunks) == (ExitKind.OK, 1)
    assert f"holder {cloud_world.run.holder} token {TOKEN}" in cloud_world.log("010-train")
    cloud_world.wait_heartbeat("an idle beat", lambda beat: beat.job_id is None)
    cloud_world.finish_agent(agent)


def test_an_exception_is_a_failure_with_its_last_lines(world: World) -> None:
    world.add_job("010-train", "exits", "no number")
    world.start_agent()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.exit_code) == (ExitKind.FAILED, 1)
    assert "training.exits on worker 0 ended with exit code 1" in status.message
    assert "ValueError: invalid literal" in status.message


def test_a_full_disk_is_named(world: World) -> None:
    world.add_job("010-train", "disk")
    world.start_agent()
    status = world.wait_status("010-train")
    assert status.exit_kind is ExitKind.FAILED
    assert "disk is full" in status.message
    assert "max_to_keep" in status.message


def test_a_killed_job_is_started_again(world: World) -> None:
    world.add_job("010-train", "killed", "2", max_restarts=2)
    world.start_agent()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 2)
    log = world.log("010-train")
    assert "training.killed was killed (SIGKILL); starting it again (2 of 2)" in log
    assert log.endswith("survived\n")
    assert all(line.endswith(" alone") for line in world.starts())


def test_a_job_that_is_always_killed_ends_as_killed(world: World) -> None:
    world.add_job("010-train", "killed", "9", max_restarts=1)
    world.start_agent()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.exit_code) == (ExitKind.KILLED, -signal.SIGKILL)
    assert (status.restarts, len(world.starts())) == (1, 2)
    assert "ended with SIGKILL" in status.message


def test_kill_9_of_the_running_trainer(world: World) -> None:
    world.add_job("010-train", "waits")
    world.start_agent()
    os.kill(world.wait_starts(1), signal.SIGKILL)
    world.wait_starts(2)
    world.go()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 1)


def test_the_deadline_stops_a_job_with_everything_it_started(world: World) -> None:
    clock = Clock()
    world.add_job("010-train", "stubborn", deadline=world.expires_at - timedelta(minutes=5))
    with world.agent_here(clock, stop_grace="0.2"):
        helper = int(wait_for("helper", lambda: _read(world, "helper")))
        clock.ahead = timedelta(minutes=6)
        status = world.wait_status("010-train")
    assert (status.exit_kind, status.exit_code) == (ExitKind.DEADLINE, 46)
    assert "stopping training.stubborn: the job's deadline" in world.log("010-train")
    assert not is_running(helper)


def test_a_job_past_its_deadline_is_not_started(world: World) -> None:
    world.add_job("010-train", "train", deadline=datetime.now(UTC) - timedelta(seconds=1))
    world.start_agent()
    assert world.wait_status("010-train").exit_kind is ExitKind.DEADLINE
    assert world.starts() == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"entry_point": "http.server"}, "is not a module of the bundle's training package"),
    ({"entry_point": "training.nothing"}, "is not a module of the bundle's training package"),
    ({"entry_point": "training.../x"}, "is not a module of the bundle's training package"),
    ({"token": "b" * 32}, "it belongs to token bbb"),
    ({"bundle_sha256": "0" * 64}, "it asks for code bundle 000"),
]


def test_jobs_that_must_not_run_are_refused(world: World) -> None:
    for number, (changes, _) in enumerate(REFUSED):
        world.add_job(f"01{number}-train", "train", **changes)
    world.add_job("020-evaluate", "train")
    world.start_agent()
    for number, (_, reason) in enumerate(REFUSED):
        status = world.wait_status(f"01{number}-train")
        assert status.exit_kind is ExitKind.USER_ERROR
        assert reason in status.message
    assert world.wait_status("020-evaluate").exit_kind is ExitKind.OK
    assert len(world.starts()) == 1


def test_an_unreadable_job_is_refused(world: World) -> None:
    data = b'{"format": "job-spec", "format_version": 99}'
    job_signatures.sign(world.mailbox, "010-train", data, JOB_KEY)
    uris.write(world.mailbox.job("010-train"), data)
    world.start_agent()
    status = world.wait_status("010-train")
    assert status.exit_kind is ExitKind.USER_ERROR
    assert "version 99" in status.message


def _read(world: World, name: str) -> str | None:
    path = world.scratch / name
    return path.read_text() if path.exists() else None
