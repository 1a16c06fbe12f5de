"""Collects what the tab *Model* shows for a re-pretraining run."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from model_registry import lease
from model_registry.best_scores import LOSS, histories
from pages.charts import IntervalChart, LineChart, Series, interval_chart, line_chart
from pages.compare_view import parent_key
from pages.curves import metric_records, training_curve
from pages.progress import JobProgress, running_jobs
from pages.reading import Reader
from pages.settings_view import SettingsView, settings_view
from pages.spending import Spending, spending
from pipeline_config import PipelineConfig, parse_config
from pipeline_store import identity, uris
from pipeline_store.formats import (
    EvaluationReport,
    LineageLease,
    PreparedInput,
    RunApproval,
    RunEstimate,
    RunOutcome,
    RunPlan,
    RunRecord,
    TrainingResult,
    Verdict,
    VerdictKind,
)
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout
from trained_models import metric_files

MOST_FORGOTTEN = 2


@dataclass(frozen=True)
class SetRow:
    """The scores of all models on one set of held-out documents."""

    name: str
    kind: str
    """``new`` for the run's own partition, ``general``, else empty."""
    documents: int
    losses: list[float]
    unigram: float | None
    recalls: list[float | None]
    """By model, the share of documents whose second half its embeddings rank first."""


@dataclass
class RunView:
    """A run with its results so far."""

    record: RunRecord
    config: PipelineConfig | None = None
    settings: SettingsView | None = None
    parent_key: str | None = None
    """Key of the run that made the model it starts from."""
    estimate: RunEstimate | None = None
    plan: RunPlan | None = None
    result: TrainingResult | None = None
    curve: LineChart | None = None
    head: TrainingResult | None = None
    """Result of training a new masked-LM head alone, before the model."""
    head_curve: LineChart | None = None
    rollbacks: list[dict[str, Any]] = field(default_factory=list)
    verdict: Verdict | None = None
    models: list[str] = field(default_factory=list)
    sets: list[SetRow] = field(default_factory=list)
    improvements: IntervalChart | None = None
    forgetting: list[LineChart] = field(default_factory=list)
    """Loss over the lineage's versions, for the sets with the most forgetting."""
    jobs: list[JobProgress] = field(default_factory=list)
    """Jobs that run on its TPU now."""
    spending: Spending | None = None
    approval: RunApproval | None = None
    outcome: RunOutcome | None = None
    version_id: str | None = None
    """The version that the run published."""
    reports: list[str] = field(default_factory=list)
    """Partitions whose data report can be shown."""
    lease: LineageLease | None = None
    has_lineage: bool = False
    is_waiting: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def has_recalls(self) -> bool:
        """Whether embeddings were measured, as in every evaluation but older ones."""
        return any(recall is not None for row in self.sets for recall in row.recalls)

    @property
    def is_better(self) -> bool:
        """Whether the verdict is a promotion."""
        return self.verdict is not None and self.verdict.verdict is VerdictKind.PROMOTED


def run_view(store: StoreLayout, dag_id: str, run_id: str) -> RunView | None:
    """Return the view of an Airflow run; None when the run left nothing in the store."""
    reader = Reader()
    run_key = identity.run_key(dag_id, run_id)
    run = store.run(run_key)
    record = reader.load(RunRecord, run.record)
    if record is None:
        return None
    view = RunView(record=record, problems=reader.problems)
    lineage = store.lineage(record.lineage_id)
    view.config = reader.attempt(lambda: _config(run))
    view.settings = settings_view(view.config, reader)
    view.estimate = reader.load(RunEstimate, run.estimate)
    view.plan = reader.load(RunPlan, run.plan)
    view.parent_key = parent_key(lineage, view.plan, reader)
    view.result = reader.load(TrainingResult, run.training.result)
    _add_training(view, run, reader)
    _add_comparison(view, run, reader)
    _add_forgetting(view, lineage, reader)
    view.spending = reader.attempt(lambda: spending([run]))
    view.approval = reader.load(RunApproval, run.approval)
    view.outcome = reader.load(RunOutcome, run.outcome)
    if view.outcome is None:
        view.jobs = running_jobs(run, reader)
    version_id = identity.version_id(run_key)
    view.version_id = version_id if uris.exists(lineage.model(version_id)) else None
    view.reports = sorted(known_reports(run, reader))
    _add_lease(view, lineage, run_key, reader)
    return view


def known_reports(run: RunLayout, reader: Reader) -> dict[str, str]:
    """Return the data report pages, by partition, of all prepared or planned partitions."""
    plan = reader.load(RunPlan, run.plan)
    manifests = {} if plan is None else plan.evaluated | plan.replayed | plan.trained
    record = reader.load(RunRecord, run.record)
    prepared = reader.load(PreparedInput, run.prepared_partition)
    if record is not None and prepared is not None:
        manifests.setdefault(record.partition, prepared.manifest)
    return {
        name: uri.removesuffix(".json") + ".html"
        for name, uri in manifests.items()
        if uri.endswith(".json")
    }


def _config(run: RunLayout) -> PipelineConfig | None:
    data = uris.read_or_none(run.config)
    return None if data is None else parse_config(data, run.config)


def _add_training(view: RunView, run: RunLayout, reader: Reader) -> None:
    if view.plan is not None:
        head = run.head(view.plan.parent_version)
        view.head = reader.load(TrainingResult, head.result)
        view.head_curve = training_curve(
            "Masked-LM loss of the new head alone", metric_records(head, reader)
        )
    records = metric_records(run.training, reader)
    view.curve = training_curve("Masked-LM loss while training", records)
    view.rollbacks = [record for record in records if record["kind"] == metric_files.ROLLBACK]


def _add_comparison(view: RunView, run: RunLayout, reader: Reader) -> None:
    if view.plan is None:
        return
    baseline = view.plan.parent_version
    view.verdict = reader.load(Verdict, run.verdict(baseline))
    report = reader.load(EvaluationReport, run.evaluation(baseline))
    if report is None:
        return
    general = view.config.evaluation.general_partition if view.config else None
    losses = {
        (model.name, scores.set_name): scores.loss
        for model in report.models
        for scores in model.sets
        if sum(scores.token_counts)
    }
    recalls = {
        (model.name, scores.set_name): scores.recall_at_1
        for model in report.models
        for scores in model.sets
    }
    view.models = [model.name for model in report.models]
    for scores in report.models[0].sets:
        name = scores.set_name
        kind = "new" if name == report.current_set else "general" if name == general else ""
        view.sets.append(
            SetRow(
                name=name,
                kind=kind,
                # Counted as in the verdict: a document without a masked token says nothing.
                documents=sum(count > 0 for count in scores.token_counts),
                losses=[losses.get((model, name), float("nan")) for model in view.models],
                unigram=report.unigram_losses.get(name),
                recalls=[recalls.get((model, name)) for model in view.models],
            )
        )
    view.improvements = interval_chart(
        [row for one in view.sets if (row := _improvement(one, report, view.verdict)) is not None]
    )


def _improvement(
    row: SetRow, report: EvaluationReport, verdict: Verdict | None
) -> tuple[str, float, float | None, float | None] | None:
    """Return the candidate's improvement on a set, by the gate's own numbers where it has any."""
    if row.name == report.current_set and verdict is not None:
        return row.name, verdict.improvement, verdict.improvement_low, verdict.improvement_high
    if len(row.losses) > 1:
        return row.name, row.losses[1] - row.losses[0], None, None
    return None


def _add_forgetting(view: RunView, lineage: LineageLayout, reader: Reader) -> None:
    if view.plan is None or view.verdict is None:
        return
    parent = view.plan.parent_version
    most = sorted(view.verdict.forgetting, key=lambda one: one.forgotten, reverse=True)
    worst = most[:MOST_FORGOTTEN]
    names = [one.set_name for one in worst]
    found = reader.attempt(lambda: histories(lineage, parent, names, LOSS)) or {}
    for one in worst:
        history = found.get(one.set_name, [])
        losses = [*(loss for _, loss in history), one.candidate_loss]
        chart = line_chart(
            f"Loss on {one.set_name} over the versions of the lineage",
            "version",
            "nats per token",
            [
                Series("best so far", "b", list(enumerate(accumulate(losses, min)))),
                Series("version", "a", list(enumerate(losses)), dots=True),
            ],
            x_names=[*(version_id[-6:] for version_id, _ in history), "this run"],
        )
        view.forgetting += [chart] if chart else []


def _add_lease(view: RunView, lineage: LineageLayout, run_key: str, reader: Reader) -> None:
    view.lease = reader.attempt(lambda: lease.holder(lineage))
    view.has_lineage = view.lease is not None and view.lease.run_key == run_key
    waiting = reader.attempt(lambda: lease.waiting(lineage)) or []
    view.is_waiting = any(ticket.run_key == run_key for ticket in waiting)
