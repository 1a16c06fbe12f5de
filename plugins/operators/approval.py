"""Asks a person before a better candidate comes into use, and records the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.hitl import HITLUser

from model_registry import lease, outcomes
from model_registry.errors import LeaseLostError
from operators import task_data
from operators.failures import PipelineFailure, refused_by
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run
from operators.task_data import TaskData
from pipeline_alerts.causes import Remedy
from pipeline_config import PipelineConfig, load_preset, parse_config
from pipeline_config.settings import load_settings
from pipeline_config.training_schema import PromotionConfig
from pipeline_store import uris
from pipeline_store.formats import (
    Answer,
    EvaluationReport,
    Ledger,
    OutcomeKind,
    RunApproval,
    RunPlan,
    RunRecord,
    TrainingResult,
    Verdict,
    VerdictKind,
)
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.records import ledger

if TYPE_CHECKING:
    from airflow.sdk import Context

APPROVE, REJECT = "Approve", "Reject"
_COMMENT = "comment"
# A name in Markdown that comes from a person could otherwise become a link or a heading.
_MARKUP = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]()<>#+-!|"})


class ApproveOperator(TellsOpenLineage, HITLOperator):
    """Lets a person decide whether a candidate that won its comparison comes into use.

    Passes at once unless ``promotion.require_approval`` or ``promotion.approvers`` is set. With
    approvers, only they can answer, and not for a run that they triggered themselves. Skipped, with
    all later tasks, when the verdict is a rejection. Otherwise the task waits under *Required
    Actions* in the state ``awaiting_input``, without a worker slot, a trigger or a TPU, and keeps
    the lineage's lease meanwhile. *Approve* lets the run go on. *Reject*, or no answer within
    ``promotion.approval_timeout_hours``, ends it as skipped, with the outcome *rejected*.

    The question and its answer are in ``approval.json``. An approval is valid as long as candidate
    and baseline stay the same: a task that runs again does not ask twice. After a rejection,
    clearing the task asks again.

    Returns who approved, or None when nobody had to be asked.

    :param store_uri: root of the store.
    """

    template_fields: Sequence[str] = ("subject", "body")

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        # Airflow passes the DAG's form; the person who answers gets just one field.
        kwargs.pop("params", None)
        comment = Param("", source="task", type=["null", "string"], description="Why; optional.")
        super().__init__(
            subject="Put the candidate of {{ dag_run.run_id }} into use?",
            options=[APPROVE, REJECT],
            # Airflow's choice when the time is over.
            defaults=REJECT,
            params={_COMMENT: comment},
            **kwargs,
        )
        self.store_uri = store_uri

    def execute(self, context: Context) -> str | None:
        """Ask, unless nobody needs to be asked."""
        run = own_run(context, self.store_uri)
        baseline = RunPlan.load(run.plan).parent_version
        verdict = Verdict.load(run.verdict(baseline))
        if verdict.verdict is not VerdictKind.PROMOTED:
            raise AirflowSkipException(f"Nothing to approve: {verdict.reason}")
        config = parse_config(uris.read(run.config), run.config)
        if not asks_a_person(config):
            self.log.info("promotion.require_approval is off: nobody is asked.")
            return None
        if (given := approval_given(run, baseline)) is not None:
            self.log.info("Approved by %s at %s UTC", given.answered_by, _time(given.answered))
            return given.answered_by
        self.assigned_users = _answerers(config, context["dag_run"])
        self.response_timeout = timedelta(hours=config.promotion.approval_timeout_hours)
        now = datetime.now(UTC)
        deadline = now + self.response_timeout
        self._keep_lineage(run, deadline)
        asked = RunApproval(
            candidate_sha256=_candidate(run, baseline),
            baseline=baseline,
            answer=Answer.WAITING,
            asked=now,
            deadline=deadline,
        )
        asked.write(run.approval)
        self.body = "\n".join(_question(run, config, verdict, asked))
        super().execute(context)
        return None

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on with the answer, or with the default if nobody answered in time."""
        run = own_run(context, self.store_uri)
        super().execute_complete(context, event)
        asked = RunApproval.load(run.approval)
        user = event["responded_by_user"]
        who = user["name"] if user else None
        comment = str(event["params_input"].get(_COMMENT) or "") if event["params_input"] else ""
        answer = Answer.APPROVED if event["chosen_options"] == [APPROVE] else Answer.REJECTED
        if event.get("timedout") or who is None:
            # Nobody approved: the chosen option is the default.
            answer = Answer.UNANSWERED
        answered = asked.model_copy(
            update={
                "answer": answer,
                "answered": event["responded_at"],
                "answered_by": who,
                "answered_by_id": user["id"] if user else None,
                "comment": comment,
            }
        )
        answered.write(run.approval)
        if answer is Answer.APPROVED:
            self.log.info("Approved by %s. %s", who, comment)
            return who
        reason = refusal(answered)
        outcomes.record(run, OutcomeKind.REJECTED, reason, written_by=self.task_id)
        raise AirflowSkipException(reason)

    def _keep_lineage(self, run: RunLayout, deadline: datetime) -> None:
        """Extend the run's lease until an answer is due."""
        record = RunRecord.load(run.record)
        lineage = StoreLayout(self.store_uri).lineage(record.lineage_id)
        try:
            lease.extend(lineage, record.run_key, deadline + lease.SPARE)
        except LeaseLostError as error:
            raise refused_by(error) from error

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_approve(run)


def approval_given(run: RunLayout, baseline: str | None) -> RunApproval | None:
    """Return a person's approval of the run's candidate against this baseline, if there is one."""
    found = RunApproval.load_or_none(run.approval)
    if found is None or found.answer is not Answer.APPROVED or found.baseline != baseline:
        return None
    return found if found.candidate_sha256 == _candidate(run, baseline) else None


def _installation() -> PromotionConfig:
    """Return the installation's current promotion settings; a run's record may have older ones."""
    return load_preset(load_settings().preset).promotion


def _approvers(config: PipelineConfig) -> list[str]:
    """Return whose approval counts; empty: anyone who may answer in Airflow."""
    return _installation().approvers or config.promotion.approvers


def _requester(dag_run: Any) -> str | None:
    """Return the name of the person who started a run; None: its schedule or another DAG did.

    :raises PipelineFailure: a person did, but it is not known who. A backfill may take over a
        scheduled run, with other settings, and Airflow then stores no name.
    """
    name: str | None = dag_run.triggering_user_name
    if name is None and dag_run.run_type in ("manual", "backfill"):
        raise PipelineFailure(
            Remedy.NEW_RUN,
            "promotion.approvers: Airflow does not know who started this run "
            f"({dag_run.run_type}), and nobody approves a run of their own. Trigger a new run.",
        )
    return name


def _answerers(config: PipelineConfig, dag_run: Any) -> list[HITLUser] | None:
    """Return who may answer; None: anyone who may answer in Airflow.

    :raises PipelineFailure: nobody may. To Airflow an empty list would mean everybody.
    """
    approvers = _approvers(config)
    if not approvers:
        return None
    requester = _requester(dag_run)
    others = [HITLUser(id=user, name=user) for user in approvers if user != requester]
    if not others:
        raise PipelineFailure(
            Remedy.MEND_AND_CLEAR,
            f"promotion.approvers: only {requester!r} is named, who triggered this run, and nobody "
            "approves a run of their own. Name another person in the installation's preset, or let "
            "somebody else trigger the run.",
        )
    return others


def asks_a_person(config: PipelineConfig) -> bool:
    """Return whether a better candidate needs a person's approval."""
    asks = (config.promotion, _installation())
    return any(one.require_approval or one.approvers for one in asks)


def missing_approval(
    run: RunLayout, config: PipelineConfig, baseline: str | None, dag_run: Any
) -> str | None:
    """Return why a candidate may not be promoted without a valid approval; None: it may.

    For the task that promotes: a person can mark the task that asks as successful.

    :param dag_run: the run, as Airflow knows it.
    :raises PipelineFailure: it is not known who started the run.
    """
    if not asks_a_person(config):
        return None
    if (given := approval_given(run, baseline)) is not None:
        return _unfit_approver(given, config, dag_run)
    return (
        f"promotion.require_approval asks for a person's answer, but {run.approval} has no "
        "approval of this candidate. Clear the task `approve` to be asked again."
    )


def _unfit_approver(given: RunApproval, config: PipelineConfig, dag_run: Any) -> str | None:
    """Return why an approval does not count; None: it does, or any person may approve."""
    approvers = _approvers(config)
    if not approvers:
        return None
    requester = _requester(dag_run)
    # Flask AppBuilder's user ids are numbers, so approvers on a team server are login names.
    if {given.answered_by_id, given.answered_by}.isdisjoint(approvers):
        why = f"is not among promotion.approvers ({', '.join(approvers)})"
    elif requester in (given.answered_by_id, given.answered_by):
        why = "triggered this run, and nobody approves a run of their own"
    else:
        return None
    return (
        f"promotion.approvers: the candidate was approved by {given.answered_by_id!r}, who {why}. "
        "Clear the task `approve` and let another of them answer."
    )


def refusal(approval: RunApproval) -> str:
    """Return why a candidate was not approved, as a sentence."""
    if approval.answer is Answer.UNANSWERED:
        return f"Nobody answered by {_time(approval.deadline)} UTC, so the model in use stays."
    comment = f": {approval.comment}" if approval.comment else "."
    return f"{approval.answered_by} rejected the candidate{comment}"


def _candidate(run: RunLayout, baseline: str | None) -> str:
    report = EvaluationReport.load(run.evaluation(baseline))
    return next(model.files_sha256 for model in report.models if model.name == "candidate")


def _question(
    run: RunLayout, config: PipelineConfig, verdict: Verdict, asked: RunApproval
) -> Iterator[str]:
    """Yield the text of the question as Markdown: the facts that a person needs to decide."""
    report = EvaluationReport.load(run.evaluation(asked.baseline))
    result = TrainingResult.load(run.training.result)
    plan = RunPlan.load(run.plan)
    record = RunRecord.load(run.record)
    yield f"**The gate lets it pass**: {verdict.reason}\n"
    yield "Masked-LM loss on held-out documents, nats per token:\n"
    yield from _losses(report, config.evaluation.general_partition)
    yield ""
    start = plan.parent_version or "no model in use"
    yield f"* lineage {_plain(record.lineage_id)}, starting from {_plain(start)}"
    yield f"* trained on {_names(plan.trained)}; replayed: {_names(plan.replayed)}"
    yield f"* {result.train_steps:,} steps, {result.tokens:,} tokens"
    yield f"* TPU: {_spent(run)}"
    yield f"* everything about it: [the run's tab Model]({_page(record)})"
    yield (
        f"\nWithout an answer by {_time(asked.deadline)} UTC the model in use stays. Until then no "
        "other run of the lineage trains."
    )


def _losses(report: EvaluationReport, general: str | None) -> Iterator[str]:
    names = [model.name for model in report.models]
    yield "| held-out set | documents | " + " | ".join(names) + " | unigram |"
    yield "|---" * (len(names) + 3) + "|"
    for scores in report.models[0].sets:
        name = scores.set_name
        kind = " (new)" if name == report.current_set else " (general)" if name == general else ""
        losses = [
            next(f"{s.loss:.4f}" for s in model.sets if s.set_name == name)
            for model in report.models
        ]
        unigram = report.unigram_losses.get(name)
        cells = [f"{_plain(name)}{kind}", str(len(scores.document_ids)), *losses]
        yield f"| {' | '.join(cells)} | {'' if unigram is None else f'{unigram:.4f}'} |"


def _spent(run: RunLayout) -> str:
    """Return the cost of those of the run's TPUs that are deleted already."""
    ledgers = [
        Ledger.load(uri)
        for uri in uris.list_files(run.reservations)
        if uri.endswith("/ledger.json")
    ]
    if not ledgers:
        return "not given back yet, so not yet known"
    totals = [ledger.total(found) for found in ledgers]
    hours, cost = sum(s for s, _ in totals) / 3600, sum(c for _, c in totals)
    return f"{hours:.2f} chip-hours, at most {cost:.2f} {ledgers[-1].currency}"


def _names(manifests: dict[str, str]) -> str:
    return ", ".join(map(_plain, sorted(manifests))) or "nothing"


def _page(record: RunRecord) -> str:
    base = str(conf.get("api", "base_url", fallback="")).rstrip("/")
    return f"{base}/dags/{quote(record.dag_id)}/runs/{quote(record.run_id, safe='')}/plugin/model"


def _plain(text: str) -> str:
    return text.translate(_MARKUP)


def _time(time: datetime | None) -> str:
    return f"{time.astimezone(UTC):%F %H:%M}" if time else "?"
