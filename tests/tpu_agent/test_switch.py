"""The switch's own loops, with a clock that they turn themselves by sleeping."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_store.formats import (
    ExitKind,
    Heartbeat,
    JobPhase,
    JobStatus,
    Lease,
    PhaseName,
    Progress,
    Released,
)
from pipeline_store.layout import AttemptLayout
from tests.tpu_agent.world import TOKEN
from tpu_agent import self_delete, switch
from tpu_agent.dead_man import DeadMan
from tpu_agent.state import JobFolder, JobRecord, WorkDir
from tpu_agent.switch import Switch, SwitchConfig

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
TPU_NAME = "projects/p/locations/z/queuedResources/q"
ENDPOINT = "unix:/nowhere"


class TheEndError(BaseException):
    """Ends a loop that has no end; nothing that the loop is ready for."""


@dataclass
class Vm:
    """A VM whose time passes only while its switch sleeps."""

    folder: Path
    now: float = 0.0
    ends: float = 300.0
    slept: list[float] = field(default_factory=list)
    events: list[tuple[float, Callable[[], Any]]] = field(default_factory=list)
    every_time: Callable[[], Any] = lambda: None
    running: Callable[[], list[int]] = list
    deletions: list[float] = field(default_factory=list)
    ended_jobs: list[tuple[float, float]] = field(default_factory=list)
    refusal: Exception | None = None
    stubborn: Exception | None = None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        while self.events and self.events[0][0] <= self.now:
            self.events.pop(0)[1]()
        self.every_time()
        if self.now >= self.ends:
            raise TheEndError

    def utc(self, _zone: object) -> datetime:
        return NOON + timedelta(seconds=self.now)

    def delete(self, *what: object) -> str:
        assert what == (TPU_NAME, "n", (), ENDPOINT)
        self.deletions.append(self.now)
        if self.refusal:
            raise self.refusal
        return "the service deletes it"

    def end_jobs(self, work_dir: Path, grace: float) -> list[int]:
        assert work_dir == self.work_dir.root
        self.ended_jobs.append((self.now, grace))
        if self.stubborn:
            raise self.stubborn
        return []

    @property
    def work_dir(self) -> WorkDir:
        return WorkDir(self.folder / "work")

    @property
    def mailbox(self) -> AttemptLayout:
        return AttemptLayout(str(self.folder / "mailbox"))

    @property
    def released(self) -> str:
        return str(self.folder / "released.json")

    def switch(self, **changes: Any) -> Switch:
        fields: dict[str, Any] = {
            "tpu_name": TPU_NAME,
            "node_id": "n",
            "tpu_api_endpoint": ENDPOINT,
            "tpu_deletions": (),
            "mailbox": self.mailbox,
            "released_uri": self.released,
            "worker": 0,
            "expires_at": NOON + timedelta(days=1),
            "lease_timeout": 200.0,
            "work_dir": self.work_dir.root,
        }
        config = SwitchConfig(**fields | changes)
        switch = Switch(config)
        switch._dead_man = DeadMan(config.lease_timeout, clock=self.monotonic)
        return switch

    def watch(self, switch: Switch) -> None:
        """Let it act on what is known of the TPU, and learn nothing new."""
        with pytest.raises(TheEndError):
            switch.run()

    def look(self, switch: Switch) -> str | None:
        """Let it look until the time is over; return why the TPU should go."""
        with pytest.raises(TheEndError):
            switch._look_for_ever()
        return switch._dead_man.reason

    def job(self, job_id: str, *, outcome: JobStatus | None = None) -> JobFolder:
        folder = self.work_dir.job(job_id)
        JobRecord(started=NOON, starts=1, outcome=outcome).write(folder.record)
        folder.log.touch()
        return folder


@pytest.fixture
def vm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vm:
    vm = Vm(tmp_path)
    (tmp_path / "mailbox").mkdir()
    clock = SimpleNamespace(monotonic=vm.monotonic, sleep=vm.sleep)
    monkeypatch.setattr(switch, "time", clock)
    monkeypatch.setattr(switch, "datetime", SimpleNamespace(now=vm.utc))
    monkeypatch.setattr(switch, "own_tpu", SimpleNamespace(delete=vm.delete))
    played = SimpleNamespace(marked=lambda _: vm.running(), end=vm.end_jobs)
    monkeypatch.setattr(switch, "processes", played)
    return vm


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the switch knows comes from the test only."""
    monkeypatch.setattr(Switch, "_look_for_ever", lambda self: None)


def forgotten(switch: Switch, reason: str | None = "it is forgotten") -> Callable[[], None]:
    return lambda: setattr(switch._dead_man, "reason", reason)


# What it does when the TPU should go


@pytest.mark.usefixtures("quiet")
def test_the_expiry_is_met_to_the_tick(vm: Vm, caplog: pytest.LogCaptureFixture) -> None:
    vm.watch(vm.switch(expires_at=NOON + timedelta(seconds=100)))
    assert vm.deletions[0] == 100.0
    expiry = "it expired at 2026-01-31 12:01:40 UTC"
    assert f"this VM deletes its own TPU {TPU_NAME}: {expiry}" in caplog.text
    assert "the service deletes it" in caplog.text


@pytest.mark.usefixtures("quiet")
def test_before_that_and_without_a_reason_nothing_happens(vm: Vm) -> None:
    vm.watch(vm.switch(expires_at=NOON + timedelta(seconds=vm.ends + 1)))
    assert (vm.deletions, vm.ended_jobs) == ([], [])
    assert set(vm.slept) == {switch.TICK_SECONDS}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("refusal", [None, PermissionError("denied")])
def test_it_asks_again_and_again_with_pauses_that_grow_to_a_minute(
    vm: Vm, refusal: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    vm.refusal = refusal
    vm.watch(vm.switch(expires_at=NOON))
    assert vm.deletions == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    # Each time: a job may have been started again since.
    assert vm.ended_jobs == [(time, switch.SAVE_SECONDS) for time in vm.deletions]
    assert caplog.text.count("this VM deletes its own TPU") == 1
    again = "deleting this TPU failed, it is tried again: PermissionError('denied')"
    assert caplog.text.count(again) == (len(vm.deletions) if refusal else 0)


@pytest.mark.usefixtures("quiet")
def test_who_comes_back_in_time_keeps_the_tpu(vm: Vm, caplog: pytest.LogCaptureFixture) -> None:
    watching = vm.switch()
    vm.refusal = PermissionError("denied")
    vm.events = [
        (10, forgotten(watching)),
        (20, forgotten(watching, None)),
        (50, forgotten(watching, "it is forgotten again")),
    ]
    vm.ends = 55.0
    vm.watch(watching)
    # Forgotten anew, it is in a hurry anew, and says so.
    assert vm.deletions == [10, 11, 13, 17, 50, 51, 53]
    assert f"{TPU_NAME}: it is forgotten\n" in caplog.text
    assert f"{TPU_NAME}: it is forgotten again\n" in caplog.text


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("worker", "headstart"), [(0, 0.0), (3, 3.0), (500, 60.0)])
def test_the_first_worker_goes_first(vm: Vm, worker: int, headstart: float) -> None:
    vm.watch(vm.switch(expires_at=NOON, worker=worker))
    assert vm.deletions[:2] == [headstart, headstart + 1.0]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("needs", "waited"), [(2.0, 2.0), (99.0, switch.AGENT_SECONDS)])
def test_the_agent_gets_some_time_to_end_its_job(vm: Vm, needs: float, waited: float) -> None:
    vm.running = lambda: [4711] if vm.now < needs else []
    vm.watch(vm.switch(expires_at=NOON))
    assert vm.deletions[0] == waited
    assert vm.ended_jobs[0] == (waited, 25.0)
    # Once: nobody else ends it the second time.
    assert vm.deletions[1] == waited + 1.0


@pytest.mark.usefixtures("quiet")
def test_a_job_that_does_not_end_keeps_no_tpu(vm: Vm, caplog: pytest.LogCaptureFixture) -> None:
    vm.stubborn = RuntimeError("4711 survives SIGKILL")
    vm.watch(vm.switch(expires_at=NOON))
    assert vm.deletions[0] == 0.0
    assert "4711 survives SIGKILL" in caplog.text


@pytest.mark.usefixtures("quiet")
def test_what_cannot_be_prepared_keeps_no_tpu(
    vm: Vm, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_self: WorkDir) -> list[JobFolder]:
        raise OSError("the disk is broken")

    monkeypatch.setattr(WorkDir, "jobs", refuse)
    vm.watch(vm.switch(expires_at=NOON))
    assert vm.deletions[:2] == [0.0, 1.0]
    assert "the disk is broken; the TPU is deleted all the same" in caplog.text


@pytest.mark.usefixtures("quiet")
def test_the_logs_of_unfinished_jobs_say_why(vm: Vm, caplog: pytest.LogCaptureFixture) -> None:
    status = JobStatus(
        worker=0,
        token=TOKEN,
        job_id="010-done",
        exit_kind=ExitKind.OK,
        exit_code=0,
        restarts=0,
        message="",
        started=NOON,
        finished=NOON,
        log_chunks=0,
    )
    done, damaged = vm.job("010-done", outcome=status), vm.job("020-damaged")
    Path(damaged.record).write_text("{")
    vm.work_dir.job("030-unknown").root.mkdir()
    running = vm.job("040-train")
    watching = vm.switch()
    vm.events = [(1, forgotten(watching))]
    vm.watch(watching)
    note = f"[agent] this VM deletes its own TPU {TPU_NAME}: it is forgotten\n"
    assert running.log.read_text() == note
    assert (done.log.read_text(), damaged.log.read_text()) == ("", "")
    assert str(damaged.log) in caplog.text


# What it makes of what it sees


@pytest.mark.parametrize(("lease_timeout", "poll"), [(2.0, 0.1), (200.0, 10.0), (7200.0, 30.0)])
def test_it_looks_often_enough_for_its_timeout(vm: Vm, lease_timeout: float, poll: float) -> None:
    vm.look(vm.switch(lease_timeout=lease_timeout))
    assert set(vm.slept) == {poll}


def test_a_lease_that_nobody_renews_is_a_reason_at_the_timeout(vm: Vm) -> None:
    watching = vm.switch()
    vm.ends = 200.0
    assert vm.look(watching) is None
    vm.ends = 210.0
    assert vm.look(watching) == "nobody has renewed its lease for 200 s and no job runs"


def renew(vm: Vm) -> None:
    Lease(token=TOKEN, sequence=int(vm.now), renewed=NOON).write(vm.mailbox.lease)


def test_a_renewed_lease_is_none(vm: Vm) -> None:
    vm.every_time = lambda: renew(vm)
    vm.ends = 1000.0
    assert vm.look(vm.switch()) is None


def test_a_tombstone_is_one_even_so(vm: Vm) -> None:
    vm.every_time = lambda: renew(vm)
    tombstone = Released(run_key="0a1b2c3d4e5f", generation=1, released=NOON, reason="test")
    tombstone.create(vm.released)
    reason = vm.look(vm.switch())
    assert reason is not None
    assert reason.startswith("the TPU was released ")


def assert_it_acts_once_nothing_moves(vm: Vm, move: Callable[[], object]) -> None:
    """Look for 1000 s in which the job moves, and 300 s in which it does not."""
    vm.every_time = move
    vm.ends = 1000.0
    watching = vm.switch()
    assert vm.look(watching) is None
    vm.ends = 1300.0
    reason = vm.look(watching)
    assert reason is not None
    assert "its job has not moved for " in reason


def test_a_job_that_makes_steps_is_none_and_one_that_hangs_is_one(vm: Vm) -> None:
    folder = vm.job("010-train")
    vm.running = lambda: [4711]

    def step() -> None:
        word = Progress(step=int(min(vm.now, 1000)), train_steps=2000)
        folder.progress(1).write_text(word.model_dump_json())

    assert_it_acts_once_nothing_moves(vm, step)


def test_an_evaluation_moves_without_steps(vm: Vm) -> None:
    folder = vm.job("020-evaluate")
    vm.running = lambda: [4711]

    def score() -> None:
        count = int(min(vm.now, 1000))
        word = JobPhase(name=PhaseName.EVALUATION, entered=NOON, count=count)
        folder.phase(1).write_text(word.model_dump_json())

    assert_it_acts_once_nothing_moves(vm, score)


def test_a_worker_that_lends_its_chips_goes_by_the_step_of_the_first(vm: Vm) -> None:
    vm.job("010-train")
    vm.running = lambda: [4711]

    def beat() -> None:
        Heartbeat(
            worker=0,
            token=TOKEN,
            time=NOON,
            job_id="010-train",
            progress=Progress(step=int(min(vm.now, 1000)), train_steps=2000),
            log_chunks=0,
            disk_free_bytes=1,
        ).write(vm.mailbox.heartbeat(0))

    vm.every_time = beat
    vm.ends = 1000.0
    watching = vm.switch(worker=1)
    assert vm.look(watching) is None
    vm.ends = 1300.0
    reason = vm.look(watching)
    assert reason is not None
    assert "its job has not moved for " in reason


def test_a_silent_store_is_none(vm: Vm, caplog: pytest.LogCaptureFixture) -> None:
    Path(vm.mailbox.root).rmdir()
    Path(vm.mailbox.root).touch()  # no longer a folder: every read fails
    vm.ends = 2000.0
    assert vm.look(vm.switch()) is None
    assert f"reading {vm.mailbox.lease} and looking for {vm.released} failed" in caplog.text
    assert "the switch goes on and asks again" in caplog.text


def test_a_damaged_record_of_the_agent_is_none(vm: Vm, caplog: pytest.LogCaptureFixture) -> None:
    Path(vm.job("010-train").record).write_text("{")
    vm.ends = 2000.0
    assert vm.look(vm.switch()) is None
    assert "looking failed; the switch goes on and looks again" in caplog.text


# How it is started


def test_the_command_line_says_it_all(
    vm: Vm, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[Switch] = []

    def run(one: Switch) -> None:
        started.append(one)

    monkeypatch.setattr(Switch, "run", run)
    command = ["self_delete", "--tpu-name", TPU_NAME, "--node-id", "n"]
    command += ["--tpu-api-endpoint", ENDPOINT, "--mailbox", vm.mailbox.root]
    command += ["--released-uri", vm.released, "--worker", "0"]
    command += ["--expires-at", (NOON + timedelta(days=1)).isoformat()]
    command += ["--lease-timeout", "200", "--work-dir", str(vm.work_dir.root)]
    monkeypatch.setattr("sys.argv", command)
    with caplog.at_level(logging.INFO):
        self_delete.main()
    assert [one._config for one in started] == [vm.switch()._config]
    assert f"{TPU_NAME} expires at" in caplog.text
