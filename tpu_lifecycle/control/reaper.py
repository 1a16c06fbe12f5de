"""Finds our TPUs that nobody will release any more, and deletes them.

Independent of Airflow and of its runs' states: it finds TPUs by label and asks the store whether
their run still wants them (tombstone, marks of the attempt). It never touches TPUs with another
owner's label, nor those that another installation of the same owner requested: it reports the
latter once they are long expired, and a person may have them deleted by name.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pipeline_store import uris
from pipeline_store.formats import FormatError, Lease, ReaperPass, Released, Reservation, TpuPlace
from pipeline_store.layout import ReservationLayout, StoreLayout
from tpu_lifecycle.control.forsaken import Standing
from tpu_lifecycle.control.reaper_status import newest_pass, write_pass
from tpu_lifecycle.control.release import Log
from tpu_lifecycle.records.attempts import LASTING_REFUSALS, load_attempt
from tpu_lifecycle.records.installation import Identity
from tpu_lifecycle.records.ledger import write_bill
from tpu_lifecycle.records.reservation import open_reservation
from tpu_lifecycle.service.backend import TpuBackend, TpuError, TpuState, TpuUnavailableError
from tpu_lifecycle.service.labels import INSTALLATION, TpuLabels, owner_label

PAUSE_SECONDS = 2.0
"""Between two deletions: the API limits their number per minute."""

MAX_DELETIONS = 50
"""In one pass. More at once would be a mistake, of this program or of a person."""

PATIENCE = timedelta(minutes=10)
"""How long a TPU that its run no longer wants is left to the task that releases it."""

ENDED_STATES = frozenset({"FAILED", "SUSPENDED", "PREEMPTED", "TERMINATED"})
"""States of a queued resource or node that runs no more jobs but still takes name and quota."""

FOREIGN_GRACE = timedelta(hours=1)
"""How long after its expiry another installation's TPU is silently left to that installation."""

_log = logging.getLogger(__name__)

Known = TypeVar("Known")


class NotReapedError(RuntimeError):
    """A TPU named for deletion does not exist, or may not be deleted."""


@dataclass(frozen=True)
class ReapedTpu:
    """One TPU's line in the report."""

    name: str
    zone: str
    age_seconds: float | None
    state: str
    run_key: str
    reason: str
    action: str

    def __str__(self) -> str:
        age = f"{self.age_seconds / 3600:.1f} h old" if self.age_seconds is not None else "age ?"
        return f"{self.action}: {self.name} in {self.zone} ({age}, {self.state}): {self.reason}"


@dataclass
class ReaperReport:
    """Findings and actions of one pass."""

    seen: int = 0
    reaped: list[ReapedTpu] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)

    def to_json(self) -> str:
        """Return the report as a JSON object on one line."""
        reaped = [vars(item) for item in self.reaped]
        return json.dumps({"seen": self.seen, "reaped": reaped, "problems": self.problems})


@dataclass
class Reaper:
    """One owner's reaper in one project.

    :param zones: to list in addition to the zones that reservations in the store name.
    :param dry_run: report what would be deleted; delete nothing, and do not record the pass.
    :param max_deletions: in one pass, not counting TPUs that are already DELETING; the rest is
        reported as a problem, and the next pass continues.
    :param patience: before it steps in for a task; a TPU that expired is deleted at once.
    """

    backend: TpuBackend
    store: StoreLayout
    project_id: str
    owner: str
    zones: Iterable[str] = ()
    dry_run: bool = False
    patience: timedelta = PATIENCE
    max_deletions: int = MAX_DELETIONS
    log: Log = field(default_factory=lambda: _log)
    sleep: Callable[[float], None] = time.sleep

    def reap(self) -> ReaperReport:
        """Make one pass; failures go into the report and do not stop the rest."""
        report = ReaperReport()
        left = asked = 0
        identity = Identity.read(self.store, report.problems)
        standing = Standing(self._remembered(lambda earlier: earlier.standing, unknown=()))
        for state in self.find(report):
            try:
                if not self._is_ours(state, identity):
                    self._judge_foreign(state, report)
                    continue
                reason = self._reason(state, standing) if self._is_there(state) else None
                # TPUs that hang in DELETING must not block the deletion of the others forever.
                is_new = (state.queued_resource or state.node) != "DELETING"
                if reason and is_new and asked >= self.max_deletions:
                    left += 1
                elif reason:
                    asked += is_new
                    report.reaped.append(self._delete(state, reason))
            except Exception as error:  # noqa: BLE001 - one bad TPU must not save the others
                self.log.warning("Skipping %s: %r", state.name, error)
                report.problems.append(f"{state.name}: {error}")
        if left:
            report.problems.append(
                f"{left} more TPU(s) are to be deleted, but one pass deletes {self.max_deletions} "
                "at most; the next one goes on"
            )
        if not self.dry_run:
            self._sign_of_life(report, standing)
        return report

    def reap_foreign(self, resource_id: str, zone: str) -> ReapedTpu:
        """Delete a TPU of any installation of the owner by its name, once it is long expired.

        :raises NotReapedError: there is no such TPU, or its run may still want it.
        :raises TpuError: the service does not answer, or refuses.
        """
        states = self.backend.list_zone(zone, owner_label(self.owner))
        found = [state for state in states if state.name.resource_id == resource_id]
        if not found:
            raise NotReapedError(
                f"Owner {self.owner} has no TPU {resource_id} in {zone}; see "
                "python -m tpu_lifecycle list."
            )
        expires_at = TpuLabels.parse(found[0].labels).expires_at
        if datetime.now(UTC) < expires_at + FOREIGN_GRACE:
            raise NotReapedError(
                f"{resource_id} in {zone} is wanted until {expires_at:%F %T} UTC, and may be "
                f"deleted by name {FOREIGN_GRACE} later. Its own installation can give it back now."
            )
        return self._delete(found[0], f"expired at {expires_at:%F %T} UTC; named by a person")

    def _is_ours(self, state: TpuState, identity: Identity) -> bool:
        """Return whether the TPU was requested from this store."""

        def find() -> Reservation | None:
            labels = TpuLabels.parse(state.labels)
            reservation = self.store.run(labels.run_key).reservation(labels.generation)
            return Reservation.load_or_none(reservation.record)

        return identity.has(state.labels, find)

    def _judge_foreign(self, state: TpuState, report: ReaperReport) -> None:
        """Report a long expired TPU that its own installation does not delete."""
        expires_at = TpuLabels.parse(state.labels).expires_at
        if datetime.now(UTC) < expires_at + FOREIGN_GRACE:
            return
        report.problems.append(
            f"{state.name} expired at {expires_at:%F %T} UTC and is of another installation "
            f"({state.labels.get(INSTALLATION, 'unknown')}) of owner {self.owner}, whose reaper "
            "does not delete it. Start that one, or run python -m tpu_lifecycle reap-foreign "
            f"{state.name.resource_id} --zone {state.name.zone} --project {self.project_id} "
            f"--owner {self.owner}"
        )

    def _remembered(
        self, what: Callable[[ReaperPass], Sequence[Known]], *, unknown: Sequence[Known]
    ) -> Sequence[Known]:
        """Return a part of the previous pass's record; empty when there was no pass.

        :param unknown: returned when the record cannot be read.
        """
        try:
            earlier = newest_pass(self.store, self.owner, self.project_id)
        except Exception as error:  # noqa: BLE001 - a missing record is no reason to stop
            self.log.warning("Cannot read the pass before this one: %r", error)
            return unknown
        return what(earlier) if earlier else ()

    def _sign_of_life(self, report: ReaperReport, standing: Standing) -> None:
        try:
            write_pass(
                self.store,
                self.owner,
                self.project_id,
                seen=report.seen,
                acted_on=len(report.reaped),
                problems=report.problems,
                answered=report.answered,
                standing=standing.to_keep(report.answered),
            )
        except Exception as error:  # noqa: BLE001 - an unreachable store is only reported
            report.problems.append(f"cannot write the reaper's own sign of life: {error!r}")

    def find(self, report: ReaperReport) -> Iterator[TpuState]:
        """Yield every TPU of the owner; report or log the zones that cannot be listed."""
        given = set(self.zones)
        places = stored_places(self.store, report.problems)
        own = {place.zone for place in places if place.project_id == self.project_id}
        zones = sorted(given | own)
        if not zones:
            self._judge_nowhere(places, report)
        refused: dict[str, TpuError] = {}
        for zone in zones:
            try:
                states = self.backend.list_zone(zone, owner_label(self.owner))
            except LASTING_REFUSALS as error:
                refused[zone] = error
                continue
            except TpuError as error:
                report.problems.append(f"zone {zone}: {error}")
                continue
            report.answered.add(zone)
            report.seen += len(states)
            yield from states
        self._judge_refusals(refused, given, report)

    def _judge_nowhere(self, places: Iterable[TpuPlace], report: ReaperReport) -> None:
        """Distinguish an installation that never rented a TPU from a mistyped project."""
        others = sorted({place.project_id for place in places})
        if others:
            report.problems.append(
                f"no zone to look at: none is given, and the reservations in {self.store.root} are "
                f"of {', '.join(others)}, none of project {self.project_id}"
            )
        elif not report.problems:
            self.log.info("Nothing to look at: no TPU was ever asked for from %s", self.store.root)

    def _judge_refusals(
        self, refused: Mapping[str, TpuError], given: AbstractSet[str], report: ReaperReport
    ) -> None:
        """Distinguish zones that never existed, such as mistyped ones, from inaccessible ones."""
        # When no zone answers, the account lacks the permission; the zones' names are not at fault.
        known = refused.keys() if not report.answered else given | self._ever_answered(refused)
        for zone, error in refused.items():
            place = self.store.tpu_place(self.project_id, zone)
            text = f"zone {zone}: {error} If there is no such zone (any more), delete {place}."
            if zone in known:
                report.problems.append(text)
            else:
                self.log.warning("Not looked at: %s", text)

    def _ever_answered(self, zones: Iterable[str]) -> set[str]:
        """Return the zones among these that an earlier pass could list; all if that is unknown."""
        answered = self._remembered(lambda earlier: earlier.answered, unknown=list(zones))
        return set(answered) & set(zones)

    def _is_there(self, state: TpuState) -> bool:
        """Return whether the TPU still exists with the owner's label: a list may be outdated."""
        fresh = self.backend.describe(state.name)
        return fresh.exists and owner_label(self.owner).items() <= fresh.labels.items()

    def _reason(self, state: TpuState, standing: Standing) -> str | None:
        """Return why nobody needs the TPU any more, or None."""
        now = datetime.now(UTC)
        labels = TpuLabels.parse(state.labels)
        if now >= labels.expires_at:
            return f"expired at {labels.expires_at:%F %T} UTC"
        since, reason = self._abandoned(state, labels)
        if since is not None and now - since >= self.patience:
            return reason
        return self._forsaken(labels, standing) if state.is_ready else None

    def _forsaken(self, labels: TpuLabels, standing: Standing) -> str | None:
        """Return a reason if nobody renews a TPU's lease and its job makes no progress, or None."""
        run = self.store.run(labels.run_key)
        attempt = load_attempt(run.reservation(labels.generation), labels.attempt)
        if attempt is None or not attempt.is_usable:
            return None
        since = standing.since(open_reservation(run.root, labels.generation), attempt)
        return (
            f"nobody renews its lease, and its job makes no progress since {since:%F %T} UTC"
            if since
            else None
        )

    def _abandoned(self, state: TpuState, labels: TpuLabels) -> tuple[datetime | None, str]:
        """Return since when the TPU's own run does not want it, and why; None if it still may."""
        reservation = self.store.run(labels.run_key).reservation(labels.generation)
        tombstone = Released.load_or_none(reservation.released)
        if tombstone is not None:
            what = f"reservation g{labels.generation} of run {labels.run_key}"
            return tombstone.released, f"{what} was released at {tombstone.released:%F %T} UTC"
        attempt = load_attempt(reservation, labels.attempt)
        if attempt is not None and not attempt.is_usable:
            newest = max(mark.time for mark in attempt.marks.values())
            return newest, f"its run gave it up ({attempt.outcome})"
        # The node of a queued resource has ended when the queued resource has.
        ended = state.queued_resource or state.node
        if ended not in ENDED_STATES:
            return None, ""
        # A process that waits for the TPU sees this at its next poll, and records the reason.
        moments = [state.created or state.node_created, _last_renewal(reservation, labels.attempt)]
        since = max((moment for moment in moments if moment), default=None)
        return since, f"it is {ended} and still takes name and quota"

    def _delete(self, state: TpuState, reason: str) -> ReapedTpu:
        item = describe(state, reason, "would delete" if self.dry_run else self._push(state))
        self.log.warning("TPU REAPER: %s", item)
        if not self.dry_run:
            self._write_bill(state, reason)
        return item

    def _write_bill(self, state: TpuState, reason: str) -> None:
        """Write the TPU's bill, since possibly no other process ever does.

        Not for a TPU of another installation: its run may have the same id as one of ours.
        """
        try:
            if not self._is_ours(state, Identity.read(self.store, [])):
                return
            labels = TpuLabels.parse(state.labels)
            reservation = open_reservation(self.store.run(labels.run_key).root, labels.generation)
            write_bill(reservation, reservation.attempt(labels.attempt), reaped=reason)
        except Exception as error:  # noqa: BLE001 - it is deleted, which is what counts
            self.log.warning("No bill of %s is written: %r", state.name, error)

    def _push(self, state: TpuState) -> str:
        try:
            self.backend.delete(state.name)
        except TpuUnavailableError:
            if state.queued_resource not in ("DELETING", "SUSPENDING"):
                raise
        self.sleep(PAUSE_SECONDS)
        return "deleting" if self.backend.describe(state.name).exists else "deleted"


def _last_renewal(reservation: ReservationLayout, attempt: int) -> datetime | None:
    """Return when the lease of the attempt's TPU was last renewed; None if unknown."""
    try:
        lease = Lease.load_or_none(reservation.attempt(attempt).lease)
    except FormatError:
        return None
    return lease.renewed if lease else None


def describe(state: TpuState, reason: str, action: str) -> ReapedTpu:
    """Return the report line of a TPU."""
    created = state.created or state.node_created
    return ReapedTpu(
        name=state.name.resource_id,
        zone=state.name.zone,
        age_seconds=(datetime.now(UTC) - created).total_seconds() if created else None,
        state=state.describe(),
        run_key=state.labels.get("run-key", ""),
        reason=reason,
        action=action,
    )


def stored_places(store: StoreLayout, problems: list[str]) -> list[TpuPlace]:
    """Return every project and zone in which a reservation ever allowed a TPU.

    :param problems: gets a line for each read that fails. An unreachable or damaged store must not
        stop the reaper: labels alone show which TPUs have expired.
    """
    found: list[TpuPlace] = []
    try:
        files = list(uris.list_files(store.tpu_places))
    except Exception as error:  # noqa: BLE001 - in any case, the given zones are listed
        problems.append(f"cannot list {store.tpu_places}: {error!r}")
        return found
    for uri in files:
        try:
            found.append(TpuPlace.load(uri))
        except Exception as error:  # noqa: BLE001 - one bad file must not hide the others
            problems.append(f"cannot read {uri}: {error!r}")
    return found
