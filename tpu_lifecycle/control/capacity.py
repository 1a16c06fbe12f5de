"""Chooses the zone to ask for a TPU next: in turn, those that recently had none last."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pipeline_store.formats import AttemptEvent, FormatError, Reservation, ZoneCooldown
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.service.backend import (
    TpuCapacityError,
    TpuConflictError,
    TpuError,
    TpuInvalidRequestError,
    TpuNotFoundError,
    TpuPermissionError,
    TpuQuotaError,
    TpuQuotaTooSmallError,
)

STOCKOUT = TpuCapacityError.__name__
QUOTA = TpuQuotaError.__name__
QUOTA_TOO_SMALL = TpuQuotaTooSmallError.__name__

PASSING = frozenset({STOCKOUT, QUOTA})
"""Refusals worth remembering for a while, so that other runs of the store ask elsewhere first."""

_DENIALS = {
    kind.__name__: kind
    for kind in (
        TpuPermissionError,
        TpuInvalidRequestError,
        TpuNotFoundError,
        TpuConflictError,
        TpuError,
    )
}
"""Refusals that stay the same on every retry until a person fixes the cause."""


class StockoutError(TpuCapacityError):
    """A round through all zones found no TPU; a later round may."""


class QuotaInUseError(TpuQuotaError):
    """A round found no TPU; the last zone's quota is used up until others release TPUs."""


class QuotaExhaustedError(RuntimeError):
    """Every zone's quota is smaller than the TPU: only a larger quota helps, waiting does not."""


@dataclass(frozen=True)
class Round:
    """A pass over the candidate zones, in the state that the attempts so far have left it.

    :param number: counts from 1.
    :param left: zones still to be asked in this round, in this order.
    :param left_out: zones that refuse for good: not in any further round.
    :param has_just_begun: the newest refusal ended the previous round.
    """

    number: int
    left: tuple[str, ...]
    left_out: frozenset[str]
    has_just_begun: bool


def refuses_for_good(cause: str) -> bool:
    """Return whether a refusal for this cause is permanent until a person fixes it."""
    return cause == QUOTA_TOO_SMALL or cause in _DENIALS


def present_round(
    zones: Sequence[str],
    records: Sequence[AttemptRecord],
    *,
    cooling: AbstractSet[str] = frozenset(),
    seed: str = "",
) -> Round:
    """Return the round that the next attempt belongs to.

    The first round keeps the configured order; later ones are shuffled, so that runs that all have
    to wait do not follow each other from zone to zone. Zones in cooldown come last.

    :param seed: equal seeds shuffle equally.
    """
    number, has_just_begun = 1, False
    asked: set[str] = set()
    denied: set[str] = set()
    for record in records:
        has_just_begun = False
        refusal = record.marks.get(AttemptEvent.REFUSED)
        if refusal is None:
            if record.marks.keys() & {AttemptEvent.READY, AttemptEvent.LOST}:
                number = 1  # there was a TPU: a new search
                asked.clear()
            continue
        asked.add(record.attempt.zone)
        if refuses_for_good(refusal.cause):
            denied.add(record.attempt.zone)
        if asked | denied >= set(zones):
            number, has_just_begun = number + 1, True
            asked.clear()
    order = list(zones)
    if number > 1:
        random.Random(f"{seed}#{number}").shuffle(order)  # noqa: S311 - an order, not a secret
    left = [zone for zone in order if zone not in asked | denied]
    left.sort(key=lambda zone: zone in cooling)
    return Round(number, tuple(left), frozenset(denied), has_just_begun)


def next_zone(
    zones: Sequence[str],
    records: Sequence[AttemptRecord],
    *,
    cooling: AbstractSet[str] = frozenset(),
    seed: str = "",
) -> str:
    """Return the zone to ask next: after a loss the same zone once more, then the candidates.

    :raises QuotaExhaustedError: no zone's quota is large enough.
    :raises TpuError: every zone refuses for good.
    """
    walk = present_round(zones, records, cooling=cooling, seed=seed)
    check_zones(zones, walk, records)
    if not records:
        return walk.left[0]
    last = records[-1].attempt.zone
    lost = [AttemptEvent.LOST in r.marks and r.attempt.zone == last for r in records[-2:]]
    is_refused = AttemptEvent.REFUSED in records[-1].marks
    if not is_refused and last in walk.left and not (len(lost) > 1 and all(lost)):
        return last
    others = [zone for zone in walk.left if is_refused or zone != last]
    return (others or list(walk.left))[0]


def check_zones(zones: Sequence[str], walk: Round, records: Sequence[AttemptRecord]) -> None:
    """Check that some zone may still grant a TPU, now or later.

    :raises QuotaExhaustedError: no zone's quota is large enough.
    :raises TpuError: every zone refuses for good; the class is that of the last refusal other than
        for quota.
    """
    if walk.left:
        return
    refusals = {
        record.attempt.zone: refusal
        for record in records
        if (refusal := record.marks.get(AttemptEvent.REFUSED)) and refuses_for_good(refusal.cause)
    }
    kinds = [_DENIALS[r.cause] for r in refusals.values() if r.cause in _DENIALS]
    if kinds:
        reasons = "; ".join(f"{zone}: {refusal.reason}" for zone, refusal in refusals.items())
        raise kinds[-1](
            f"Every zone refuses for good, so that waiting does not help: {reasons} Help there, or "
            "correct tpu.zones, and clear the reserve task."
        )
    *_, last = refusals.values()
    raise QuotaExhaustedError(
        f"The quota allows no such TPU in any of {', '.join(zones)}. Ask for quota of this TPU "
        f"type (IAM & Admin, Quotas) and clear the reserve task. Last: {last.reason}"
    )


@dataclass(frozen=True)
class Cooldowns:
    """The zones in which runs of this store recently found no capacity.

    :param seconds: ``tpu.zone_cooldown_seconds``.
    """

    store: StoreLayout
    reservation: Reservation
    provisioning_model: str
    seconds: float

    def note(self, zone: str, reason: str) -> None:
        """Remember that the zone had no TPU of this kind."""
        ZoneCooldown(
            project_id=self.reservation.project_id,
            zone=zone,
            accelerator_type=self.reservation.accelerator_type,
            provisioning_model=self.provisioning_model,
            since=datetime.now(UTC),
            reason=reason,
        ).write(self._uri(zone))

    def cooling(self) -> Mapping[str, datetime]:
        """Return the zones in cooldown, each with the time at which it ends."""
        now, length = datetime.now(UTC), timedelta(seconds=self.seconds)
        ends = {zone: self._since(zone) + length for zone in self.reservation.zones}
        return {zone: end for zone, end in ends.items() if end > now}

    def _since(self, zone: str) -> datetime:
        try:
            found = ZoneCooldown.load_or_none(self._uri(zone))
        except FormatError:
            found = None  # only a hint: a damaged one must not stop a run
        return found.since if found else datetime.fromtimestamp(0, UTC)

    def _uri(self, zone: str) -> str:
        return self.store.zone_cooldown(
            self.reservation.project_id,
            zone,
            self.reservation.accelerator_type,
            self.provisioning_model,
        )
