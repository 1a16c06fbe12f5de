"""The agent starts nothing it may not start and leaves nothing behind."""

from __future__ import annotations

import http.server
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline_store import uris
from pipeline_store.formats import AgentHello, ExitKind
from tests.serving import serving
from tests.tpu_agent.world import PATIENCE, Clock, World, is_running, wait_for
from tpu_agent import metadata


def assert_nothing_was_started(world: World) -> None:
    assert world.starts() == []
    assert uris.list_files(world.mailbox.workers) == []


def test_nothing_starts_after_release(world: World) -> None:
    world.add_job("010-train", "train")
    world.release()
    assert world.start_agent().wait(PATIENCE) == 0
    assert_nothing_was_started(world)
    assert "released.json exists" in world.agent_log


def test_nothing_starts_for_another_token(world: World) -> None:
    world.add_job("010-train", "train")
    world.write_attempt(token="b" * 32)
    assert world.start_agent().wait(PATIENCE) == 0
    assert_nothing_was_started(world)


def test_nothing_starts_without_an_attempt(world: World) -> None:
    world.add_job("010-train", "train")
    uris.delete(world.mailbox.record)
    assert world.start_agent().wait(PATIENCE) == 0
    assert_nothing_was_started(world)


def test_nothing_starts_after_expiry(world: World) -> None:
    world.add_job("010-train", "train")
    world.expires_at = datetime.now(UTC) - timedelta(seconds=1)
    assert world.start_agent().wait(PATIENCE) == 0
    assert_nothing_was_started(world)


def test_nothing_starts_while_the_store_is_silent(world: World) -> None:
    world.add_job("010-train", "train")
    attempt = Path(world.mailbox.record)
    content = attempt.read_bytes()
    attempt.unlink()
    attempt.mkdir()  # reading it is an error, neither absence nor presence
    agent = world.start_agent()
    wait_for("a warning", lambda: "nothing is started before it succeeds" in world.agent_log)
    assert_nothing_was_started(world)
    attempt.rmdir()
    attempt.write_bytes(content)
    assert world.wait_status("010-train").exit_kind is ExitKind.OK
    world.finish_agent(agent)


def test_release_in_the_middle_stops_the_job_without_a_status(world: World) -> None:
    world.add_job("010-train", "waits")
    agent = world.start_agent()
    pid = world.wait_starts(1)
    world.finish_agent(agent)
    assert not is_running(pid)
    assert world.status("010-train") is None


def test_a_new_token_in_the_middle_stops_the_job(world: World) -> None:
    world.add_job("010-train", "stubborn")
    agent = world.start_agent(stop_grace="0.2")
    pid = world.wait_starts(1)
    world.write_attempt(token="b" * 32)
    assert agent.wait(PATIENCE) == 0
    assert not is_running(pid)
    assert world.status("010-train") is None


def test_expiry_in_the_middle_is_a_deadline(world: World) -> None:
    clock = Clock()
    world.add_job("010-train", "waits", deadline=world.expires_at + timedelta(hours=1))
    with world.agent_here(clock) as agent:
        wait_for("output", lambda: "started" in world.log("010-train"))
        clock.ahead = timedelta(minutes=30)
        agent.join(PATIENCE)
        assert not agent.is_alive()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.exit_code) == (ExitKind.DEADLINE, 46)
    assert "checkpoint saved" in world.log("010-train")


def test_sigterm_lets_the_job_save_and_says_preempted(world: World) -> None:
    world.add_job("010-train", "waits")
    agent = world.start_agent()
    wait_for("output", lambda: "started" in world.log("010-train"))
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(PATIENCE) == 0
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.message) == (ExitKind.PREEMPTED, "")
    assert world.log("010-train").endswith("checkpoint saved\n")


def test_sigterm_of_the_whole_vm_is_no_failure_of_the_job(world: World) -> None:
    """A job that dies of the VM's own end has no status, so that a reboot runs it again."""
    world.add_job("010-train", "dies_of_sigterm", max_restarts=0)
    # However long the agent's own signal takes.
    agent = world.start_agent(settle="30")
    wait_for("output", lambda: "started" in world.log("010-train"))
    os.kill(world.wait_starts(1), signal.SIGTERM)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(PATIENCE) == 0
    assert world.status("010-train") is None
    world.go()
    world.start_agent()
    assert world.wait_status("010-train").exit_kind is ExitKind.OK


class _Notices(http.server.BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        answer = type(self).answers.get(self.path.removeprefix("/computeMetadata/v1/instance/"))
        assert self.headers["Metadata-Flavor"] == "Google"
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write((answer or "").encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def metadata_server() -> Iterator[http.server.ThreadingHTTPServer]:
    _Notices.answers = {"preempted": "FALSE", "maintenance-event": "NONE"}
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Notices)) as server:
        yield server


@pytest.mark.parametrize(
    "notice",
    [{"preempted": "TRUE"}, {"maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE"}],
)
def test_a_notice_of_the_platform_lets_the_job_save(
    world: World, metadata_server: http.server.ThreadingHTTPServer, notice: dict[str, str]
) -> None:
    world.add_job("010-train", "waits")
    agent = world.start_agent(metadata_host=f"127.0.0.1:{metadata_server.server_port}")
    wait_for("output", lambda: "started" in world.log("010-train"))
    _Notices.answers |= notice
    assert agent.wait(PATIENCE) == 0
    assert world.wait_status("010-train").exit_kind is ExitKind.PREEMPTED
    assert "about to stop this VM" in world.log("010-train") or "preempted" in notice


def test_a_job_that_breaks_before_the_notice_is_seen_has_no_status(
    world: World, metadata_server: http.server.ThreadingHTTPServer
) -> None:
    """What the platform takes away may break the job first; the next TPU runs it again."""
    world.add_job("010-train", "waits_and_fails")
    host = f"127.0.0.1:{metadata_server.server_port}"
    agent = world.start_agent(metadata_host=host, poll_interval="600")
    wait_for("output", lambda: "started" in world.log("010-train"))
    _Notices.answers |= {"preempted": "TRUE"}
    world.go()
    assert agent.wait(PATIENCE) == 0
    assert world.status("010-train") is None
    assert "(preempted)" in world.agent_log


@pytest.mark.parametrize(
    "answers",
    [
        {"preempted": "FALSE", "maintenance-event": "MIGRATE_ON_HOST_MAINTENANCE"},
        {"preempted": "FALSE"},
        {},
    ],
)
def test_no_other_answer_is_a_notice(
    metadata_server: http.server.ThreadingHTTPServer,
    answers: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{metadata_server.server_port}")
    _Notices.answers = answers
    assert metadata.notice() is None


def test_kill_9_of_the_agent_never_means_two_trainers(world: World) -> None:
    world.add_job("010-train", "waits")
    first = world.start_agent()
    pid = world.wait_starts(1)
    first.kill()
    first.wait()
    assert is_running(pid), "the orphan goes on: that is the case in question"
    second = world.start_agent()
    world.wait_starts(2)
    assert not is_running(pid)
    world.go()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.OK, 1)
    assert [line.split(" ", 1)[1] for line in world.starts()] == ["alone", "alone"]
    assert AgentHello.load(world.mailbox.hello(0)).starts == 2
    assert "checkpoint saved" in world.log("010-train")
    world.finish_agent(second)


def test_a_stubborn_orphan_is_killed_with_its_helpers(world: World) -> None:
    world.add_job("010-train", "stubborn")
    first = world.start_agent()
    pid = world.wait_starts(1)
    helper = int(
        wait_for("helper", lambda: (p := world.scratch / "helper").exists() and p.read_text())
    )
    first.kill()
    first.wait()
    world.start_agent(stop_grace="0.2")
    assert world.wait_status("010-train").exit_kind is ExitKind.OK
    assert not is_running(pid)
    assert not is_running(helper)
    assert [line.split(" ", 1)[1] for line in world.starts()] == ["alone", "alone"]


def test_an_orphan_is_ended_even_when_nothing_may_run(world: World) -> None:
    world.add_job("010-train", "waits")
    first = world.start_agent()
    pid = world.wait_starts(1)
    first.kill()
    first.wait()
    world.release()
    assert world.start_agent().wait(PATIENCE) == 0
    assert not is_running(pid)


def test_a_second_agent_gives_way(world: World) -> None:
    world.add_job("010-train", "waits")
    first = world.start_agent()
    pid = world.wait_starts(1)
    assert world.start_agent().wait(PATIENCE) == 1
    assert is_running(pid)
    world.go()
    world.wait_status("010-train")
    world.finish_agent(first)
    assert len(world.starts()) == 1


def test_an_end_that_could_not_be_reported_is_not_repeated(world: World) -> None:
    world.add_job("010-train", "exits", "41")
    # A file where the job's folder of the mailbox should be: everything but its report works.
    obstacle = Path(world.mailbox.status(0, "010-train")).parent
    obstacle.parent.mkdir(parents=True)
    obstacle.touch()
    first = world.start_agent()
    wait_for("two tries", lambda: world.agent_log.count("; trying again") > 1)
    first.kill()
    first.wait()
    world.start_agent()
    wait_for("two starts", lambda: AgentHello.load(world.mailbox.hello(0)).starts == 2)
    obstacle.unlink()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.BAD_DATA, 0)
    assert "last words" in world.log("010-train")
    assert len(world.starts()) == 1


def test_a_store_that_fails_for_a_while_does_not_disturb_the_job(world: World) -> None:
    world.add_job("010-train", "waits")
    agent = world.start_agent()
    pid = world.wait_starts(1)
    attempt = Path(world.mailbox.root)
    aside = attempt.with_name("aside")
    attempt.rename(aside)
    attempt.touch()  # no longer a folder: every read and write fails
    wait_for("failures", lambda: world.agent_log.count("tried again with the next heartbeat") > 2)
    wait_for("failing looks", lambda: world.agent_log.count("the agent goes on") > 2)
    assert is_running(pid)
    attempt.unlink()
    aside.rename(attempt)
    world.go()
    assert world.wait_status("010-train").exit_kind is ExitKind.OK
    assert world.log("010-train") == "started\ndone\n"
    world.finish_agent(agent)
