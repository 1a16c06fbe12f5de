"""Lists recently billed attempts, with what their time was spent on, for sums over them.

Two listings show which runs can have any, so no files of the others are read. Listed files that
were read are cached by their time of modification.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar, cast

from pipeline_store import uris
from pipeline_store.details import ObjectDetails
from pipeline_store.formats import (
    AttemptEvent,
    FormatError,
    Ledger,
    LedgerEntry,
    OutcomeKind,
    Reservation,
    RunOutcome,
    RunRecord,
    Seconds,
    SpentOn,
    StoredFile,
)
from pipeline_store.formats.spent import fitted
from pipeline_store.layout import ReservationLayout, RunLayout, StoreLayout
from tpu_lifecycle.records.attempts import TAKEN_BY_SERVICE, AttemptRecord, load_attempts
from tpu_lifecycle.records.ledger import so_far

WEEKS = 12
"""Weeks that sums cover by default."""

CLOCKS_DIFFER = timedelta(days=1)
"""How far the store's clock, which dates a ledger, may be behind the clock of its entries."""

KEPT_FILES = 4096
"""Number of files that stay in memory once read: some kilobytes each."""

F = TypeVar("F", bound=StoredFile)

_LOST_WITH_IT = (SpentOn.LOST_STEPS, SpentOn.SILENCE, SpentOn.DELETION)
_DONE_AGAIN = (
    SpentOn.TPU_INITIALIZATION,
    SpentOn.IMAGE_PULL,
    SpentOn.CODE,
    SpentOn.JOB_WAIT,
    SpentOn.PROGRAM_STARTUP,
    SpentOn.TRAINING_PREP,
    SpentOn.RESTORE,
    SpentOn.COMPILE,
)


@dataclass(frozen=True)
class Spent:
    """One attempt that was billed, with its run and lineage.

    :param price: of a chip-hour, and when it was looked up.
    :param chip_seconds: by what they were spent on; they sum up to those of the ledger's entry.
    :param lost_to_preemption: chip-seconds that losses to the service cost: those lost with the
        TPU, and those spent on starting the next one.
    :param lost_to_failures: the same for all other losses.
    :param saved: against the on-demand price; None: that is unknown, or the TPU was not spot.
    :param is_rented: the TPU is not known to be gone.
    """

    run_key: str
    lineage_id: str
    outcome: OutcomeKind | None
    currency: str
    price: str
    entry: LedgerEntry
    chip_seconds: Seconds
    lost_to_preemption: float
    lost_to_failures: float
    saved: float | None
    is_rented: bool

    @property
    def week(self) -> str:
        """Return the week in which it was requested, such as 2026-W05."""
        return f"{self.entry.created:%G-W%V}"


@dataclass(frozen=True)
class _Listed:
    """The files of all runs as listed, by address."""

    runs: Mapping[str, ObjectDetails]
    reservations: Mapping[str, ObjectDetails]

    @classmethod
    def of(cls, store: StoreLayout) -> _Listed:
        runs = uris.list_named(store.runs, "run.json", "outcome.json")
        pattern = uris.join(store.runs, "*")
        folder = RunLayout(pattern).reservations.removeprefix(f"{pattern}/")
        names = ("reservation.json", "ledger.json")
        found = uris.list_named(store.runs, *names, below=f"{folder}/*")
        return cls({one.uri: one for one in runs}, {one.uri: one for one in found})

    def places(self, since: datetime) -> list[ReservationLayout]:
        """Return the reservations that are open, or whose ledger was written since then."""
        folders = {uri.rpartition("/")[0] for uri in self.reservations}
        places = [ReservationLayout(folder) for folder in sorted(folders)]
        closed = {place: self.reservations.get(place.ledger) for place in places}
        return [
            place
            for place, one in closed.items()
            if one is None or one.modified + CLOCKS_DIFFER >= since
        ]


def default_since() -> datetime:
    """Return the beginning of the last ``WEEKS`` weeks, including the current one."""
    now = datetime.now(UTC)
    monday = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(now.weekday())
    return monday - timedelta(weeks=WEEKS - 1)


def spent_since(
    store: StoreLayout,
    since: datetime,
    *,
    lineage_id: str | None = None,
    problems: list[str],
) -> list[Spent]:
    """Return every attempt that was requested since a moment and got a TPU.

    :param lineage_id: None: of all lineages.
    :param problems: gets a line for each reservation whose files cannot be read.
    """
    listed = _Listed.of(store)
    found: list[Spent] = []
    for place in listed.places(since):
        try:
            found += _spent_in(store, listed, place, lineage_id)
        except (FormatError, OSError) as error:
            problems.append(str(error))
    return [one for one in found if one.entry.created >= since]


def _spent_in(
    store: StoreLayout, listed: _Listed, place: ReservationLayout, lineage_id: str | None
) -> list[Spent]:
    """Return the billed attempts of a reservation; none if it is of another lineage.

    :raises FormatError: a file is damaged.
    """
    run = RunLayout(place.root.rsplit("/", 2)[0])
    record = _load(RunRecord, listed.runs[run.record]) if run.record in listed.runs else None
    if record is None or lineage_id not in (None, record.lineage_id):
        return []
    owner = record.rental_of or record.run_key
    ending = listed.runs.get(store.run(owner).outcome)
    outcome = _load(RunOutcome, ending) if ending else None
    closed = listed.reservations.get(place.ledger)
    if closed is not None:
        ledger, rented = _load(Ledger, closed), set[int]()
    else:
        ledger = so_far(Reservation.load(place.record), place)
        rented = {one.number for one in load_attempts(place) if may_be_rented(one)}
    found = []
    before: LedgerEntry | None = None
    for entry in ledger.entries:
        if entry.billed_seconds:
            names = (owner, record.lineage_id, outcome.outcome if outcome else None)
            found.append(_spent(names, ledger, entry, before, is_rented=entry.attempt in rented))
            # Attempts without a TPU are skipped: the next billed one makes up for the last loss.
            before = entry
    return found


def _load(kind: type[F], file: ObjectDetails) -> F:
    """Return a file as it was when it was listed, or slightly later.

    :raises FormatError: it is damaged.
    """
    return cast("F", _kept(kind, file.uri, file.modified))


@functools.lru_cache(KEPT_FILES)
def _kept(kind: type[StoredFile], uri: str, modified: datetime) -> StoredFile:
    """Return a file's content, cached; a rewritten file has another time of modification."""
    del modified
    return kind.load(uri)


def may_be_rented(record: AttemptRecord) -> bool:
    """Return whether an attempt's TPU, if it has one, is neither confirmed gone nor reaped."""
    return AttemptEvent.GONE not in record.marks and not uris.exists(record.layout.bill)


def named(entry: LedgerEntry) -> Seconds:
    """Return what an attempt's billed seconds were spent on, also from a ledger of old format."""
    known = entry.seconds or {SpentOn.STEP: entry.stepping_seconds}
    return fitted(known, entry.billed_seconds, SpentOn.UNATTRIBUTED)


def _spent(
    names: tuple[str, str, OutcomeKind | None],
    ledger: Ledger,
    entry: LedgerEntry,
    before: LedgerEntry | None,
    *,
    is_rented: bool,
) -> Spent:
    seconds = {name: value * entry.chips for name, value in named(entry).items()}
    lost = {True: 0.0, False: 0.0}
    if entry.loss:
        lost[entry.loss in TAKEN_BY_SERVICE] += _sum(seconds, _LOST_WITH_IT)
    if before is not None and before.loss:
        lost[before.loss in TAKEN_BY_SERVICE] += _sum(seconds, _DONE_AGAIN)
    dearer, is_cheaper = ledger.on_demand_price_per_chip_hour, ledger.provisioning_model == "spot"
    saved = None
    if is_cheaper and dearer is not None:
        saved = entry.chip_seconds / 3600 * (dearer - ledger.price_per_chip_hour)
    return Spent(
        *names,
        currency=ledger.currency,
        price=f"{ledger.price_per_chip_hour:g} {ledger.currency} ({ledger.price_date})",
        entry=entry,
        chip_seconds=seconds,
        lost_to_preemption=lost[True],
        lost_to_failures=lost[False],
        saved=saved,
        is_rented=is_rented,
    )


def _sum(seconds: Seconds, names: Iterable[SpentOn]) -> float:
    return sum(seconds.get(name, 0.0) for name in names)
