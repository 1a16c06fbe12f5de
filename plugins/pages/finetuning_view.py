"""Collects what the tab *Model* shows for a fine-tuning run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pages.curves import metric_records
from pages.progress import JobProgress, running_jobs
from pages.reading import Reader
from pages.settings_view import SettingsView, settings_view
from pages.spending import Spending, spending
from pipeline_config import FinetuningConfig, parse_finetuning_config
from pipeline_store import identity, uris
from pipeline_store.formats import (
    CompressedModel,
    FinetuningPlan,
    FinetuningReport,
    ProductionPointer,
    RunEstimate,
    RunOutcome,
    RunRecord,
    TaskManifest,
    TaskSplit,
    Trial,
    TrialResult,
)
from pipeline_store.layout import RunLayout, StoreLayout, TrialLayout
from tpu_lifecycle.records.trainings import rental_folders
from trained_models import metric_files

MOST_TRIALS = 200


@dataclass(frozen=True)
class TrialRow:
    """One trial with its progress so far."""

    trial: Trial
    tpu: int
    metric: str
    """The metric by which models are compared; empty while the task is not known."""
    result: TrialResult | None
    steps: int | None = None
    """Steps that an unfinished trial has reported."""
    train_steps: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    eta_seconds: float | None = None

    @property
    def validation(self) -> float | None:
        """The metric on the validation split."""
        return self._score(TaskSplit.VALIDATION)

    @property
    def test(self) -> float | None:
        """The metric on the test split."""
        return self._score(TaskSplit.TEST)

    def _score(self, split: TaskSplit) -> float | None:
        scores = self.result.scores.get(split) if self.result else None
        return scores.metrics.get(self.metric) if scores else None


@dataclass(frozen=True)
class ChildRow:
    """A smaller model of one of the run's classifiers."""

    model: CompressedModel
    is_of_version_in_use: bool


@dataclass
class FinetuningView:
    """A fine-tuning run with its results so far."""

    record: RunRecord
    config: FinetuningConfig | None = None
    settings: SettingsView | None = None
    estimate: RunEstimate | None = None
    plan: FinetuningPlan | None = None
    rows: list[TrialRow] = field(default_factory=list)
    more: int = 0
    """Trials that are not shown."""
    report: FinetuningReport | None = None
    has_page: bool = False
    children: list[ChildRow] = field(default_factory=list)
    """Sorted by classifier and name."""
    child_pages: list[str] = field(default_factory=list)
    """Classifiers whose smaller models have a page."""
    jobs: list[JobProgress] = field(default_factory=list)
    """Jobs that run on its TPUs now."""
    spending: Spending | None = None
    outcome: RunOutcome | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Number of shown trials that are done."""
        return sum(row.result is not None for row in self.rows)


def finetuning_view(store: StoreLayout, dag_id: str, run_id: str) -> FinetuningView | None:
    """Return the view of an Airflow run; None when it is not a fine-tuning run."""
    reader = Reader()
    run = store.run(identity.run_key(dag_id, run_id))
    record = reader.load(RunRecord, run.record)
    if record is None or record.partition:
        return None
    view = FinetuningView(record=record, problems=reader.problems)
    view.config = reader.attempt(lambda: _config(run))
    view.settings = settings_view(view.config, reader)
    view.estimate = reader.load(RunEstimate, run.estimate)
    view.plan = reader.load(FinetuningPlan, run.finetuning_plan)
    if view.plan is not None and view.config is not None:
        view.rows = list(_rows(store, run, view.plan, view.config, reader))
        view.more = max(0, len(view.plan.trials) - MOST_TRIALS)
    view.report = reader.load(FinetuningReport, run.training_summary)
    view.has_page = uris.exists(run.training_page)
    view.children = list(_children(store, run, record.lineage_id, reader))
    view.child_pages = child_pages(run)
    view.spending = reader.attempt(lambda: spending(rental_folders(run)))
    view.outcome = reader.load(RunOutcome, run.outcome)
    if view.outcome is None:
        view.jobs = running_jobs(run, reader)
    return view


def child_pages(run: RunLayout) -> list[str]:
    """Return the classifiers whose smaller models have a page, sorted."""
    found = uris.glob(run.children("*").page)
    return sorted(uri.split("/")[-2] for uri in found)


def _children(
    store: StoreLayout, run: RunLayout, lineage_id: str, reader: Reader
) -> Iterator[ChildRow]:
    places = sorted(uris.glob(run.children("*").child("*").record))
    if not places:
        return
    pointer = reader.load(ProductionPointer, store.lineage(lineage_id).production)
    in_use = None if pointer is None else pointer.version_id
    for place in places:
        model = reader.load(CompressedModel, place)
        if model is not None:
            parent = model.parent.version_id
            yield ChildRow(model, parent is not None and parent == in_use)


def _config(run: RunLayout) -> FinetuningConfig | None:
    data = uris.read_or_none(run.config)
    return None if data is None else parse_finetuning_config(data, run.config)


def _rows(
    store: StoreLayout,
    run: RunLayout,
    plan: FinetuningPlan,
    config: FinetuningConfig,
    reader: Reader,
) -> Iterator[TrialRow]:
    metrics = {
        task: manifest.compared_by
        for task, uri in plan.manifests.items()
        if (manifest := reader.load(TaskManifest, store.resolve(uri))) is not None
    }
    tpus = {
        trial.trial_id: number
        for number, share in enumerate(plan.shares(config.finetuning.parallel_tpus))
        for trial in share
    }
    for trial in plan.trials[:MOST_TRIALS]:
        place, tpu = run.trial(trial.trial_id), tpus[trial.trial_id]
        result = reader.load(TrialResult, place.result)
        row = TrialRow(trial, tpu, metrics.get(trial.task, ""), result)
        yield row if result is not None else _with_progress(row, place, reader)


def _with_progress(row: TrialRow, place: TrialLayout, reader: Reader) -> TrialRow:
    """Return the row of an unfinished trial with the latest numbers from its training."""
    records = metric_records(place.training, reader)
    loops = [one for one in records if one["kind"] == metric_files.LOOP]
    starts = [one for one in records if one["kind"] == metric_files.START]
    if not loops or not starts:
        return row
    last, train_steps = loops[-1], int(starts[-1]["train_steps"])
    pace = last.get("steps_per_second")
    return replace(
        row,
        steps=int(last["step"]),
        train_steps=train_steps,
        loss=last.get("loss"),
        tokens_per_second=last.get("tokens_per_second"),
        eta_seconds=(train_steps - int(last["step"])) / pace if pace else None,
    )
