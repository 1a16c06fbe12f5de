"""Stored files of a TPU: reservation, attempts, the mailbox of the on-VM agent, the ledger.

A *reservation generation* is one cycle of reserve -> delete. Within it every TPU request is an
*attempt* with a name, a token and a folder (the mailbox) of its own.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.spent import Seconds, Unsaved


class Installation(StoredFile):
    """``installation.json``: the unique id of this store."""

    kind = "installation"

    id: str = Field(description="random; made once")


class StoreIdentity(StoredFile):
    """``identities/<label>.json``: a label under which a store has requested TPUs. Created once."""

    kind = "store-identity"

    label: str
    root: str = Field(description="root URI of the store at that time")
    since: datetime
    is_first: bool = Field(description="no TPU was asked for from the store under another label")


class Reservation(StoredFile):
    """``reservation.json``: everything a later sweep needs to find this generation's TPUs."""

    kind = "reservation"

    run_key: str
    generation: int
    project_id: str
    zones: list[str] = Field(description="every zone in which this generation may create a TPU")
    owner: str
    installation: str | None = Field(
        None, description="label of the store; None: of a program that set no such label"
    )
    dag_id: str
    accelerator_type: str
    slice_count: int = Field(1, description="slices of that type in each request")
    bundle_sha256: str = Field(description="code that the TPU VMs of this generation run")
    created: datetime
    expires_at: datetime = Field(description="no TPU of this generation may live longer")
    delete_grace_seconds: float = Field(
        description="between the two sweeps of the release; here, as giving back must not depend "
        "on a configuration that a later program may not be able to read"
    )
    price_per_chip_hour: float
    currency: str
    price_date: str
    provisioning_model: str = Field("", description="empty: of a program that did not note it")
    on_demand_price_per_chip_hour: float | None = None


class Released(StoredFile):
    """``released.json``: the tombstone. Once it exists, no TPU is created and no job started."""

    kind = "released"

    run_key: str
    generation: int
    released: datetime
    reason: str


class Attempt(StoredFile):
    """``attempt.json``: written before the create call, so that a lost reply leaves a record."""

    kind = "attempt"

    run_key: str
    generation: int
    attempt: int
    token: str = Field(description="fencing token; status and commits carry it")
    zone: str
    queued_resource_id: str
    node_id: str = Field(description="with several slices what their nodes' ids begin with")
    slice_count: int = 1
    created: datetime
    checkpoint_step: int | None = Field(
        None, description="newest checkpoint that was committed when it was asked for"
    )


class AttemptEvent(StrEnum):
    """A turning point in the life of an attempt; each but ``asked`` happens at most once."""

    ASKED = "asked"
    ANSWERED = "answered"
    READY = "ready"
    REFUSED = "refused"
    LOST = "lost"
    CANCELLED = "cancelled"
    GONE = "gone"


class AttemptMark(StoredFile):
    """``marks/<event>.json``: created once, when the event is first noticed.

    ``asked``: a create call is about to be sent; rewritten before each, so that its time bounds
    when the call may take effect. ``answered``: the service answered the create call, so it can no
    longer take effect later. ``refused``: the request yielded no TPU (capacity, quota). ``lost``:
    the TPU was preempted or its heartbeats stopped. ``cancelled``: a person ended the task that was
    working with it, or its time was over. ``gone``: its deletion is confirmed.
    """

    kind = "attempt-mark"

    event: AttemptEvent
    time: datetime
    reason: str = ""
    cause: str = Field(
        "", description="the reason for programs: class of the service's error, or how it was lost"
    )
    operation: str = Field(
        "", description="answered: the service's operation, which can tell why nothing came of it"
    )
    checkpoint_step: int | None = Field(
        None, description="lost: newest checkpoint that was committed by then"
    )
    workers: int | None = Field(None, description="hosts of the slice, known once it is ready")
    node_created: datetime | None = Field(
        None, description="when the service made the node, from which on it is billed at most"
    )


class Lease(StoredFile):
    """``lease.json`` in an attempt's mailbox: a task that will release the TPU is still alive.

    Renewed by the task that waits for the TPU. The VM watches for *changes* by its own clock, so
    clock differences cannot make a lease look old.
    """

    kind = "lease"

    token: str
    sequence: int = Field(description="grows by one with each renewal")
    renewed: datetime


class LogCursor(StoredFile):
    """``watched/<job_id>.<viewer>.json``: how much of a job's log a viewer has shown."""

    kind = "log-cursor"

    chunks: int


class TpuPlace(StoredFile):
    """``places/<project_id>/<zone>.json``: a zone that may have our TPUs; the reaper checks it."""

    kind = "tpu-place"

    project_id: str
    zone: str


class ZoneCooldown(StoredFile):
    """``cooldowns/<project_id>/<zone>.<...>.json``: the zone had no capacity for a TPU type."""

    kind = "zone-cooldown"

    project_id: str
    zone: str
    accelerator_type: str
    provisioning_model: str
    since: datetime
    reason: str


class Holder(StoredFile):
    """``holder.json``: the attempt that may commit checkpoints and results of this run.

    A canceled task revokes its own attempt's right by writing a new token, which no job has.
    """

    kind = "holder"

    sequence: int = Field(description="grows by one with each change")
    generation: int
    attempt: int
    token: str


class JobSpec(StoredFile):
    """``jobs/<job_id>.json`` in an attempt's mailbox: one Python module to run, no shell."""

    kind = "job-spec"

    job_id: str = Field(description="sorts in the order of execution, such as 010-train")
    token: str
    holder_uri: str = Field(description="the run's holder.json, which a commit checks first")
    entry_point: str = Field(description="module of the code bundle, run as python -m")
    arguments: list[str]
    bundle_sha256: str
    max_restarts: int = Field(
        description="how often the agent starts the process again on this VM after it was killed"
    )
    deadline: datetime


class JobSignature(StoredFile):
    """``signatures/<job_id>.<sha256>.json``: proof that the orchestrator wrote a job's file.

    Not in the job's own file: an agent of an earlier version refuses unknown fields.
    """

    kind = "job-signature"

    job_id: str
    spec_sha256: str = Field(description="of the bytes of the job's file")
    hmac_sha256: str = Field(description="of the same bytes, with the reservation's JobKey")


class JobKey(StoredFile):
    """``job_keys/<run_key>/g<generation>.json``: the key that signs the jobs of a reservation.

    Its TPU VMs get it in their metadata; no VM may read this file (docs/guides/deployment.md).
    """

    kind = "job-key"

    run_key: str
    generation: int
    key: str = Field(repr=False, description="secret, hexadecimal")


class ExitKind(StrEnum):
    """Why a job ended; decides whether a retry can help."""

    OK = "ok"
    USER_ERROR = "user_error"
    BAD_DATA = "bad_data"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTED = "preempted"
    KILLED = "killed"
    FAILED = "failed"
    DEADLINE = "deadline"
    HUNG = "hung"

    @property
    def exit_code(self) -> int:
        """Return the process exit code by which a job reports this kind."""
        return _EXIT_CODES[self]

    @classmethod
    def from_exit_code(cls, code: int) -> ExitKind:
        """Return the kind for an exit code; a negative code is the signal that ended a process."""
        if code < 0:
            return cls.KILLED
        return next((kind for kind, known in _EXIT_CODES.items() if known == code), cls.FAILED)


# Outside the range that Python (1, 2, 120), shells (126 and up) and sysexits.h (64 to 78) use.
_EXIT_CODES = {
    ExitKind.OK: 0,
    ExitKind.USER_ERROR: 40,
    ExitKind.BAD_DATA: 41,
    ExitKind.OUT_OF_MEMORY: 42,
    ExitKind.PREEMPTED: 43,
    ExitKind.KILLED: 44,
    ExitKind.FAILED: 45,
    ExitKind.DEADLINE: 46,
    ExitKind.HUNG: 47,
}


class PhaseName(StrEnum):
    """The phases of a job; each has its own limit for the time without progress."""

    OTHER = "other"
    """Starting, joining other hosts, planning, ending: everything without a phase of its own."""
    DATA = "data"
    """Record files are copied and verified; each file advances the count."""
    RESTORE = "restore"
    FIRST_LOOP = "first_loop"
    """The first loop of steps after a start or with a new shape, which compiles."""
    LOOP = "loop"
    """Loops of steps; each advances the count."""
    SAVE = "save"
    EVALUATION = "evaluation"
    """A model is scored or probed; each batch, or shard whose tokens are counted, advances it."""
    MEETING = "meeting"
    """Waiting for the other hosts, each of which has limits of its own."""
    LENDING = "lending"
    """Worker 0 drives this host's chips: no progress is expected here."""


class JobPhase(BaseModel):
    """The current phase of a job; the job writes it, and the agent detects hangs from it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: PhaseName
    entered: datetime
    count: int = Field(0, description="grows with each thing that is done within the phase")
    slowest_loop_seconds: float | None = Field(
        None,
        description="of the last 20 loops of this process; of the first one while it is alone",
    )


class JobLimits(StoredFile):
    """``limits/<job_id>.json``: how long a job may make no progress, and how often it may hang.

    Not in the job's own file: an agent of an earlier version refuses unknown fields.
    """

    kind = "job-limits"

    max_hangs: int = Field(
        description="how often the agents start the job again on this TPU after it hung"
    )
    workers: int = Field(description="hosts whose agents run the job")
    loop_floor_seconds: float = Field(
        description="a loop of steps hangs after this, or after 6 times the slowest of the last 20"
    )
    phase_seconds: dict[PhaseName, float] = Field(
        description="after this without a move a phase hangs; one that is not here never does"
    )


class HangReport(StoredFile):
    """``hangs/<job_id>/<number>.<worker>.json``: where in its code a job hangs, on one host."""

    kind = "hang-report"

    worker: int
    token: str
    job_id: str
    number: int = Field(description="counts the hangs of the job on this TPU, from 1")
    found: datetime
    phase: JobPhase = Field(description="of this host")
    still_seconds: float = Field(description="nothing has moved for so long")
    limit_seconds: float | None = Field(
        description="which is longer than this; null: another host has found the hang"
    )
    step: int | None = Field(description="last step that was reported")
    top: list[str] = Field(description="where the main thread is, innermost call first")
    stacks: str = Field(description="of all threads of all processes of the job on this host")


class AgentHello(StoredFile):
    """``workers/<w>/agent.json``: the agent of one worker is up and has verified its code."""

    kind = "agent-hello"

    worker: int
    token: str
    started: datetime
    bundle_sha256: str
    host: str
    starts: int = Field(description="1 for the first start on this VM, then counting restarts")
    first_started: datetime | None = Field(None, description="of the first start on this VM")
    boot_began: datetime | None = Field(
        None, description="when the first program of ours ran on this VM"
    )
    image_pulled: datetime | None = Field(
        None, description="when boot.py began: the image, if there is one, is there"
    )


class Progress(BaseModel):
    """A job's progress; the trainer writes it, the agent puts it into the heartbeat."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    train_steps: int
    loss: float | None = None
    held_out_loss: float | None = Field(default=None, description="of the last checkpoint scored")
    tokens_per_second: float | None = None
    eta_seconds: float | None = None
    checkpoint_step: int | None = None
    first_step: datetime | None = Field(
        default=None,
        description="when the first loop of steps of this process was done, compiled and all",
    )
    stepping_seconds: float = Field(
        default=0.0, description="time that this process spent in steps, from the first one on"
    )


class JobUsage(Unsaved):
    """One job's use of a worker's time, over all starts of its process on this VM.

    Unsaved steps are lost if nothing more is heard of the job; for a job that has ended they are
    already counted as lost, and 0 here.
    """

    job_id: str
    started: datetime
    first_step: datetime | None = None
    stepping_seconds: float = 0.0
    ended: datetime | None = Field(None, description="when its last process did, once it has")
    seconds: Seconds = Field(
        default_factory=dict,
        description="from started to ended, or to the time of the heartbeat, by what they were "
        "spent on; empty: an agent that kept no account",
    )


class Heartbeat(StoredFile):
    """``workers/<w>/heartbeat.json``: replaced every few seconds while the agent lives."""

    kind = "heartbeat"

    worker: int
    token: str
    time: datetime
    job_id: str | None
    progress: Progress | None
    log_chunks: int = Field(description="log chunks of the current or last job uploaded so far")
    disk_free_bytes: int
    phase: JobPhase | None = Field(None, description="what the job does just now")
    phase_limit_seconds: float | None = Field(
        None, description="for so long the phase may stand still before the agent ends the job"
    )
    usage: list[JobUsage] = Field(
        default_factory=list, description="of every job that this worker has run, oldest first"
    )


class JobStatus(StoredFile):
    """``workers/<w>/<job_id>/status.json``: how the job ended on one worker. Created once."""

    kind = "job-status"

    worker: int
    token: str
    job_id: str
    exit_kind: ExitKind
    exit_code: int
    restarts: int
    message: str = Field(description="last lines of the log when the job failed, else empty")
    started: datetime
    finished: datetime
    log_chunks: int
    usage: JobUsage | None = None


class LedgerEntry(BaseModel):
    """The bill of one attempt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    generation: int
    attempt: int
    zone: str
    accelerator_type: str
    chips: int
    created: datetime = Field(description="when it was asked for")
    ready: datetime | None = Field(description="when it was first seen READY")
    gone: datetime = Field(description="when its deletion was confirmed")
    outcome: str = Field(description="released, lost: ... or refused: ...")
    billed_seconds: float = Field(description="at most, from the node's creation to gone")
    chip_seconds: float
    cost: float = Field(description="chip-seconds times the configured price; an estimate")
    ready_to_first_step_seconds: float | None = Field(
        None, description="from READY, as we saw it, to the first job's first loop of steps"
    )
    stepping_seconds: float = Field(
        0.0, description="time in which worker 0 did steps, as its last heartbeat said"
    )
    idle_share: float | None = Field(
        None, description="share of billed_seconds without a step; None when nothing was billed"
    )
    seconds: Seconds = Field(
        default_factory=dict,
        description="billed_seconds by what they were spent on; empty: of an earlier version",
    )
    unbilled_seconds: Seconds = Field(
        default_factory=dict,
        description="before the node was there, from the end of the attempt before or from reserve",
    )
    loss: str = Field("", description="how its TPU was lost, if it was")


class Ledger(StoredFile):
    """``ledger.json``: usage of a reservation generation. Written when all its TPUs are gone."""

    kind = "ledger"

    run_key: str
    generation: int
    entries: list[LedgerEntry]
    price_per_chip_hour: float
    currency: str
    price_date: str
    provisioning_model: str = ""
    on_demand_price_per_chip_hour: float | None = Field(
        None, description="what the saving by another provisioning model is counted against"
    )


class AttemptBill(Ledger):
    """``bill.json`` in an attempt's mailbox: its part of the ledger, in the ledger's format.

    Written when the attempt ends, if need be by the reaper; the ledger takes precedence.
    """

    kind = "attempt-bill"


class StandingTpu(BaseModel):
    """A TPU with an expired lease, and the position of worker 0's job when a pass first saw it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    zone: str
    job_id: str | None
    step: int | None
    phase: JobPhase | None = None
    looks: int = Field(1, description="passes in a row that have seen it so")
    since: datetime


class ReaperPass(StoredFile):
    """``reaper/<owner>/<project_id>.json``: the reaper's own heartbeat, written by each pass."""

    kind = "reaper-pass"

    owner: str
    project_id: str
    finished: datetime
    host: str
    seen: int = Field(description="TPUs of the owner that it found")
    acted_on: int
    problems: list[str]
    answered: list[str] = Field(
        default_factory=list, description="zones that this or an earlier pass could look at"
    )
    standing: list[StandingTpu] = Field(
        default_factory=list, description="TPUs that nobody looks after, until their jobs move on"
    )
