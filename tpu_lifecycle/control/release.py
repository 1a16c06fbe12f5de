"""Releases TPUs: of a whole reservation, of one attempt or, when cancelling, only the task's own.

A :class:`Sweeper` deletes TPUs by name, and waits until each is confirmed gone.

A process that works with an attempt first makes it the run's holder, before any request. A task
that is cancelled late can thus see that another one has taken over, and leaves the TPU alone.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from pipeline_store.formats import Attempt, AttemptEvent, FormatError, Holder, Ledger
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.records import job_keys
from tpu_lifecycle.records.attempts import (
    GIVEN_UP,
    LANDING_WINDOW,
    LASTING_REFUSALS,
    AttemptRecord,
    salvage_attempts,
)
from tpu_lifecycle.records.ledger import build_ledger, write_bill
from tpu_lifecycle.records.reservation import (
    OpenReservation,
    ReleasedError,
    ReservationError,
    SupersededError,
    earlier_reservations,
    open_reservation,
)
from tpu_lifecycle.service import labels
from tpu_lifecycle.service.backend import (
    TpuBackend,
    TpuError,
    TpuName,
    TpuState,
    TpuUnavailableError,
)

MAX_PAUSE_SECONDS = 8.0

IN_FLIGHT_SECONDS = LANDING_WINDOW.total_seconds()
"""Longest time after the tombstone in which a create call of unknown outcome may still land."""

UNSETTLED_PAUSE_SECONDS = 5.0
"""Between two checks whether a create call was answered meanwhile."""

CANCELLED = "cancelled"
"""Token of a holder whose attempt was cancelled: no job has it, so none can commit."""

_Pair = tuple[OpenReservation, AttemptRecord]

_log = logging.getLogger(__name__)


class Log(Protocol):
    """The methods used of a logger, which Airflow's task logger and the standard one both have.

    Each takes a message with ``%`` placeholders and their values.
    """

    def info(self, msg: Any, /, *args: Any) -> Any:
        """Log an action."""
        ...

    def warning(self, msg: Any, /, *args: Any) -> Any:
        """Log an unexpected event."""
        ...

    def error(self, msg: Any, /, *args: Any) -> Any:
        """Log an event that needs a person's attention."""
        ...


@dataclass
class _Requests:
    """When each deletion was last requested, and since when it is put off; monotonic seconds."""

    asked: dict[TpuName, float] = field(default_factory=dict)
    put_off: dict[TpuName, float] = field(default_factory=dict)


@dataclass
class Sweeper:
    """Deletes TPUs by name, and confirms by polling. Durations are in seconds.

    :param pause: between the first two polls; doubles up to ``MAX_PAUSE_SECONDS``.
    :param reissue: after which a stuck deletion is requested again.
    :param patience: after which a replacement need not wait for a TPU that is on its way out.
    :param timeout: after which :meth:`delete` gives up.
    """

    backend: TpuBackend
    pause: float = 0.5
    reissue: float = 60.0
    patience: float = 120.0
    timeout: float = 900.0
    log: Log = field(default_factory=lambda: _log)
    sleep: Callable[[float], None] = time.sleep

    def delete(
        self,
        names: Iterable[TpuName],
        *,
        is_ours: Callable[[TpuState], bool] = lambda state: True,
        denied: AbstractSet[TpuName] = frozenset(),
        linger_after: float | None = None,
    ) -> dict[TpuName, TpuState]:
        """Delete and confirm. A TPU is gone only when the service says that it does not exist.

        :param is_ours: whether the TPU of this name may be deleted; otherwise it is left alone, and
            the name counts as gone, since it cannot be ours as well.
        :param denied: names whose only create call was refused. They have no TPU, so a refused
            lookup is enough as confirmation: the zone may not exist, and a teardown that insisted
            on a lookup there would fail forever.
        :param linger_after: seconds after which it is enough that all remaining TPUs are on their
            way out; None: it is never enough.
        :returns: the last state of every TPU that existed, with its node's creation if that was
            seen.
        :raises LingeringError: ``linger_after`` applies; the next caller confirms.
        :raises TpuError: some could not be deleted or confirmed; all others are gone. Call again.
        """
        waiting = sorted(set(names))
        requests = _Requests()
        seen: dict[TpuName, TpuState] = {}
        began = time.monotonic()
        pause = self.pause
        while True:
            results: dict[TpuName, bool | TpuError] = {}
            for name in waiting:
                found = self._push(name, requests, seen, is_ours)
                is_refused = isinstance(found, LASTING_REFUSALS)
                results[name] = found if not (is_refused and name in denied) else True
            waiting = [name for name, is_gone in results.items() if is_gone is not True]
            if not waiting:
                return seen
            failed = {name: e for name, e in results.items() if isinstance(e, TpuError)}
            if len(failed) == len(waiting) and all(map(_is_refusal, failed.values())):
                first = next(iter(failed.values()))
                raise type(first)(self._left(waiting, seen, failed))
            waited = time.monotonic() - began
            is_leaving = all(name in seen and _is_leaving(seen[name]) for name in waiting)
            if linger_after is not None and waited >= linger_after and is_leaving:
                raise LingeringError(self._left(waiting, seen, failed))
            if waited > self.timeout:
                raise TpuUnavailableError(self._left(waiting, seen, failed))
            self.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def find(
        self, zones: Iterable[str], labels: Mapping[str, str]
    ) -> tuple[list[TpuState], dict[str, TpuError]]:
        """Return all TPUs in the zones that carry the labels, and the errors by zone."""
        found: list[TpuState] = []
        problems: dict[str, TpuError] = {}
        for zone in zones:
            try:
                found += self.backend.list_zone(zone, labels)
            except TpuError as error:
                self.log.warning("Cannot look into zone %s: %s", zone, error)
                problems[zone] = error
        return found, problems

    def _push(
        self,
        name: TpuName,
        requests: _Requests,
        seen: dict[TpuName, TpuState],
        is_ours: Callable[[TpuState], bool],
    ) -> bool | TpuError:
        """Advance one deletion; return whether the TPU is gone, or the service's error."""
        try:
            state = self.backend.describe(name)
            if not state.exists:
                return True
            if not is_ours(state):
                self.log.error(
                    "%s is not ours (labels %s): left alone. Look whose it is.",
                    name,
                    dict(state.labels),
                )
                return True
            if name not in seen:
                self.log.info("Deleting %s (%s)", name, state.describe())
            # Keep the creation time of a node that is gone by now.
            if name in seen and not state.node_created:
                state = replace(state, node_created=seen[name].node_created)
            seen[name] = state
            if self._should_ask(state, name, requests):
                self.backend.delete(name)
                requests.asked[name] = time.monotonic()
        except TpuError as error:
            self.log.warning("%s", error)
            return error
        return False

    def _should_ask(self, state: TpuState, name: TpuName, requests: _Requests) -> bool:
        now = time.monotonic()
        # The service may reject a forced deletion while it is still suspending the TPU itself,
        # which usually takes seconds; the deletion is requested right after that. If the TPU is
        # stuck in that state, it is requested anyway, whatever the answer.
        if state.queued_resource == "SUSPENDING":
            if now - requests.put_off.setdefault(name, now) <= self.reissue:
                return False
            requests.put_off[name] = now
        return now - requests.asked.get(name, -math.inf) > self.reissue

    def _left(
        self,
        waiting: list[TpuName],
        seen: Mapping[TpuName, TpuState],
        failed: Mapping[TpuName, TpuError],
    ) -> str:
        parts = [
            f"{name} ({failed.get(name) or (seen[name].describe() if name in seen else 'unknown')})"
            for name in waiting
        ]
        return (
            f"Not confirmed gone: {'; '.join(parts)}. The task tries "
            "again, and the tpu_reaper DAG deletes it too."
        )


def _is_refusal(error: TpuError) -> bool:
    """Return whether an immediate retry is useless, though another try of the task may help."""
    return isinstance(error, LASTING_REFUSALS) or not error.retryable


class LingeringError(TpuUnavailableError):
    """The deleted TPUs are not gone yet, but on their way out: SUSPENDING or DELETING."""


def _is_leaving(state: TpuState) -> bool:
    return (state.queued_resource or state.node) in ("SUSPENDING", "DELETING")


class CancelledAttemptError(RuntimeError):
    """The task that worked with the attempt was cancelled: its TPU is being deleted."""


def become_holder(run: RunLayout, attempt: Attempt) -> Holder:
    """Make the attempt the run's holder, by compare-and-set.

    Each call raises the sequence number: a task that takes an attempt over from its own earlier try
    thereby revokes that try's right to cancel.

    :raises ReleasedError: a newer generation already holds the run.
    :raises SupersededError: a newer attempt of this generation already holds the run.
    :raises CancelledAttemptError: the attempt was cancelled; a new one is needed.
    """

    def take(present: Holder | None) -> Holder:
        number = (attempt.generation, attempt.attempt)
        if present and (present.generation, present.attempt) > number:
            newer = present.generation > attempt.generation
            raise (ReleasedError if newer else SupersededError)(
                f"Attempt {attempt.attempt} of generation {attempt.generation} is stale: run "
                f"{attempt.run_key} is held by attempt {present.attempt} of generation "
                f"{present.generation}."
            )
        if present and (present.generation, present.attempt, present.token) == (*number, CANCELLED):
            raise CancelledAttemptError(
                f"Attempt {attempt.attempt} of generation {attempt.generation} of run "
                f"{attempt.run_key} was cancelled."
            )
        return _holder(attempt, attempt.token, present.sequence + 1 if present else 1)

    return Holder.update(run.holder, take)


def cancel_holder(run: RunLayout, attempt: Attempt, sequence: int | None) -> bool:
    """Mark the attempt as cancelled if the caller still holds it.

    One compare-and-set decides between a task that is cancelled and one that takes over: either the
    former finds that it no longer holds the attempt, or the latter that it was cancelled.

    :param sequence: of the caller's own holder entry; None when it never was the holder.
    :returns: whether the attempt is cancelled, now or by an earlier call of the same caller.
    """
    is_cancelled = False

    def take(present: Holder | None) -> Holder | None:
        nonlocal is_cancelled
        is_cancelled = False
        if present is None or sequence is None:
            return None
        cancelled = _holder(attempt, CANCELLED, sequence + 1)
        own = _holder(attempt, attempt.token, sequence)
        is_cancelled = present in (own, cancelled)
        return cancelled if present == own else None

    Holder.update(run.holder, take)
    return is_cancelled


def _holder(attempt: Attempt, token: str, sequence: int) -> Holder:
    return Holder(
        sequence=sequence, generation=attempt.generation, attempt=attempt.attempt, token=token
    )


@dataclass(frozen=True)
class ReleaseReport:
    """Result of :func:`release`."""

    ledger: Ledger
    deleted: list[TpuName]


def release(reservation: OpenReservation, sweeper: Sweeper, *, reason: str) -> ReleaseReport:
    """Release all TPUs of this generation and of earlier ones of the run.

    Tombstone, sweep, grace period, second sweep; only then 404 means gone. Safe to repeat. Damaged
    files in the store do not prevent the deletion, only the ledger.

    :raises TpuError: something could not be deleted or confirmed; call again.
    :raises ReservationError: it lies in a copy of its store, and a TPU of the original exists.
    :raises FormatError: all is deleted, but a damaged file of the run prevents the ledger.
    """
    earlier = _readable_generations(reservation, sweeper)
    for generation in (*earlier, reservation):
        generation.release(reason)
    left = {g.record.generation: found for g in earlier if (found := _elsewhere(g, sweeper))}
    for number, names in left.items():
        sweeper.log.error("Left to the store that g%d was made in: %s", number, _joined(names))
    generations = [g for g in earlier if g.record.generation not in left] + [reservation]
    seen = _sweep(generations, sweeper)
    _wait_for_late_landings(generations, sweeper)
    seen |= _sweep(generations, sweeper)
    try:
        for generation in [*earlier_reservations(reservation), reservation]:
            if generation.record.generation not in left:
                _close_books(generation, seen)
    except FormatError as error:
        raise FormatError(
            f"All TPUs of {reservation} are deleted, but it has no ledger: {error} Restore this "
            "file, or remove it, and clear the delete task."
        ) from error
    return ReleaseReport(Ledger.load(reservation.layout.ledger), sorted(seen))


def _readable_generations(reservation: OpenReservation, sweeper: Sweeper) -> list[OpenReservation]:
    """Return the earlier generations that can be read; labels lead to the others' TPUs."""
    found = []
    for number in range(1, reservation.record.generation):
        try:
            found.append(open_reservation(reservation.run.root, number))
        except (FormatError, ReservationError) as error:
            sweeper.log.error("Giving back without reservation g%d: %s", number, error)
    return found


def give_back_earlier(reservation: OpenReservation, sweeper: Sweeper) -> None:
    """Release the TPUs of earlier generations of the run, which rents one TPU at a time.

    Does not wait for a TPU that is on its way out for longer than the sweeper's patience, and
    leaves those of reservations that were made in another store to that store.

    :raises TpuError: something could not be deleted or confirmed; call again.
    """
    pairs = [
        (generation, record)
        for generation in earlier_reservations(reservation)
        if generation.is_at_home
        for record in generation.attempts()
        if AttemptEvent.GONE not in record.marks
    ]
    try:
        seen = _delete(pairs, sweeper, linger_after=sweeper.patience)
    except LingeringError as error:
        sweeper.log.warning("Going on without waiting any longer. %s", error)
        return
    for generation, record in pairs:
        if not record.may_land:
            _mark_gone(generation, record, seen)


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
    :raises TpuError: it could not be confirmed; :func:`finish_deletion` continues from there.
    """
    return finish_deletion(reservation, record.mark(event, reason, **details), sweeper)


def finish_deletion(
    reservation: OpenReservation, record: AttemptRecord, sweeper: Sweeper
) -> AttemptRecord:
    """Delete the TPU of an attempt that was given up, and mark it gone.

    The attempt is not marked while its create call may still take effect, nor when its TPU is on
    its way out for longer than the sweeper's patience: a later caller, at the latest the teardown,
    deletes again. Meanwhile another TPU may be requested under another name.
    """
    given_up = [record.marks[event].time for event in GIVEN_UP & record.marks.keys()]
    age = (datetime.now(UTC) - min(given_up, default=datetime.now(UTC))).total_seconds()
    pair = (reservation, record)
    try:
        seen = _delete([pair], sweeper, linger_after=max(0.0, sweeper.patience - age))
    except LingeringError as error:
        sweeper.log.warning("Going on without waiting any longer. %s", error)
        return record
    return record if record.is_landing else _mark_gone(reservation, record, seen)


def delete_attempt(
    reservation: OpenReservation, record: AttemptRecord, sweeper: Sweeper
) -> dict[TpuName, TpuState]:
    """Delete one attempt's TPU and confirm, unless the TPU of that name is not ours."""
    return _delete([(reservation, record)], sweeper)


def ask_deletion(backend: TpuBackend, reservation: OpenReservation, record: AttemptRecord) -> bool:
    """Request the deletion of an attempt's TPU if it exists and is ours; confirm nothing."""
    state = backend.describe(record.name)
    if not state.exists or not is_ours(reservation, record, state):
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
    """Request the deletion of a cancelled task's own TPU, unless another task took it over.

    Quick and without confirmation: the teardown confirms. Harmless to repeat, and harmless before,
    during or after the teardown. A task that takes the attempt over later finds it cancelled.

    :param holder_sequence: sequence number of the cancelled task's own entry in ``holder.json``;
        None when it never made the attempt the holder, and so never requested anything.
    :returns: whether the deletion was requested.
    """
    if not cancel_holder(reservation.run, record.attempt, holder_sequence):
        return False
    record.mark(AttemptEvent.CANCELLED, reason)
    return ask_deletion(backend, reservation, record)


def is_ours(reservation: OpenReservation, record: AttemptRecord, state: TpuState) -> bool:
    """Return whether the TPU with an attempt's name was requested by its run, from its store."""
    if not reservation.is_at_home:
        return False
    # In some states the service shows no labels at all; then the name counts, if we requested it.
    if not state.labels:
        return record.was_asked
    return labels.is_of(reservation.record, state.labels)


def _delete(
    pairs: Sequence[_Pair], sweeper: Sweeper, *, linger_after: float | None = None
) -> dict[TpuName, TpuState]:
    """Delete our TPUs by name, and confirm.

    :raises ReservationError: a reservation lies in a copy of its store, and has a TPU.
    """
    by_name = {record.name: (reservation, record) for reservation, record in pairs}
    seen = sweeper.delete(
        by_name,
        is_ours=lambda state: is_ours(*by_name[state.name], state),
        denied={record.name for _, record in pairs if record.was_denied},
        linger_after=linger_after,
    )
    for reservation in {id(reservation): reservation for reservation, _ in pairs}.values():
        if names := _elsewhere(reservation, sweeper):
            raise ReservationError(
                f"{reservation} has {_joined(names)}, but was made in another store than "
                f"{reservation.run.store_root}, of installation {reservation.record.installation}: "
                "this one is a copy or was moved. Run the delete task where it was made, or move "
                "the store back; else the TPU goes when it expires."
            )
    return seen


def _elsewhere(reservation: OpenReservation, sweeper: Sweeper) -> list[TpuName]:
    """Return the existing TPUs of a reservation that lies in a copy of its store, if it does.

    They belong to the original store.

    :raises TpuError: the service does not tell whether one exists.
    """
    if reservation.is_at_home:
        return []
    names = {record.name for record in _attempts(reservation) if not record.was_denied}
    states = [sweeper.backend.describe(name) for name in sorted(names)]
    return [
        state.name
        for state in states
        if state.exists and (not state.labels or labels.is_of(reservation.record, state.labels))
    ]


def _joined(names: Iterable[TpuName]) -> str:
    return ", ".join(map(str, names))


def _sweep(generations: Sequence[OpenReservation], sweeper: Sweeper) -> dict[TpuName, TpuState]:
    """Delete by name, then by label, which finds TPUs that no record of ours mentions."""
    pairs = [(g, record) for g in generations for record in _attempts(g)]
    seen = _delete(pairs, sweeper)
    newest = generations[-1].record
    zones = sorted({zone for g in generations for zone in g.record.zones})
    found, problems = sweeper.find(zones, labels.run_labels(newest))
    records = [g.record for g in generations if g.is_at_home]
    seen |= sweeper.delete(
        state.name
        for state in found
        if _generation_of(state) <= newest.generation
        and any(labels.is_of(record, state.labels) for record in records)
    )
    # A zone that was never asked, or only refused, holds nothing. If it does not exist, listing it
    # always fails, which must not fail the teardown forever.
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
    """Wait for the grace period, and longer while a create call has no answer yet."""
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
    records = [_mark_gone(reservation, record, seen) for record in reservation.attempts()]
    ledger = build_ledger(reservation.record, reservation.layout, records)
    ledger.write(reservation.layout.ledger)
    record = reservation.record
    job_keys.forget(StoreLayout(reservation.run.store_root), record.run_key, record.generation)


def _mark_gone(
    reservation: OpenReservation, record: AttemptRecord, seen: dict[TpuName, TpuState]
) -> AttemptRecord:
    state = seen.get(record.name)
    gone = record.mark(AttemptEvent.GONE, node_created=state.node_created if state else None)
    write_bill(reservation, gone)
    return gone
