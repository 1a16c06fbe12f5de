"""Operators that decide whether a candidate replaces the model in use: judge and promote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from model_registry import gate, lease, outcomes, registry
from model_registry.best_scores import best_scores
from operators import task_data
from operators.approval import missing_approval
from operators.failures import PipelineFailure, refused_by
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run
from operators.pipeline_assets import PROMOTED_MODEL, announce_model
from operators.task_data import TaskData
from pipeline_alerts.causes import Remedy
from pipeline_config import parse_config
from pipeline_store import uris
from pipeline_store.formats import (
    EvaluationReport,
    ModelVersion,
    OutcomeKind,
    ProbeReport,
    RunPlan,
    RunRecord,
    Verdict,
    VerdictKind,
)
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models.artifacts import model_files
from trained_models.heritage import of_model

if TYPE_CHECKING:
    from airflow.sdk import Context


class JudgeOperator(TellsOpenLineage, BaseOperator):
    """Compares candidate and baseline and writes the verdict with its numbers.

    It reads the reports that the jobs wrote, never the state of a task: a person can mark a task as
    successful. With ``promotion.probe_tasks`` there must be a probe report. A rejection is the
    run's outcome.

    Returns the verdict's text.

    :param store_uri: root of the store.
    """

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri

    def execute(self, context: Context) -> str:
        """Judge, store the verdict and return its text."""
        run = own_run(context, self.store_uri)
        baseline = RunPlan.load(run.plan).parent_version
        config = parse_config(uris.read(run.config), run.config)
        report = EvaluationReport.load(run.evaluation(baseline))
        probe = ProbeReport.load(run.probe(baseline)) if config.promotion.probe_tasks else None
        lineage = StoreLayout(self.store_uri).lineage(config.model.lineage_id)
        verdict = gate.judge(
            report,
            config.promotion,
            baseline_version=baseline,
            probe=probe,
            best=best_scores(lineage, baseline),
            from_sentence_encoder=_from_sentence_encoder(run),
        )
        if not verdict.create(run.verdict(baseline)):
            verdict = Verdict.load(run.verdict(baseline))
        self.log.info("%s: %s", verdict.verdict.upper(), verdict.reason)
        if verdict.verdict is not VerdictKind.PROMOTED:
            reason = f"{verdict.verdict}: {verdict.reason}"
            outcomes.record(run, OutcomeKind.REJECTED, reason, written_by=self.task_id)
        return str(verdict.verdict)

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_judge(run)


def _from_sentence_encoder(run: RunLayout) -> bool:
    kept = of_model(model_files(run.training.root))
    return kept is not None and bool(kept.sentence_transformers)


class PromoteOperator(TellsOpenLineage, BaseOperator):
    """Publishes a promoted candidate as an immutable version and puts it into use.

    Skipped when the verdict is a rejection. Fails when a required approval is missing, when the run
    no longer holds its lineage, and when another model came into use since the evaluation, because
    the comparison was then with the wrong model.

    Emits the asset ``promoted_model``. Returns the version id.

    :param store_uri: root of the store.
    """

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(outlets=[PROMOTED_MODEL], **kwargs)
        self.store_uri = store_uri

    def execute(self, context: Context) -> str:
        """Publish and promote."""
        run = own_run(context, self.store_uri)
        plan = RunPlan.load(run.plan)
        verdict = Verdict.load(run.verdict(plan.parent_version))
        if verdict.verdict is not VerdictKind.PROMOTED:
            raise AirflowSkipException(f"The model in use stays: {verdict.reason}")
        config = parse_config(uris.read(run.config), run.config)
        if problem := missing_approval(run, config, plan.parent_version, context["dag_run"]):
            raise PipelineFailure(Remedy.MEND_AND_CLEAR, problem)
        try:
            version = self._promote(run, verdict.reason)
        except registry.RegistryError as error:
            # Another try cannot help.
            raise refused_by(error) from error
        outcomes.record(
            run,
            OutcomeKind.PROMOTED,
            verdict.reason,
            version_id=version.version_id,
            written_by=self.task_id,
        )
        announce_model(context, version, partition=plan.partition, reason=verdict.reason)
        self.log.info("In use: %s (%s)", version.version_id, verdict.reason)
        return version.version_id

    def _promote(self, run: RunLayout, reason: str) -> ModelVersion:
        store, record = StoreLayout(self.store_uri), RunRecord.load(run.record)
        lineage = store.lineage(record.lineage_id)
        lease.require_held(lineage, record.run_key)
        version = registry.publish(store, run)
        # Copying takes minutes, during which a person may have broken the lease.
        lease.require_held(lineage, record.run_key)
        registry.promote(
            lineage, version.version_id, expected_baseline=version.parent, reason=reason
        )
        return version

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_promote(run)
