from __future__ import annotations

import itertools
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from pipeline_store import uris
from pipeline_store.formats import (
    AgentHello,
    AttemptEvent,
    ExitKind,
    FormatError,
    HangReport,
    Heartbeat,
    JobLimits,
    JobPhase,
    JobSpec,
    JobStatus,
    PhaseName,
    Progress,
)
from tests.tpu_lifecycle.world import World
from tpu_lifecycle.control import mailbox as mailbox_module
from tpu_lifecycle.control.mailbox import (
    LogReader,
    WorkerReport,
    of_all,
    read_hangs,
    read_worker,
    submit_job,
)
from tpu_lifecycle.control.observe import JobWatch, ReadyWatch, progress_text, recap, reported
from tpu_lifecycle.control.verdict import Outcome
from tpu_lifecycle.records.attempts import AttemptRecord, Loss
from tpu_lifecycle.records.reservation import OpenReservation, ReservationError
from tpu_lifecycle.service.backend import TpuState

JOB = "010-train"


class Mailbox:
    """Writes what agents write."""

    def __init__(self, record: AttemptRecord) -> None:
        self.layout = record.layout
        self.token = record.attempt.token

    def hello(self, worker: int = 0, token: str = "") -> None:
        AgentHello(
            worker=worker,
            token=token or self.token,
            started=datetime.now(UTC),
            bundle_sha256="0" * 64,
            host="vm",
            starts=1,
        ).write(self.layout.hello(worker))

    def beat(
        self,
        worker: int = 0,
        *,
        job_id: str | None = JOB,
        progress: Progress | None = None,
        chunks: int = 0,
        token: str = "",
        clock: timedelta = timedelta(0),
        phase: JobPhase | None = None,
    ) -> None:
        Heartbeat(
            worker=worker,
            token=token or self.token,
            time=datetime.now(UTC) + clock,
            job_id=job_id,
            progress=progress,
            log_chunks=chunks,
            disk_free_bytes=1,
            phase=phase,
            phase_limit_seconds=60.0 if phase else None,
        ).write(self.layout.heartbeat(worker))

    def log(self, chunk: int, text: str) -> None:
        uris.write(self.layout.log_chunk(0, JOB, chunk), text.encode())

    def end(self, worker: int = 0, kind: ExitKind = ExitKind.OK, chunks: int = 0) -> None:
        JobStatus(
            worker=worker,
            token=self.token,
            job_id=JOB,
            exit_kind=kind,
            exit_code=kind.exit_code,
            restarts=0,
            message="last words",
            started=datetime.now(UTC),
            finished=datetime.now(UTC),
            log_chunks=chunks,
        ).create(self.layout.status(worker, JOB))


def watch(world: World, reservation: OpenReservation, record: AttemptRecord) -> JobWatch:
    log = LogReader(record.layout, JOB, "try1")
    return JobWatch(world.backend, reservation, record, JOB, reservation.wait_deadline, log)


def test_a_job_is_followed_to_its_end(world: World) -> None:
    reservation = world.reserve({"tpu.accelerator_type": "v5litepod-16"})
    record = world.obtain_ready(reservation)
    assert record.marks["ready"].workers == 4  # type: ignore[index]
    mailbox, looking = Mailbox(record), watch(world, reservation, record)
    assert looking.look().verdict.outcome is Outcome.WAITING
    for worker in range(4):
        mailbox.hello(worker)
    mailbox.log(0, "first line\nsecond line\n")
    mailbox.beat(progress=Progress(step=3, train_steps=10, loss=2.5), chunks=1)
    seen = looking.look()
    assert seen.log_lines == ("first line", "second line")
    assert seen.progress is not None
    assert progress_text(seen.progress) == "step 3/10 (30%), loss 2.500"
    assert looking.look().log_lines == ()
    for worker in range(3):
        mailbox.end(worker, chunks=2)
    assert looking.look().verdict.outcome is Outcome.WAITING
    mailbox.log(1, "third line\n")
    mailbox.end(3)
    seen = looking.look()
    assert seen.verdict.outcome is Outcome.SUCCEEDED
    assert seen.log_lines == ("third line",)
    world.release(reservation)


def test_a_lost_tpu_and_a_released_one_are_told_apart(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    looking = watch(world, reservation, record)
    world.emulator.admin.preempt(record.attempt.node_id)
    assert looking.look().verdict.outcome is Outcome.LOST
    world.release(reservation)
    assert looking.look().verdict.outcome is Outcome.RELEASED


def test_one_answer_that_there_is_no_node_is_not_believed(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    looking = watch(world, reservation, record)
    fail_next = world.emulator.admin.fail_next
    for _ in range(2):
        fail_next("GetNode", code="NOT_FOUND")
        assert looking.look().verdict.outcome is Outcome.WAITING
        assert looking.look().verdict.outcome is Outcome.WAITING
    fail_next("GetNode", code="NOT_FOUND")
    assert world.provisioner(reservation).obtain().number == 1
    fail_next("GetNode", code="NOT_FOUND", count=2)
    assert looking.look().verdict.outcome is Outcome.WAITING
    assert looking.look().verdict.outcome is Outcome.LOST
    world.release(reservation)


def test_all_hosts_of_the_type_are_watched_however_few_the_first_answer_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve({"tpu.accelerator_type": "v5litepod-32", "tpu.slice_count": 2})
    record = world.provisioner(reservation).obtain()
    partial = TpuState(record.name, "ACTIVE", "READY", workers=1)
    with monkeypatch.context() as patch:
        patch.setattr(world.backend, "describe", lambda name: partial)
        watching = ReadyWatch(world.backend, reservation, record, reservation.wait_deadline)
        assert watching.look().verdict.outcome is Outcome.READY
    assert watching.record.marks[AttemptEvent.READY].workers == 16
    world.release(reservation)


def test_the_files_of_many_hosts_are_read_at_once() -> None:
    # Each waits for the others: one after the other none would come to its end.
    together = threading.Barrier(8)

    def read(worker: int) -> int:
        together.wait(timeout=30)
        return worker * worker

    assert of_all(range(8), read) == {worker: worker * worker for worker in range(8)}
    assert of_all(range(1), lambda worker: worker) == {0: 0}


def test_the_service_being_away_is_no_reason_to_lose_the_job(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    looking = watch(world, reservation, record)
    world.emulator.admin.fail_next("GetQueuedResource", code="UNAVAILABLE", count=4)
    seen = looking.look()
    assert (seen.tpu, seen.verdict.outcome) == (None, Outcome.WAITING)
    world.release(reservation)


def test_a_wrong_clock_on_the_vm_is_no_silence_but_silence_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    mailbox, looking = Mailbox(record), watch(world, reservation, record)
    mailbox.beat(clock=timedelta(days=-1))
    assert looking.look().verdict.outcome is Outcome.WAITING
    timeout = reservation.config.tpu.heartbeat_timeout_seconds
    clock = itertools.count(time.monotonic(), reservation.config.tpu.poll_interval)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    outcomes = []
    while not outcomes or outcomes[-1] is Outcome.WAITING:
        verdict = looking.look().verdict
        outcomes.append(verdict.outcome)
    assert len(outcomes) > timeout / reservation.config.tpu.poll_interval / 3
    assert verdict.outcome is Outcome.LOST
    assert verdict.cause == "silent"
    assert "worker 0 gave no sign" in verdict.reason
    monkeypatch.undo()
    world.release(reservation)


@pytest.mark.parametrize("moves", [False, True])
def test_an_agent_that_beats_and_does_not_end_a_hung_job_means_a_lost_tpu(
    world: World, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    mailbox, looking = Mailbox(record), watch(world, reservation, record)
    tpu = reservation.config.tpu
    clock = itertools.count(time.monotonic(), tpu.poll_interval)
    enough = int((60.0 + tpu.heartbeat_timeout_seconds) / tpu.poll_interval) + 3
    verdicts = []
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(clock))
        for look in range(enough):
            count = look if moves else 0
            saving = JobPhase(name=PhaseName.SAVE, entered=record.attempt.created, count=count)
            mailbox.beat(phase=saving)
            verdicts.append(looking.look().verdict)
    world.release(reservation)
    assert verdicts[1].outcome is Outcome.WAITING
    last = verdicts[-1]
    found = (Outcome.WAITING, "") if moves else (Outcome.LOST, Loss.HUNG)
    assert (last.outcome, last.cause) == found


@pytest.mark.parametrize("beats", ["nothing", "another job", "another job that moves", "ours"])
def test_an_agent_that_beats_and_does_not_begin_the_job_means_a_lost_tpu(
    world: World, monkeypatch: pytest.MonkeyPatch, beats: str
) -> None:
    reservation = world.reserve({"hang.other_seconds": 60.0})
    record = world.obtain_ready(reservation)
    mailbox, looking = Mailbox(record), watch(world, reservation, record)
    tpu = reservation.config.tpu
    clock = itertools.count(time.monotonic(), tpu.poll_interval)
    enough = int((60.0 + tpu.heartbeat_timeout_seconds) / tpu.poll_interval) + 3
    verdicts = []
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(clock))
        for look in range(enough):
            count = look if beats.endswith("moves") else 0
            data = JobPhase(name=PhaseName.DATA, entered=record.attempt.created, count=count)
            job_id = {"nothing": None, "ours": JOB}.get(beats, "005-other")
            mailbox.beat(job_id=job_id, phase=data if beats.startswith("another") else None)
            verdicts.append(looking.look().verdict)
    world.release(reservation)
    assert verdicts[1].outcome is Outcome.WAITING
    last = verdicts[-1]
    if beats in ("nothing", "another job"):
        assert (last.outcome, last.cause) == (Outcome.LOST, Loss.HUNG)
        assert "did not begin the job" in last.reason
    else:
        assert last.outcome is Outcome.WAITING


def test_a_job_has_its_limits_beside_it(world: World) -> None:
    changes = {"tpu.accelerator_type": "v5litepod-16", "hang.save_seconds": 7.0}
    reservation = world.reserve(changes | {"budget.max_hangs": 5})
    record = world.obtain_ready(reservation)
    assert submit_job(reservation, record, job_id=JOB, entry_point="training.train", arguments=[])
    limits = JobLimits.load(record.layout.limits(JOB))
    assert (limits.max_hangs, limits.workers, limits.loop_floor_seconds) == (5, 4, 120.0)
    assert limits.phase_seconds[PhaseName.SAVE] == 7.0
    # Of the loops there is a rule; a host that lends its chips never hangs by itself.
    assert set(PhaseName) - limits.phase_seconds.keys() == {PhaseName.LOOP, PhaseName.LENDING}
    assert limits.phase_seconds[PhaseName.MEETING] == max(limits.phase_seconds.values())
    world.release(reservation)


def test_hangs_are_read_by_number(world: World) -> None:
    record = world.reserve().new_attempt(1, "us-central1-a")
    phase = JobPhase(name=PhaseName.LOOP, entered=datetime.now(UTC))
    for number, worker, token in ((1, 1, ""), (1, 0, ""), (2, 0, ""), (3, 0, "another")):
        HangReport(
            worker=worker,
            token=token or record.attempt.token,
            job_id=JOB,
            number=number,
            found=datetime.now(UTC),
            phase=phase,
            still_seconds=7,
            limit_seconds=6,
            step=3,
            top=[],
            stacks="",
        ).create(record.layout.hang(JOB, number, worker))
    found = [[(one.number, one.worker) for one in hang] for hang in read_hangs(record)]
    assert found == [[(1, 0), (1, 1)], [(2, 0)]]


def test_a_store_that_was_away_is_no_silence_of_the_workers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    mailbox, looking = Mailbox(record), watch(world, reservation, record)
    mailbox.beat()
    assert looking.look().verdict.outcome is Outcome.WAITING
    hour_later = time.monotonic() + 3600.0
    monkeypatch.setattr(time, "monotonic", lambda: hour_later)
    assert looking.look().verdict.outcome is Outcome.WAITING
    monkeypatch.undo()
    world.release(reservation)


def test_what_an_orphan_writes_counts_for_nothing(world: World) -> None:
    record = world.reserve().new_attempt(1, "us-central1-a")
    mailbox = Mailbox(record)
    mailbox.hello(token="another")  # noqa: S106
    mailbox.beat(token="another")  # noqa: S106
    report = read_worker(record, JOB, 0)
    assert (report.heartbeat, report.status) == (None, None)


def test_a_damaged_heartbeat_is_none_and_a_damaged_status_an_error(world: World) -> None:
    record = world.reserve().new_attempt(1, "us-central1-a")
    mailbox = Mailbox(record)
    mailbox.hello()
    uris.write(record.layout.heartbeat(0), b"not json")
    report = read_worker(record, JOB, 0)
    assert (report.hello, report.heartbeat) == (True, None)
    assert recap(record, JOB) == [f"whole log: {record.layout.log(0, JOB)}"]
    uris.write(record.layout.status(0, JOB), b"not json")
    with pytest.raises(FormatError, match=JOB):
        read_worker(record, JOB, 0)


def test_each_chunk_of_the_log_is_shown_once_also_after_a_restart(world: World) -> None:
    record = world.reserve().new_attempt(1, "us-central1-a")
    mailbox = Mailbox(record)
    mailbox.log(0, "a\n")
    mailbox.beat(chunks=1)
    reader = LogReader(record.layout, JOB, "try1")
    assert reader.read(read_worker(record, JOB, 0)) == ["a"]
    # Not yet confirmed as shown: a restart right now shows it again rather than never.
    assert LogReader(record.layout, JOB, "try1").read(read_worker(record, JOB, 0)) == ["a"]
    assert reader.read(read_worker(record, JOB, 0)) == []
    mailbox.log(1, "b\n")
    mailbox.beat(chunks=2)
    restarted = LogReader(record.layout, JOB, "try1")
    assert restarted.read(read_worker(record, JOB, 0)) == ["b"]
    # Another viewer, such as the task's next try, sees all of it.
    other = LogReader(record.layout, JOB, "try2")
    assert other.read(read_worker(record, JOB, 0)) == ["a", "b"]
    # The log of another job is not this job's.
    mailbox.beat(job_id="020-evaluate", chunks=9)
    assert other.read(read_worker(record, JOB, 0)) == []
    assert other.read(WorkerReport(hello=True, heartbeat=None, status=None)) == []


def test_of_a_long_log_that_nobody_read_only_the_end_is_shown(world: World) -> None:
    record = world.reserve().new_attempt(1, "us-central1-a")
    mailbox = Mailbox(record)
    count = mailbox_module.MAX_CHUNKS_AT_END + 3
    for chunk in range(count):
        mailbox.log(chunk, f"{chunk}\n")
    mailbox.end(chunks=count)
    left_out, *lines = LogReader(record.layout, JOB, "try1").read(read_worker(record, JOB, 0))
    assert "3 part(s) of the log are left out" in left_out
    assert record.layout.log(0, JOB) in left_out
    assert lines == [str(chunk) for chunk in range(3, count)]


def test_a_log_that_outran_its_viewer_is_shown_in_portions(world: World) -> None:
    record = world.reserve().new_attempt(1, "us-central1-a")
    mailbox = Mailbox(record)
    portion = mailbox_module.MAX_CHUNKS_PER_LOOK
    for chunk in range(portion + 3):
        mailbox.log(chunk, f"{chunk}\n")
    mailbox.beat(chunks=portion + 3)
    reader = LogReader(record.layout, JOB, "try1")
    looks = [reader.read(read_worker(record, JOB, 0)) for _ in range(3)]
    assert [len(lines) for lines in looks] == [portion, 3, 0]
    assert list(itertools.chain(*looks)) == [str(chunk) for chunk in range(portion + 3)]


def test_the_end_of_the_chip_hours_is_computed_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve({"budget.max_chip_hours": 0.5})
    looking = watch(world, reservation, world.obtain_ready(reservation))
    reads = []
    read = OpenReservation.attempts

    def count(self: OpenReservation) -> list[AttemptRecord]:
        reads.append(1)
        return read(self)

    monkeypatch.setattr(OpenReservation, "attempts", count)
    for _ in range(3):
        assert looking.look().verdict.outcome is Outcome.WAITING
    assert len(reads) == 1
    monkeypatch.undo()
    world.release(reservation)


def test_a_jobs_own_reports_can_be_told_without_the_service(world: World) -> None:
    reservation = world.reserve()
    record = reservation.new_attempt(1, "us-central1-a").mark(AttemptEvent.READY, workers=2)
    mailbox = Mailbox(record)
    mailbox.end(0)
    assert reported(reservation, record, JOB).outcome is Outcome.WAITING
    mailbox.end(1)
    reservation.release("test")
    assert reported(reservation, record, JOB).outcome is Outcome.SUCCEEDED


def test_a_job_is_submitted_once(world: World) -> None:
    reservation = world.reserve()
    record = reservation.new_attempt(1, "us-central1-a")

    def submit(*arguments: str) -> bool:
        return submit_job(
            reservation, record, job_id=JOB, entry_point="training.train", arguments=arguments
        )

    assert submit("--run", "x")
    assert not submit("--run", "x")
    with pytest.raises(ReservationError, match="different job"):
        submit("--run", "y")
    spec = JobSpec.load(record.layout.job(JOB))
    assert spec.token == record.attempt.token
    assert spec.holder_uri == reservation.run.holder
    assert spec.deadline == reservation.job_deadline


def test_how_far_a_job_came_can_be_told_afterwards(world: World) -> None:
    record = world.reserve().new_attempt(1, "us-central1-a")
    where = f"whole log: {record.layout.log(0, JOB)}"
    assert recap(record, JOB) == [where]
    mailbox = Mailbox(record)
    mailbox.log(0, "old\n")
    mailbox.log(1, "".join(f"line {number}\n" for number in range(100)))
    mailbox.beat(progress=Progress(step=1, train_steps=2), chunks=2)
    lines = recap(record, JOB)
    assert (lines[0], lines[1], lines[-2], lines[-1]) == (
        "step 1/2 (50%)",
        "line 80",
        "line 99",
        where,
    )
    mailbox.beat(job_id="020-evaluate", chunks=2)
    assert recap(record, JOB) == [where]


def test_progress_in_words() -> None:
    progress = Progress(
        step=120,
        train_steps=400,
        loss=5.12345,
        held_out_loss=5.2,
        tokens_per_second=3400.4,
        eta_seconds=3725.0,
        checkpoint_step=100,
    )
    assert progress_text(progress) == (
        "step 120/400 (30%), loss 5.123, held-out loss 5.200, 3,400 tokens/s, 1:02:05 left, "
        "checkpoint at step 100"
    )
    assert progress_text(Progress(step=1, train_steps=2)) == "step 1/2 (50%)"
