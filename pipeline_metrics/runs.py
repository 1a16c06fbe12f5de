"""Reads the runs of a store: their outcomes, prepared data, spending and rented TPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pipeline_alerts.mailboxes import Mailbox, Rental
from pipeline_metrics.reading import Reader, Source
from pipeline_store import uris
from pipeline_store.details import ObjectDetails
from pipeline_store.formats import (
    AttemptEvent,
    Heartbeat,
    PartitionManifest,
    PreparedInput,
    RunOutcome,
    RunRecord,
    RunRefusal,
)
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.records.attempts import read_heartbeat
from tpu_lifecycle.records.billed import Spent, spent_since
from tpu_lifecycle.records.budgets import chip_count

SPENDING_SECONDS = 60.0
"""How long the cost of runs that still rent TPUs is cached: computing it reads every mailbox."""


class TpuState(StrEnum):
    """The state of a TPU, by the store's records; values of a label."""

    QUEUED = "queued"
    """Asked for, and not seen READY."""
    BOOTING = "booting"
    """READY, and no agent has reported yet."""
    WORKING = "working"
    """An agent reports a running job."""
    IDLE = "idle"
    """Its agents are up, and no job runs."""
    LEFT_OVER = "left_over"
    """Its run has ended, or it was given up, and its deletion is not confirmed."""


@dataclass(frozen=True)
class SeenTpu:
    """A TPU that is not confirmed to be gone.

    :ivar since: when it entered this state.
    :ivar beat: the last heartbeat of its worker 0.
    """

    state: TpuState
    since: datetime
    chips: int
    beat: Heartbeat | None


@dataclass(frozen=True)
class SeenRun:
    """A run, or the folder of one of its further TPUs.

    :ivar has_ended: whether it has an outcome.
    :ivar outcome: the outcome; None also if it cannot be read.
    :ivar tpus: its TPUs as they were last read; None: they were never readable.
    :ivar manifest: manifest of its own partition.
    """

    record: RunRecord
    has_ended: bool
    outcome: RunOutcome | None
    tpus: list[SeenTpu] | None
    manifest: PartitionManifest | None

    @property
    def is_rental(self) -> bool:
        """Return whether it is only the folder of a further TPU."""
        return self.record.rental_of is not None


@dataclass
class SeenRuns:
    """All runs of the window, oldest first, with refused ones and the cost of TPUs.

    :ivar is_complete: whether each run that may have TPUs is included.
    """

    runs: list[SeenRun] = field(default_factory=list)
    spent: list[Spent] = field(default_factory=list)
    refused: list[RunRefusal] = field(default_factory=list)
    is_complete: bool = True


def read_runs(store: StoreLayout, reader: Reader, since: datetime) -> SeenRuns:
    """Return the runs that began since a given time, and older ones that have not ended.

    Takes one listing; files of a run that has ended and rents no TPU are not read twice.
    """
    listed = reader.attempt(Source.RUNS, lambda: _listed(store))
    if listed is None:
        reader.failed(Source.TPUS, ["the runs cannot be listed"])
        return SeenRuns(is_complete=False)
    seen = SeenRuns()
    for key, files in listed.items():
        run, record = store.run(key), files.get("run")
        if record is None:
            if files["refusal"].modified >= since:
                found = reader.unchanging(Source.RUNS, RunRefusal, run.refusal)
                seen.refused += [found] if found is not None else []
        elif record.modified >= since or "outcome" not in files:
            _read(reader, run, files.get("outcome"), seen)
    seen.runs.sort(key=lambda one: one.record.created.timestamp())
    # The end of a run closes its bill, and changes this key, so that all bills are read again.
    state = frozenset((key, *files.items()) for key, files in listed.items())
    seen.spent = _spent(store, reader, since, state)
    return seen


def _spent(store: StoreLayout, reader: Reader, since: datetime, state: object) -> list[Spent]:
    problems: list[str] = []

    def read() -> list[Spent]:
        return spent_since(store, since, problems=problems)

    key = ("spent", state)
    found = reader.attempt(
        Source.SPENDING, lambda: reader.kept(key, read, seconds=SPENDING_SECONDS)
    )
    if problems:
        reader.failed(Source.SPENDING, problems)
        reader.forget(key)
    return found or []


def _listed(store: StoreLayout) -> dict[str, dict[str, ObjectDetails]]:
    """Return the record, outcome and refusal files of runs, by run key and name."""
    found: dict[str, dict[str, ObjectDetails]] = {}
    for details in uris.list_named(store.runs, "run.json", "outcome.json", "refusal.json"):
        _, key, name = details.uri.rsplit("/", 2)
        found.setdefault(key, {})[name.removesuffix(".json")] = details
    return {key: files for key, files in found.items() if files.keys() & {"run", "refusal"}}


def _read(reader: Reader, run: RunLayout, ended: ObjectDetails | None, seen: SeenRuns) -> None:
    """Read a run and add it to ``seen``."""
    record = reader.unchanging(Source.RUNS, RunRecord, run.record)
    # When a person resumes a run, its outcome is removed and later rewritten: a new identity.
    identity = (ended.modified, ended.bytes) if ended is not None else None
    settled = ("settled", run.root, identity)
    is_settled = identity is not None and reader.is_kept(settled)
    tpus = [] if is_settled else _tpus(reader, run, ended.modified if ended is not None else None)
    if identity is not None and tpus == []:
        reader.kept(settled, lambda: True)
    if record is None:
        if tpus:
            problem = f"{run.record}: nobody can tell whose {len(tpus)} TPU(s) these are"
            reader.failed(Source.TPUS, [problem])
        seen.is_complete = seen.is_complete and tpus == []
        return
    one = SeenRun(
        record=record,
        has_ended=ended is not None,
        outcome=_outcome(reader, run, identity),
        tpus=tpus,
        manifest=_manifest(reader, run, identity),
    )
    seen.runs.append(one)


def _outcome(reader: Reader, run: RunLayout, identity: object) -> RunOutcome | None:
    if identity is None:
        return None
    key = (run.outcome, identity)
    return reader.attempt(
        Source.RUNS, lambda: reader.kept(key, lambda: RunOutcome.load_or_none(run.outcome))
    )


def _manifest(reader: Reader, run: RunLayout, identity: object) -> PartitionManifest | None:
    place = run.prepared_partition

    def read() -> PreparedInput | None:
        return PreparedInput.load_or_none(place)

    prepared = reader.attempt(
        Source.DATA,
        # A cleared task prepares the data again, so it is reread while the run goes on.
        lambda: read() if identity is None else reader.kept((place, identity), read),
    )
    if prepared is None:
        return None
    if identity is None:
        return reader.unchanging(Source.DATA, PartitionManifest, prepared.manifest)
    key, uri = (prepared.manifest, identity), prepared.manifest
    # Its absence is cached too: retention removes the manifests of old versions.
    return reader.attempt(
        Source.DATA, lambda: reader.kept(key, lambda: PartitionManifest.load_or_none(uri))
    )


def _tpus(reader: Reader, run: RunLayout, ended: datetime | None) -> list[SeenTpu] | None:
    """Return the TPUs that may exist, as of the last readable state; None: never readable."""

    def read() -> list[SeenTpu]:
        mailboxes = Rental.read(0, run).mailboxes
        asked = _asks_since(mailboxes) if ended is None else None
        tpus = [_tpu(one, ended, asked) for one in mailboxes if _may_be_there(one)]
        if asked is not None and not any(tpu.state is TpuState.QUEUED for tpu in tpus):
            # Between two attempts: the run still waits, but no chips are requested.
            tpus.append(SeenTpu(TpuState.QUEUED, asked, chips=0, beat=None))
        return tpus

    return reader.newest(Source.TPUS, ("tpus", run.root), read)


def _asks_since(mailboxes: list[Mailbox]) -> datetime | None:
    """Return since when a run has been requesting a TPU without success; None: it requests none.

    This spans all attempts since the last successful one, because each attempt ends after
    ``tpu.queue_timeout_seconds``.
    """
    since = None
    for one in mailboxes:
        if AttemptEvent.READY in one.record.marks or one.released is not None:
            since = None
        elif one.record.was_asked:
            since = since or one.record.attempt.created
    return since


def _may_be_there(mailbox: Mailbox) -> bool:
    # A bill without a confirmed end is from the reaper, which has deleted the TPU.
    return mailbox.may_exist and "bill.json" not in mailbox.changes


def _tpu(mailbox: Mailbox, ended: datetime | None, asked: datetime | None) -> SeenTpu:
    beat = read_heartbeat(mailbox.record, 0)
    state = _state(mailbox, beat, has_ended=ended is not None)
    signs = [*_signs(mailbox, state), *([ended] if ended is not None else [])]
    since = asked if state is TpuState.QUEUED and asked is not None else max(signs)
    return SeenTpu(state, since, chip_count(mailbox.reservation.record), beat)


def _state(mailbox: Mailbox, beat: Heartbeat | None, *, has_ended: bool) -> TpuState:
    if has_ended or mailbox.released is not None or mailbox.record.needs_deletion:
        return TpuState.LEFT_OVER
    if not mailbox.is_rented:
        return TpuState.QUEUED
    if beat is None:
        return TpuState.BOOTING
    return TpuState.IDLE if beat.job_id is None else TpuState.WORKING


def _signs(mailbox: Mailbox, state: TpuState) -> Iterator[datetime]:
    """Yield times of which the latest is when a TPU entered its state."""
    marks = mailbox.record.marks
    yield mailbox.record.attempt.created
    if state is TpuState.LEFT_OVER:
        yield from (mark.time for event, mark in marks.items() if event is not AttemptEvent.READY)
        yield from [mailbox.released] if mailbox.released is not None else []
    if state in (TpuState.BOOTING, TpuState.IDLE, TpuState.WORKING):
        yield marks[AttemptEvent.READY].time
    if state is TpuState.IDLE:
        yield from mailbox.jobs()
