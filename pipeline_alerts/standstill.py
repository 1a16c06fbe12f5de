"""Whether a run stands still, and whether a TPU of it is paid for without a job.

By the store alone, so that it can be asked when nothing of Airflow works. Only what is written
again and again while all is well is missed when it is not: a lease, a ticket, a job's heartbeat.
Work in a task's own process, such as preparing data, writes nothing for hours, so a run that has
neither a TPU nor a question nor a place in a line is not judged; that it is overdue is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pipeline_alerts.causes import Cause
from pipeline_alerts.facts import spending
from pipeline_alerts.findings import Finding
from pipeline_alerts.mailboxes import Mailbox, Rental
from pipeline_config.settings import Settings
from pipeline_store.formats import Answer, AttemptEvent, RunApproval, RunRecord, WaitingTicket
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.budgets import rented_since
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.records.trainings import rental_folders
from tpu_lifecycle.service.backend import TpuState

TpuOf = Callable[[OpenReservation, AttemptRecord], TpuState | None]
"""What the TPU service says of an attempt's TPU; None: it was not asked, or does not answer."""

LINEAGE = "it waits for its lineage, but nobody looks whether that is free"
ANSWER = "the time for an answer is over, but nobody goes on without one"
TPU = "no job on its TPU has reported, nobody has looked after the TPU, and none was asked for"
"""What has not happened for too long, by what the run is about."""


def no_service(_reservation: OpenReservation, _record: AttemptRecord) -> None:
    """Return that the TPU service was not asked."""


@dataclass(frozen=True)
class Patience:
    """How long something may last before it is reported; zero: never.

    :ivar stalled: nothing happens to a run.
    :ivar idle: no job runs on a TPU.
    """

    stalled: timedelta
    idle: timedelta

    @classmethod
    def of(cls, settings: Settings) -> Patience:
        """Return an installation's."""
        return cls(
            stalled=timedelta(minutes=settings.stalled_minutes),
            idle=timedelta(minutes=settings.idle_tpu_minutes),
        )


@dataclass(frozen=True)
class OpenRun:
    """A run that has not ended or may rent a TPU still, with what it waits for and all its TPUs."""

    record: RunRecord
    ticket: WaitingTicket | None
    approval: RunApproval | None
    rentals: list[Rental]

    @classmethod
    def read(cls, store: StoreLayout, run: RunLayout, record: RunRecord) -> OpenRun:
        """Read a run and the folders of its further TPUs.

        :raises OSError: the store cannot be read.
        :raises FormatError: a file is damaged.
        """
        ticket = store.lineage(record.lineage_id).ticket(record.run_key)
        folders = enumerate(rental_folders(run))
        return cls(
            record,
            WaitingTicket.load_or_none(ticket),
            RunApproval.load_or_none(run.approval),
            [Rental.read(number, folder) for number, folder in folders],
        )

    def paused(self, dag_id: str, detail: str) -> Finding | None:
        """Return that the run rents a TPU while its DAG is paused; None: it rents none.

        :param dag_id: a DAG that is paused.
        :param detail: which time that it is so.
        """
        rented = [mailbox for mailbox in self.mailboxes if mailbox.is_rented]
        spent = spending([(mailbox.reservation, mailbox.record) for mailbox in rented])
        if spent is None:
            return None
        names = "; ".join(
            f"{mailbox.record.name}, since {rented_since(mailbox.record):%F %T} UTC"
            for mailbox in rented
        )
        return Finding(
            Cause.PAUSED_WITH_TPU,
            "paused while a TPU is rented",
            f"{dag_id} is paused, and the run rents {names}: at most {spent.cost:.2f} "
            f"{spent.currency} so far. A job that runs there goes on to its end. Nothing comes "
            "after it until the DAG is unpaused: else the TPU stays rented until its lease runs "
            "out or it expires, and then deletes itself.",
            detail=detail,
        )

    @property
    def mailboxes(self) -> list[Mailbox]:
        """Return those of all attempts."""
        return [mailbox for rental in self.rentals for mailbox in rental.mailboxes]

    def findings(self, patience: Patience, tpu_of: TpuOf) -> Iterator[Finding]:
        """Yield what of a run that has not ended stands still."""
        if patience.stalled:
            yield from self._stalled(patience.stalled)
        yield from self.unused(patience, tpu_of)

    def may_rent(self, tpu_of: TpuOf) -> bool:
        """Return whether a TPU of it may be there, by the store and by the TPU service."""
        return any(
            mailbox.may_exist and not _is_gone(mailbox, tpu_of) for mailbox in self.mailboxes
        )

    def unused(self, patience: Patience, tpu_of: TpuOf) -> Iterator[Finding]:
        """Yield which TPUs have no job."""
        if patience.idle:
            for mailbox in self.mailboxes:
                if mailbox.may_exist:
                    yield from _idle(mailbox, patience.idle, tpu_of)

    def _stalled(self, limit: timedelta) -> Iterator[Finding]:
        signs = dict(self._signs())
        if not signs:
            return
        what, since = max(signs.items(), key=lambda sign: sign[1])
        if datetime.now(UTC) - since <= limit:
            return
        minutes = limit.total_seconds() / 60
        yield Finding(
            Cause.RUN_STALLED,
            f"no progress since {since:%F %H:%M} UTC",
            f"Since {since:%F %T} UTC {what}. Reported after REPRETRAIN_STALLED_MINUTES="
            f"{minutes:g}, by what the store shows.",
            detail=_stamp(since),
        )

    def _signs(self) -> Iterator[tuple[str, datetime]]:
        """Yield what the run is about, and when there was a last sign of that."""
        if self.ticket is not None:
            yield LINEAGE, self.ticket.renewed.astimezone(UTC)
        opened = [time for rental in self.rentals for time in rental.opened]
        if self.approval is not None and self._is_asking(self.approval, opened):
            yield ANSWER, self.approval.deadline.astimezone(UTC)
        if opened:
            own = (sign for mailbox in self.mailboxes for sign in mailbox.signs())
            yield TPU, max([*opened, *own]).astimezone(UTC)

    def _is_asking(self, approval: RunApproval, opened: list[datetime]) -> bool:
        """Return whether a person is asked now; no, if a TPU was wanted after the question.

        Somebody has then cleared an earlier task, and the run asks anew when it comes there.
        """
        wanted = [*opened, *(mailbox.record.attempt.created for mailbox in self.mailboxes)]
        return approval.answer is Answer.WAITING and all(t <= approval.asked for t in wanted)


def _is_gone(mailbox: Mailbox, tpu_of: TpuOf) -> bool:
    """Return whether the service says that there is no TPU, and none can appear any more."""
    if mailbox.record.is_landing:
        return False
    state = tpu_of(mailbox.reservation, mailbox.record)
    return state is not None and state.gone_reason is not None


def _idle(mailbox: Mailbox, limit: timedelta, tpu_of: TpuOf) -> Iterator[Finding]:
    """Yield that a TPU has had no job for too long, unless the service says that it is gone.

    One that nobody has seen READY counts only if nobody has looked, and the service says it is.
    """
    now = datetime.now(UTC)
    since = max(_free_since(mailbox) if mailbox.is_rented else _unseen_since(mailbox))
    if now - since <= limit:
        return
    state = tpu_of(mailbox.reservation, mailbox.record)
    if state is not None and state.gone_reason is not None:
        return
    if not mailbox.is_rented:
        if state is None or not state.is_ready:
            return
        since = max(since, state.node_created or since)
        if now - since <= limit:
            return
    yield _unused(mailbox, since, limit, state)


def _free_since(mailbox: Mailbox) -> list[datetime]:
    """Return the times of which the last is when a TPU that was READY had nothing to do."""
    marks = mailbox.record.marks
    ready = marks[AttemptEvent.READY].time
    if not mailbox.has_reported and mailbox.record.is_ready:
        # Whoever waits for the job gives it so long to report, then takes another one.
        ready += timedelta(seconds=mailbox.reservation.config.tpu.boot_timeout_seconds)
    given_up = [m.time for e, m in marks.items() if e is not AttemptEvent.READY]
    released = [mailbox.released] if mailbox.released else []
    return [ready, *given_up, *released, *mailbox.jobs()]


def _unseen_since(mailbox: Mailbox) -> list[datetime]:
    return [mailbox.record.attempt.created, *mailbox.signs()]


def _unused(mailbox: Mailbox, since: datetime, limit: timedelta, state: TpuState | None) -> Finding:
    record = mailbox.record
    since = since.astimezone(UTC)
    if record.needs_deletion or mailbox.released:
        what = f"was to be deleted ({record.outcome}), but is not confirmed gone"
    else:
        what = "is READY, but no job runs on it"
    said = (
        f"The TPU service says: {state.describe()}."
        if state is not None
        else "The TPU service was not asked or does not answer, so it may be gone already."
    )
    minutes = limit.total_seconds() / 60
    return Finding(
        Cause.TPU_WITHOUT_JOB,
        f"a TPU is rented without a job since {since:%F %H:%M} UTC",
        f"{record.name} {what}, since {since:%F %T} UTC. {said} It is paid for until it is given "
        f"back. Reported after REPRETRAIN_IDLE_TPU_MINUTES={minutes:g}.",
        detail=f"{mailbox.name}-{_stamp(since)}",
    )


def _stamp(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y%m%dT%H%M%SZ}"
