"""Reads the runs of a store: how they ended, what they prepared and spent, what they rent now."""

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
"""For so long the bills of runs that still rent are not computed anew: that reads every mailbox."""


class TpuState(StrEnum):
    """What a TPU is doing, by the store's records; a label's values."""

    QUEUED = "queued"
    """Asked for, and not seen READY."""
    BOOTING = "booting"
    """READY, and no agent has reported yet."""
    WORKING = "working"
    """An agent says that a job runs."""
    IDLE = "idle"
    """Its agents are up, and no job runs."""
    LEFT_OVER = "left_over"
    """Its run has ended, or it was given up, and its end is not confirmed."""


@dataclass(frozen=True)
class SeenTpu:
    """A TPU that is not confirmed to be gone.

    :ivar since: when it came into this state.
    :ivar beat: the last heartbeat of its worker 0.
    """

    state: TpuState
    since: datetime
    chips: int
    beat: Heartbeat | None


@dataclass(frozen=True)
class SeenRun:
    """A run, or the folder of a further TPU of one.

    :ivar has_ended: whether it has an outcome.
    :ivar outcome: None also if it cannot be read.
    :ivar tpus: as they were last read; None: they never could be.
    :ivar manifest: of its own partition.
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
    """All runs of the window, oldest first, those that were refused, and what their TPUs cost.

    :ivar is_complete: whether each run that may have TPUs is among them.
    """

    runs: list[SeenRun] = field(default_factory=list)
    spent: list[Spent] = field(default_factory=list)
    refused: list[RunRefusal] = field(default_factory=list)
    is_complete: bool = True


def read_runs(store: StoreLayout, reader: Reader, since: datetime) -> SeenRuns:
    """Return the runs that began since a moment, and older ones that have not ended.

    One listing; of a run that has ended and rents nothing nothing is read a second time.
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
    # When a run has ended its bill is closed, and all are looked at at once.
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
    """Return the files that say what a run is and how it ended, by key and name."""
    found: dict[str, dict[str, ObjectDetails]] = {}
    for details in uris.list_named(store.runs, "run.json", "outcome.json", "refusal.json"):
        _, key, name = details.uri.rsplit("/", 2)
        found.setdefault(key, {})[name.removesuffix(".json")] = details
    return {key: files for key, files in found.items() if files.keys() & {"run", "refusal"}}


def _read(reader: Reader, run: RunLayout, ended: ObjectDetails | None, seen: SeenRuns) -> None:
    """Add a run to what is seen."""
    record = reader.unchanging(Source.RUNS, RunRecord, run.record)
    # An outcome is removed when a person lets a run go on, and written again: another identity.
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
        # Whoever clears the task prepares anew, so of a run that goes on it is read again.
        lambda: read() if identity is None else reader.kept((place, identity), read),
    )
    if prepared is None:
        return None
    if identity is None:
        return reader.unchanging(Source.DATA, PartitionManifest, prepared.manifest)
    key, uri = (prepared.manifest, identity), prepared.manifest
    # Also that there is none any more: retention removes those of old versions.
    return reader.attempt(
        Source.DATA, lambda: reader.kept(key, lambda: PartitionManifest.load_or_none(uri))
    )


def _tpus(reader: Reader, run: RunLayout, ended: datetime | None) -> list[SeenTpu] | None:
    """Return the TPUs that may be there, or were when they could last be read; None: never."""

    def read() -> list[SeenTpu]:
        mailboxes = Rental.read(0, run).mailboxes
        asked = _asks_since(mailboxes) if ended is None else None
        tpus = [_tpu(one, ended, asked) for one in mailboxes if _may_be_there(one)]
        if asked is not None and not any(tpu.state is TpuState.QUEUED for tpu in tpus):
            # Between two attempts: the run goes on waiting, and no chips are asked for.
            tpus.append(SeenTpu(TpuState.QUEUED, asked, chips=0, beat=None))
        return tpus

    return reader.newest(Source.TPUS, ("tpus", run.root), read)


def _asks_since(mailboxes: list[Mailbox]) -> datetime | None:
    """Return since when a run asks for the TPU that it has not got; None: it asks for none.

    Over all attempts since the last one that came: each ends after ``tpu.queue_timeout_seconds``.
    """
    since = None
    for one in mailboxes:
        if AttemptEvent.READY in one.record.marks or one.released is not None:
            since = None
        elif one.record.was_asked:
            since = since or one.record.attempt.created
    return since


def _may_be_there(mailbox: Mailbox) -> bool:
    # A bill without a confirmed end is the reaper's, who has deleted the TPU.
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
    """Yield times of which the last is when a TPU came into its state."""
    marks = mailbox.record.marks
    yield mailbox.record.attempt.created
    if state is TpuState.LEFT_OVER:
        yield from (mark.time for event, mark in marks.items() if event is not AttemptEvent.READY)
        yield from [mailbox.released] if mailbox.released is not None else []
    if state in (TpuState.BOOTING, TpuState.IDLE, TpuState.WORKING):
        yield marks[AttemptEvent.READY].time
    if state is TpuState.IDLE:
        yield from mailbox.jobs()
