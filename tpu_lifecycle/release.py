"""Gives TPUs back: the whole reservation, one attempt, or, when cancelling, only one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_store.formats import AttemptEvent, Holder, Ledger
from tpu_lifecycle import labels
from tpu_lifecycle.attempts import AttemptRecord
from tpu_lifecycle.backend import TpuBackend, TpuName, TpuState
from tpu_lifecycle.ledger import build_ledger
from tpu_lifecycle.reservation import OpenReservation, earlier_reservations
from tpu_lifecycle.sweep import Sweeper

IN_FLIGHT_SECONDS = 60.0
"""Longest time after the tombstone in which a create call of unknown outcome may still land: its
own timeout, and as much again for a service that answers late."""

UNSETTLED_PAUSE_SECONDS = 5.0
"""Between two looks whether a create call was answered meanwhile."""


@dataclass(frozen=True)
class ReleaseReport:
    """What :func:`release` did."""

    ledger: Ledger
    deleted: list[TpuName]


def release(reservation: OpenReservation, sweeper: Sweeper, *, reason: str) -> ReleaseReport:
    """Give back everything of this generation and of earlier ones of the run.

    Tombstone, sweep, grace period, second sweep; only then 404 means gone. Safe to repeat.

    :raises TpuError: something could not be deleted or confirmed; call again.
    """
    generations = [*earlier_reservations(reservation), reservation]
    for generation in generations:
        generation.release(reason)
    seen = _sweep(generations, sweeper)
    _wait_for_late_landings(generations, sweeper)
    seen |= _sweep(generations, sweeper)
    for generation in generations:
        _close_books(generation, seen)
    return ReleaseReport(Ledger.load(reservation.layout.ledger), sorted(seen))


def give_back_earlier(reservation: OpenReservation, sweeper: Sweeper) -> None:
    """Give back what earlier generations of the run still have: it never rents two TPUs at once.

    :raises TpuError: something could not be deleted or confirmed; call again.
    """
    records = [
        record
        for generation in earlier_reservations(reservation)
        for record in generation.attempts()
        if AttemptEvent.GONE not in record.marks
    ]
    seen = sweeper.delete(record.name for record in records)
    for record in records:
        if not record.may_land:
            _mark_gone(record, seen)


def give_up(
    record: AttemptRecord, sweeper: Sweeper, *, event: AttemptEvent, reason: str
) -> AttemptRecord:
    """Mark an attempt as refused or lost, delete its TPU and confirm that it is gone.

    :raises TpuError: it could not be confirmed; :func:`finish_deletion` goes on from there.
    """
    return finish_deletion(record.mark(event, reason), sweeper)


def finish_deletion(record: AttemptRecord, sweeper: Sweeper) -> AttemptRecord:
    """Delete the TPU of an attempt that was given up, and mark it gone."""
    return _mark_gone(record, sweeper.delete([record.name]))


def fenced_delete(
    backend: TpuBackend,
    reservation: OpenReservation,
    record: AttemptRecord,
    *,
    holder_sequence: int | None,
) -> bool:
    """Ask for the deletion of a cancelled task's own TPU, unless another task took it over.

    Quick and without confirmation: the teardown confirms. Harmless to repeat, and harmless before,
    during or after the teardown.

    :param holder_sequence: sequence number of the cancelled task's own entry in ``holder.json``;
        None when it never made the attempt the holder.
    :returns: whether the deletion was asked for.
    """
    holder = Holder.load_or_none(reservation.run.holder)
    holds = holder is not None and holder.token == record.attempt.token
    if holds and (holder is None or holder.sequence != holder_sequence):
        return False
    state = backend.describe(record.name)
    ours = labels.attempt_labels(reservation.record, record.attempt)
    if not state.exists or not ours.items() <= state.labels.items():
        return False
    backend.delete(record.name)
    return True


def _sweep(generations: Sequence[OpenReservation], sweeper: Sweeper) -> dict[TpuName, TpuState]:
    """Delete by name, then by label: that finds what no record of ours mentions."""
    seen = sweeper.delete(record.name for g in generations for record in g.attempts())
    newest = generations[-1].record
    zones = sorted({zone for g in generations for zone in g.record.zones})
    found, problems = sweeper.find(zones, labels.run_labels(newest))
    seen |= sweeper.delete(s.name for s in found if _generation_of(s) <= newest.generation)
    if problems:
        raise problems[0]
    return seen


def _generation_of(state: TpuState) -> int:
    try:
        return labels.TpuLabels.parse(state.labels).generation
    except ValueError:
        return 0  # owner and run are ours; a label we cannot read must not keep it alive


def _wait_for_late_landings(generations: Sequence[OpenReservation], sweeper: Sweeper) -> None:
    """Wait the grace period, and longer while a create call has no answer yet."""
    waited = generations[-1].config.tpu.delete_grace_seconds
    sweeper.log.info("First sweep done; looking again in %.0f s for TPUs that land late", waited)
    sweeper.sleep(waited)
    while waited < IN_FLIGHT_SECONDS and _is_unsettled(generations):
        sweeper.log.info("A create call has no answer yet: waiting for it")
        pause = min(UNSETTLED_PAUSE_SECONDS, IN_FLIGHT_SECONDS - waited)
        sweeper.sleep(pause)
        waited += pause


def _is_unsettled(generations: Sequence[OpenReservation]) -> bool:
    return any(
        record.may_land and AttemptEvent.GONE not in record.marks
        for generation in generations
        for record in generation.attempts()
    )


def _close_books(reservation: OpenReservation, seen: dict[TpuName, TpuState]) -> None:
    records = [_mark_gone(record, seen) for record in reservation.attempts()]
    build_ledger(reservation, records).write(reservation.layout.ledger)


def _mark_gone(record: AttemptRecord, seen: dict[TpuName, TpuState]) -> AttemptRecord:
    state = seen.get(record.name)
    return record.mark(AttemptEvent.GONE, node_created=state.node_created if state else None)
