"""Operators that rent a Cloud TPU, run jobs on it, and always delete it.

Wire them so that the TPU is deleted whatever happens::

    reserve >> create >> run >> delete
    delete.as_teardown(setups=[reserve, create], on_failure_fail_dagrun=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from model_registry import outcomes
from operators.own_run import tpu_number
from operators.tpu_base import (
    TpuAttemptOperator,
    TpuOperator,
    TpuRunScopedOperator,
    timeout_after,
)
from operators.tpu_failures import (
    JOB_KINDS,
    FailureKind,
    TpuTaskFailed,
    TpuTaskRetry,
    typed_failures,
)
from pipeline_config.settings import load_settings
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, ExitKind
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.boot.bundle import build_bundle
from tpu_lifecycle.control.mailbox import submit_job
from tpu_lifecycle.control.observe import recap, reported
from tpu_lifecycle.control.reaper import Reaper
from tpu_lifecycle.control.release import ReleaseReport, release
from tpu_lifecycle.control.verdict import Outcome
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.budgets import renewal_advice
from tpu_lifecycle.records.ledger import idle_share, summary, total
from tpu_lifecycle.records.reservation import (
    OpenReservation,
    check_there,
    open_reservation,
    reserve,
    write_tombstones,
)
from triggers.tpu import TpuJobTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

DELETE_RETRIES = 5

PATIENT_RETRIES: dict[str, Any] = {
    "retries": 30,
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": 900,
}
"""Retries over some hours, for tasks that ask for a TPU or use one: an outage of the store or of a
service, and an error of Airflow's own, cost one retry each. A permanent error fails at once.
Waiting for capacity costs none."""

JOB_ADVICE = {
    ExitKind.OUT_OF_MEMORY: "Lower training.global_batch_size or masking.max_seq_length, or take a "
    "larger tpu.accelerator_type.",
    ExitKind.BAD_DATA: "The records are damaged or of other settings: prepare the partition again.",
    ExitKind.KILLED: "It was killed more often than budget.max_failures allows.",
    ExitKind.HUNG: "It hung more often than budget.max_hangs allows. Look at the stacks in the "
    "mailbox's folder hangs; if it was only slow, raise the limit of its phase in hang.*.",
}
"""Advice for those ways for a job to end that a person can do something about."""


class TpuReserveOperator(TpuRunScopedOperator):
    """Opens a reservation generation for the run, without any cloud request.

    It is the setup whose success makes the teardown run, so it does nothing that a cloud can
    refuse. Each execution opens a new generation and releases the earlier ones. The run goes on, so
    an earlier outcome no longer counts.

    :param project_id: Google Cloud project; None: the connection's. (templated)
    :param tpu_owner: value of the owner label; None: ``REPRETRAIN_OWNER``. (templated)
    :param code_root: folder whose packages the TPU VMs run; None: this program's own folder.
        (templated)
    """

    template_fields = (
        *TpuRunScopedOperator.template_fields,
        "project_id",
        "tpu_owner",
        "code_root",
    )

    def __init__(
        self,
        *,
        project_id: str | None = None,
        tpu_owner: str | None = None,
        code_root: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.project_id = project_id
        self.tpu_owner = tpu_owner
        self.code_root = code_root

    def execute(self, context: Context) -> dict[str, int]:
        """Return ``{"generation": number}``."""
        with typed_failures():
            run = self.find_run(context)
            _require_planned(run, tpu_number(context))
            return self._reserve(run)

    def _reserve(self, run: RunLayout) -> dict[str, int]:
        store = StoreLayout(self.store_uri)
        outcomes.reopen_rented(store, run)
        code = {"source": Path(self.code_root)} if self.code_root else {}
        reservation = reserve(
            store,
            run.root,
            project_id=self.project_id or self.hook.project_id,
            owner=self.tpu_owner or load_settings().owner,
            bundle_sha256=build_bundle(store, **code).sha256,
        )
        record = reservation.record
        self.log.info(
            "Opened %s: a %s in one of %s of project %s, until %s UTC at the latest",
            reservation,
            record.accelerator_type,
            ", ".join(record.zones),
            record.project_id,
            f"{record.expires_at:%F %T}",
        )
        return {"generation": record.generation}


def _require_planned(rental: RunLayout, number: int) -> None:
    """Check that the run's plan includes a TPU with this number.

    :raises TpuTaskFailed: it does not.
    """
    if number and not uris.exists(rental.record):
        raise TpuTaskFailed(
            FailureKind.USER_ERROR,
            f"This run rents no TPU of number {number}: there is no {rental.record}. The numbers "
            "come from the XCom return_value of plan, which somebody has changed: clear plan.",
        )


class TpuCreateOperator(TpuAttemptOperator):
    """Asks for the TPU, zone after zone, and waits until it is READY.

    Returns the number of the attempt that succeeded. A retry goes on with the existing attempt.
    """

    def _use(self, context: Context, reservation: OpenReservation, record: AttemptRecord) -> int:
        self._show_timeline(reservation)
        self.log.info("%s is READY", record.name)
        return record.number


class TpuRunOperator(TpuAttemptOperator):
    """Runs a job on the reservation's TPU and shows its log while it waits, deferred.

    A TPU that is lost (preempted, vanished, silent) is deleted and replaced within
    ``budget.max_preemptions``, and the job is submitted again: it has to resume by itself. Returns
    ``{"status": "succeeded", "attempt": number, "attempts_lost": number}``.

    :param job_id: the job's id, such as ``010-train``; jobs of one TPU run in the order of their
        ids. (templated)
    :param entry_point: module of the code bundle, run as ``python -m``. (templated)
    :param arguments: the module's command line. An operator whose job depends on the run's plan
        overrides :meth:`job_arguments` instead. (templated)
    """

    template_fields = (*TpuAttemptOperator.template_fields, "job_id", "entry_point", "arguments")

    def __init__(
        self, *, job_id: str, entry_point: str, arguments: Sequence[Any] = (), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.job_id = job_id
        self.entry_point = entry_point
        self.arguments = arguments

    def job_arguments(self, context: Context) -> Sequence[Any]:
        """Return the command line of the job's module; called each time the job is submitted."""
        return self.arguments

    def job_ended(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on when the wait for the job is over."""
        with typed_failures():
            reservation, record = self._reopen(event)
            match event["outcome"]:
                case Outcome.SUCCEEDED:
                    return self._result(reservation, record)
                case Outcome.FAILED:
                    self._fail_job(reservation, record, event)
                case Outcome.LOST:
                    self._show_recap(record)
                    self._provisioner(reservation).lose(record, event["reason"], event["cause"])
                    return self._obtain(context, reservation)
                case Outcome.DEADLINE | Outcome.BUDGET:
                    self._stop(reservation, record, event["reason"])
            self._fail(reservation, event)

    def _begin(self, context: Context, reservation: OpenReservation) -> Any:
        """Use the end of a job that ended unobserved; otherwise make sure that the job runs."""
        for record in reservation.attempts()[-1:]:
            verdict = reported(reservation, record, self.job_id)
            if verdict.outcome == Outcome.SUCCEEDED:
                return self._result(reservation, record)
            if verdict.outcome == Outcome.FAILED:
                self._fail_job(reservation, record, verdict.to_event())
        return super()._begin(context, reservation)

    def _use(self, context: Context, reservation: OpenReservation, record: AttemptRecord) -> None:
        """Submit the job unless it is submitted, and wait for its end."""
        arguments = [str(argument) for argument in self.job_arguments(context)]
        is_new = submit_job(
            reservation,
            record,
            job_id=self.job_id,
            entry_point=self.entry_point,
            arguments=arguments,
        )
        self.log.info(
            "%s job %s on %s: python -m %s %s",
            "Submitted" if is_new else "Going on to wait for",
            self.job_id,
            record.name,
            self.entry_point,
            " ".join(arguments),
        )
        deadline = reservation.wait_deadline
        self.defer(
            trigger=TpuJobTrigger(
                job_id=self.job_id,
                viewer=f"try{context['ti'].try_number}",
                **self._trigger_arguments(reservation, record, deadline),
            ),
            method_name="job_ended",
            timeout=timeout_after(deadline, reservation.config.tpu.poll_interval),
        )

    def _show_recap(self, record: AttemptRecord) -> None:
        try:
            lines = recap(record, self.job_id)
        except OSError as error:
            # The replacement of the TPU, which follows, does not need it.
            self.log.warning("How far %s came cannot be told: %s", self.job_id, error)
            return
        for line in lines:
            self.log.info("%s | %s", self.job_id, line)

    def _result(self, reservation: OpenReservation, record: AttemptRecord) -> dict[str, Any]:
        lost = [r for r in reservation.attempts() if AttemptEvent.LOST in r.marks]
        self.log.info("%s succeeded on %s; TPUs lost: %d", self.job_id, record.name, len(lost))
        return {"status": "succeeded", "attempt": record.number, "attempts_lost": len(lost)}

    def _fail_job(
        self, reservation: OpenReservation, record: AttemptRecord, event: dict[str, Any]
    ) -> NoReturn:
        kind = ExitKind(event["exit_kind"])
        advice = JOB_ADVICE.get(kind, "")
        if kind is ExitKind.DEADLINE:
            self._stop(reservation, record, "its time was used up")
            settings = "budget.max_hours, or budget.max_chip_hours or max_cost if these are set,"
            advice = renewal_advice(reservation.run, settings)
        raise TpuTaskFailed(
            JOB_KINDS[kind],
            f"Job {self.job_id} failed on worker {event['worker']}: {kind}. "
            f"{advice}\n{event['reason']}",
        )


class TpuDeleteOperator(TpuRunScopedOperator):
    """Deletes every TPU that the run's reservations ever made, and confirms that it is gone.

    This is the teardown. It neither defers nor relies on another component: even if the triggerer
    is dead, TPUs are deleted. Repeating it is harmless; it has at least five retries.
    """

    role = "teardown"
    retries: int

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("retry_exponential_backoff", 2.0)
        kwargs.setdefault("max_retry_delay", 600)
        super().__init__(multiple_outputs=True, **kwargs)
        self.retries = max(self.retries, DELETE_RETRIES)

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the TPUs; return what was deleted and what it cost."""
        # Always worth another try, whatever the reason: a TPU may be running.
        with typed_failures(always_retry=True):
            self.find_run(context)
            return self._release(context)

    def _release(self, context: Context) -> dict[str, Any]:
        reason = f"delete task, try {context['ti'].try_number}"
        # Before anything that can fail: from now on no TPU is created for this run.
        if write_tombstones(self.run_uri, reason) == 0:
            check_there(RunLayout(self.run_uri))
            self.log.info("No TPU left: nothing was ever reserved for %s", self.run_uri)
            return {"deleted": [], "chip_seconds": 0.0, "cost": 0.0, "idle_share": None}
        reservation = open_reservation(self.run_uri)
        report = release(reservation, self._sweeper(reservation), reason=reason)
        return self._report(reservation, report)

    def _report(self, reservation: OpenReservation, report: ReleaseReport) -> dict[str, Any]:
        self._show_timeline(reservation)
        ledger = report.ledger
        for line in summary(ledger):
            self.log.info("Ledger: %s", line)
        chip_seconds, cost = total(ledger)
        idle = idle_share(ledger)
        self.log.info(
            "No TPU left. Deleted now: %s. %d attempt(s) used %.0f chip-seconds, at most %.2f %s "
            "at %s %s a chip-hour (%s); %s without a training step.",
            ", ".join(map(str, report.deleted)) or "nothing, it was gone already",
            len(ledger.entries),
            chip_seconds,
            cost,
            ledger.currency,
            ledger.price_per_chip_hour,
            ledger.currency,
            ledger.price_date,
            "none" if idle is None else f"{idle:.0%}",
        )
        return {
            "deleted": [str(name) for name in report.deleted],
            "chip_seconds": chip_seconds,
            "cost": cost,
            "idle_share": idle,
        }


class TpuReaperOperator(TpuOperator):
    """Deletes TPUs of ours that are expired or released but still exist.

    It is the second, independent cleanup: it finds TPUs by label and looks up in the store whether
    their run still needs them. Returns one line per TPU it acted on, and fails, after doing all it
    could, if a listing or a deletion failed anywhere.

    :param zones: further zones, besides those in which a TPU was ever requested. (templated)
    :param project_id: Google Cloud project; None: the connection's. (templated)
    :param tpu_owner: value of the owner label; None: ``REPRETRAIN_OWNER``. (templated)
    :param dry_run: only report what would be deleted.
    """

    template_fields = (*TpuOperator.template_fields, "zones", "project_id", "tpu_owner")
    role = "reaper"

    def __init__(
        self,
        *,
        zones: Sequence[str] = (),
        project_id: str | None = None,
        tpu_owner: str | None = None,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.zones = zones
        self.project_id = project_id
        self.tpu_owner = tpu_owner
        self.is_dry_run = dry_run

    def execute(self, context: Context) -> list[str]:
        """Make one pass."""
        with typed_failures(always_retry=True):
            return self._reap()

    def _reap(self) -> list[str]:
        hook = self.hook
        project = self.project_id or hook.project_id
        report = Reaper(
            hook.backend(project),
            StoreLayout(self.store_uri),
            project,
            self.tpu_owner or load_settings().owner,
            self.zones,
            dry_run=self.is_dry_run,
            log=self.log,
        ).reap()
        acted = [str(item) for item in report.reaped]
        self.log.info("Looked at %d TPU(s) of ours, acted on %d", report.seen, len(acted))
        if acted:
            self.log.error(
                "TPU REAPER HAD TO ACT: a teardown did not give back %d TPU(s). Find out why in "
                "the runs named above:\n%s",
                len(acted),
                "\n".join(acted),
            )
        if report.problems:
            problems = "; ".join(report.problems)
            text = f"Not everything could be looked at or deleted: {problems}"
            raise TpuTaskRetry(FailureKind.INFRASTRUCTURE, text)
        return acted
