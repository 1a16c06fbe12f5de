"""Finds runs that have stalled, and TPUs that are paid for without a job.

It uses the store alone, so that it works when Airflow is down. The absence of a file is a sign only
if the file is renewed regularly while all is well: a lease, a ticket, a job's heartbeat. Work in a
task's own process, such as preparing data, writes nothing for hours, so a run that has neither a
TPU nor an open question nor a waiting ticket is not checked here; it is only reported as overdue.
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
"""The TPU service's state of an attempt's TPU; None: it was not asked, or does not answer."""

LINEAGE = "it waits for its lineage, but nobody looks whether that is free"
ANSWER = "the time for an answer is over, but nobody goes on without one"
TPU = "no job on its TPU has reported, nobody has looked after the TPU, and none was asked for"
"""What has not happened for too long, by what the run waits for."""


def no_service(_reservation: OpenReservation, _record: AttemptRecord) -> None:
    """Return None: the TPU service was not asked."""


@dataclass(frozen=True)
class Patience:
    """Time limits after which a standstill is reported; zero: never.

    :ivar stalled: longest time without progress of a run.
    :ivar idle: longest time without a job on a TPU.
    """

    stalled: timedelta
    idle: timedelta

    @classmethod
    def of(cls, settings: Settings) -> Patience:
        """Return the limits in an installation's settings."""
        return cls(
            stalled=timedelta(minutes=settings.stalled_minutes),
            idle=timedelta(minutes=settings.idle_tpu_minutes),
        )


@dataclass(frozen=True)
class OpenRun:
    """A run that has not ended or may still rent a TPU, with its ticket, question and TPUs."""

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
        """Return a finding that the run rents a TPU while its DAG is paused; None: it rents none.

        :param dag_id: the paused DAG.
        :param detail: id of the pause.
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
        """Return the mailboxes of all attempts."""
        return [mailbox for rental in self.rentals for mailbox in rental.mailboxes]

    def findings(self, patience: Patience, tpu_of: TpuOf) -> Iterator[Finding]:
        """Yield findings about a run that has not ended: whether it or one of its TPUs stalled."""
        if patience.stalled:
            yield from self._stalled(patience.stalled)
        yield from self.unused(patience, tpu_of)

    def may_rent(self, tpu_of: TpuOf) -> bool:
        """Return whether one of its TPUs may exist, by the store and by the TPU service."""
        return any(
            mailbox.may_exist and not _is_gone(mailbox, tpu_of) for mailbox in self.mailboxes
        )

    def unused(self, patience: Patience, tpu_of: TpuOf) -> Iterator[Finding]:
        """Yield a finding for each TPU that has had no job for too long."""
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
        """Yield what the run waits for, and when there was a last sign of it."""
        if self.ticket is not None:
            yield LINEAGE, self.ticket.renewed.astimezone(UTC)
        opened = [time for rental in self.rentals for time in rental.opened]
        if self.approval is not None and self._is_asking(self.approval, opened):
            yield ANSWER, self.approval.deadline.astimezone(UTC)
        if opened:
            own = (sign for mailbox in self.mailboxes for sign in mailbox.signs())
            yield TPU, max([*opened, *own]).astimezone(UTC)

    def _is_asking(self, approval: RunApproval, opened: list[datetime]) -> bool:
        """Return whether a person is asked now; False if a TPU was requested after the question.

        A person has then cleared an earlier task, and the run will ask again when it gets there.
        """
        wanted = [*opened, *(mailbox.record.attempt.created for mailbox in self.mailboxes)]
        return approval.answer is Answer.WAITING and all(t <= approval.asked for t in wanted)


def _is_gone(mailbox: Mailbox, tpu_of: TpuOf) -> bool:
    """Return whether the service says that there is no TPU, and none can appear later."""
    if mailbox.record.is_landing:
        return False
    state = tpu_of(mailbox.reservation, mailbox.record)
    return state is not None and state.gone_reason is not None


def _idle(mailbox: Mailbox, limit: timedelta, tpu_of: TpuOf) -> Iterator[Finding]:
    """Yield a finding if a TPU has had no job for too long and the service does not say it is gone.

    A TPU without a READY mark counts only if nothing has checked on it and the service says READY.
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
    """Return times of which the latest is when a READY TPU became idle."""
    marks = mailbox.record.marks
    ready = marks[AttemptEvent.READY].time
    if not mailbox.has_reported and mailbox.record.is_ready:
        # The task gives the agent this long to report, and then takes another TPU.
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
