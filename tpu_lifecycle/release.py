"""Gives TPUs back: the whole reservation, one attempt, or, when cancelling, only one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_store.formats import AttemptEvent, FormatError, Ledger
from tpu_lifecycle import labels
from tpu_lifecycle.attempts import (
    LANDING_WINDOW,
    LASTING_REFUSALS,
    AttemptRecord,
    salvage_attempts,
)
from tpu_lifecycle.backend import TpuBackend, TpuName, TpuState
from tpu_lifecycle.holder import cancel_holder
from tpu_lifecycle.ledger import build_ledger
from tpu_lifecycle.reservation import (
    OpenReservation,
    ReservationError,
    earlier_reservations,
    open_reservation,
)
from tpu_lifecycle.sweep import Sweeper

IN_FLIGHT_SECONDS = LANDING_WINDOW.total_seconds()
"""Longest time after the tombstone in which a create call of unknown outcome may still land."""

UNSETTLED_PAUSE_SECONDS = 5.0
"""Between two looks whether a create call was answered meanwhile."""

_Pair = tuple[OpenReservation, AttemptRecord]


@dataclass(frozen=True)
class ReleaseReport:
    """What :func:`release` did."""

    ledger: Ledger
    deleted: list[TpuName]


def release(reservation: OpenReservation, sweeper: Sweeper, *, reason: str) -> ReleaseReport:
    """Give back everything of this generation and of earlier ones of the run.

    Tombstone, sweep, grace period, second sweep; only then 404 means gone. Safe to repeat. Damaged
    files of the store are no obstacle to deleting, only to the ledger.

    :raises TpuError: something could not be deleted or confirmed; call again.
    :raises FormatError: all is deleted, but a damaged file of the run keeps it from the ledger.
    """
    generations = [*_readable_generations(reservation, sweeper), reservation]
    for generation in generations:
        generation.release(reason)
    seen = _sweep(generations, sweeper)
    _wait_for_late_landings(generations, sweeper)
    seen |= _sweep(generations, sweeper)
    try:
        for generation in [*earlier_reservations(reservation), reservation]:
            _close_books(generation, seen)
    except FormatError as error:
        raise FormatError(
            f"All TPUs of {reservation} are deleted, but it has no ledger: {error} Restore this "
            "file, or remove it, and clear the delete task."
        ) from error
    return ReleaseReport(Ledger.load(reservation.layout.ledger), sorted(seen))


def _readable_generations(reservation: OpenReservation, sweeper: Sweeper) -> list[OpenReservation]:
    """Return the earlier generations that can be read; labels lead to what others have."""
    found = []
    for number in range(1, reservation.record.generation):
        try:
            found.append(open_reservation(reservation.run.root, number))
        except (FormatError, ReservationError) as error:
            sweeper.log.error("Giving back without reservation g%d: %s", number, error)
    return found


def give_back_earlier(reservation: OpenReservation, sweeper: Sweeper) -> None:
    """Give back what earlier generations of the run still have: it never rents two TPUs at once.

    :raises TpuError: something could not be deleted or confirmed; call again.
    """
    pairs = [
        (generation, record)
        for generation in earlier_reservations(reservation)
        for record in generation.attempts()
        if AttemptEvent.GONE not in record.marks
    ]
    seen = _delete(pairs, sweeper)
    for _, record in pairs:
        if not record.may_land:
            _mark_gone(record, seen)


def give_up(
    reservation: OpenReservation,
    record: AttemptRecord,
    sweeper: Sweeper,
    *,
    event: AttemptEvent,
    reason: str,
    **details: Any,
) -> AttemptRecord:
    """Mark an attempt as refused, lost or cancelled, delete its TPU and confirm that it is gone.

    :param details: further fields of the mark.
    :raises TpuError: it could not be confirmed; :func:`finish_deletion` goes on from there.
    """
    return finish_deletion(reservation, record.mark(event, reason, **details), sweeper)


def finish_deletion(
    reservation: OpenReservation, record: AttemptRecord, sweeper: Sweeper
) -> AttemptRecord:
    """Delete the TPU of an attempt that was given up, and mark it gone.

    While a create call of it may still take effect it is not marked: whoever comes next, at the
    latest the teardown, deletes again.
    """
    seen = delete_attempt(reservation, record, sweeper)
    return record if record.is_landing else _mark_gone(record, seen)


def delete_attempt(
    reservation: OpenReservation, record: AttemptRecord, sweeper: Sweeper
) -> dict[TpuName, TpuState]:
    """Delete one attempt's TPU and confirm, unless what has its name is somebody else's."""
    return _delete([(reservation, record)], sweeper)


def ask_deletion(backend: TpuBackend, reservation: OpenReservation, record: AttemptRecord) -> bool:
    """Ask for the deletion of an attempt's TPU, if it is there and ours; confirms nothing."""
    state = backend.describe(record.name)
    if not state.exists or not _is_ours(reservation, record, state):
        return False
    backend.delete(record.name)
    return True


def fenced_delete(
    backend: TpuBackend,
    reservation: OpenReservation,
    record: AttemptRecord,
    *,
    holder_sequence: int | None,
    reason: str = "a person ended its task",
) -> bool:
    """Ask for the deletion of a cancelled task's own TPU, unless another task took it over.

    Quick and without confirmation: the teardown confirms. Harmless to repeat, and harmless before,
    during or after the teardown. Who takes the attempt over later finds that it was cancelled.

    :param holder_sequence: sequence number of the cancelled task's own entry in ``holder.json``;
        None when it never made the attempt the holder, and so never asked for anything.
    :returns: whether the deletion was asked for.
    """
    if not cancel_holder(reservation.run, record.attempt, holder_sequence):
        return False
    record.mark(AttemptEvent.CANCELLED, reason)
    return ask_deletion(backend, reservation, record)


def _is_ours(reservation: OpenReservation, record: AttemptRecord, state: TpuState) -> bool:
    # Some states of the service show no labels at all; then the name counts, if we asked for it.
    if not state.labels:
        return record.was_asked
    return labels.run_labels(reservation.record).items() <= state.labels.items()


def _delete(pairs: Sequence[_Pair], sweeper: Sweeper) -> dict[TpuName, TpuState]:
    """Delete by name what is ours, and confirm."""
    by_name = {record.name: (reservation, record) for reservation, record in pairs}
    return sweeper.delete(
        by_name,
        is_ours=lambda state: _is_ours(*by_name[state.name], state),
        denied={record.name for _, record in pairs if record.was_denied},
    )


def _sweep(generations: Sequence[OpenReservation], sweeper: Sweeper) -> dict[TpuName, TpuState]:
    """Delete by name, then by label: that finds what no record of ours mentions."""
    pairs = [(g, record) for g in generations for record in _attempts(g)]
    seen = _delete(pairs, sweeper)
    newest = generations[-1].record
    zones = sorted({zone for g in generations for zone in g.record.zones})
    found, problems = sweeper.find(zones, labels.run_labels(newest))
    seen |= sweeper.delete(s.name for s in found if _generation_of(s) <= newest.generation)
    # A zone that was never asked, or only refused, holds nothing. If it does not exist, a look
    # into it fails each time, and must not fail the teardown for ever.
    asked = {record.name.zone for _, record in pairs if not record.was_denied}
    for zone, error in problems.items():
        lasting = isinstance(error, LASTING_REFUSALS)
        if zone in asked or not lasting:
            raise type(error)(f"Zone {zone} could not be looked at, so it may hold a TPU: {error}")
    return seen


def _generation_of(state: TpuState) -> int:
    try:
        return labels.TpuLabels.parse(state.labels).generation
    except ValueError:
        return 0  # owner and run are ours; a label we cannot read must not keep it alive


def _wait_for_late_landings(generations: Sequence[OpenReservation], sweeper: Sweeper) -> None:
    """Wait the grace period, and longer while a create call has no answer yet."""
    waited = generations[-1].record.delete_grace_seconds
    sweeper.log.info("First sweep done; looking again in %.0f s for TPUs that land late", waited)
    sweeper.sleep(waited)
    while waited < IN_FLIGHT_SECONDS and _is_unsettled(generations):
        sweeper.log.info("A create call has no answer yet: waiting for it")
        pause = min(UNSETTLED_PAUSE_SECONDS, IN_FLIGHT_SECONDS - waited)
        sweeper.sleep(pause)
        waited += pause


def _is_unsettled(generations: Sequence[OpenReservation]) -> bool:
    return any(record.is_unsettled for g in generations for record in _attempts(g))


def _attempts(generation: OpenReservation) -> list[AttemptRecord]:
    return salvage_attempts(generation.layout, generation.record)


def _close_books(reservation: OpenReservation, seen: dict[TpuName, TpuState]) -> None:
    records = [_mark_gone(record, seen) for record in reservation.attempts()]
    build_ledger(reservation, records).write(reservation.layout.ledger)


def _mark_gone(record: AttemptRecord, seen: dict[TpuName, TpuState]) -> AttemptRecord:
    state = seen.get(record.name)
    return record.mark(AttemptEvent.GONE, node_created=state.node_created if state else None)
