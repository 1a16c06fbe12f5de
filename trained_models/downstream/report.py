"""Writes the results of a fine-tuning run: ``training_summary.json``, and a page made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from pipeline_config.finetuning import MODEL
from pipeline_store import uris
from pipeline_store.formats import (
    FinetuningPlan,
    FinetuningReport,
    ModelComparison,
    TaskManifest,
    TaskSummary,
)
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models.downstream import training_text
from trained_models.downstream.page import render
from trained_models.downstream.trials import FinishedTrial
from trained_models.errors import UserError


def write_report(store: StoreLayout, run: RunLayout) -> FinetuningReport:
    """Summarize and compare the models that a run has trained; write the report and its page.

    A repeated call finds the existing report, and writes the same page.

    :raises UserError: a trial of the run's plan is not done.
    :raises BadDataError: trials that belong together were not trained or tested alike.
    :raises FormatError: a file of a trial is damaged.
    """
    plan = FinetuningPlan.load(run.finetuning_plan)
    manifests = {
        name: TaskManifest.load(store.resolve(uri)) for name, uri in plan.manifests.items()
    }
    trials = _finished(run, plan)
    report = FinetuningReport.load_or_none(run.training_summary)
    if report is None:
        report = _report(store, run, plan, manifests, trials)
        if not report.create(run.training_summary):
            report = FinetuningReport.load(run.training_summary)
    page = render(report, manifests, {one.result.trial.trial_id: one.result for one in trials})
    uris.write(run.training_page, page.encode())
    return report


def _finished(run: RunLayout, plan: FinetuningPlan) -> list[FinishedTrial]:
    missing = [
        trial.trial_id for trial in plan.trials if not uris.exists(run.trial(trial.trial_id).result)
    ]
    if missing:
        raise UserError(
            f"{len(missing)} of {len(plan.trials)} trials in {run.trials} have no result, such as "
            f"{missing[0]}. Clear the task that trains them; finished ones are not done again."
        )
    return [FinishedTrial.load(run.trial(trial.trial_id)) for trial in plan.trials]


def _report(
    store: StoreLayout,
    run: RunLayout,
    plan: FinetuningPlan,
    manifests: Mapping[str, TaskManifest],
    trials: list[FinishedTrial],
) -> FinetuningReport:
    # Imported here because operators import this module: parsing a DAG must not load scikit-learn.
    from trained_models.downstream.summaries import summarize

    groups: dict[tuple[str, str], list[FinishedTrial]] = {}
    for one in trials:
        groups.setdefault((one.result.trial.task, one.result.trial.model), []).append(one)
    summaries = {
        (task, model): summarize(manifests[task], group) for (task, model), group in groups.items()
    }
    return FinetuningReport(
        # Its folder's name; a run by hand has no run.json.
        run_key=run.root.rpartition("/")[2],
        models=plan.models,
        tasks=list(summaries.values()),
        comparisons=list(_comparisons(store, plan, manifests, summaries, trials)),
        created=datetime.now(UTC),
    )


def _comparisons(
    store: StoreLayout,
    plan: FinetuningPlan,
    manifests: Mapping[str, TaskManifest],
    summaries: Mapping[tuple[str, str], TaskSummary],
    trials: list[FinishedTrial],
) -> Iterator[ModelComparison]:
    """Yield comparisons of the model with each other one, on each task that both were tested on."""
    from trained_models.downstream.comparison import compare
    from trained_models.downstream.summaries import chosen_trials

    for (task, name), summary in summaries.items():
        own = summaries.get((task, MODEL))
        if name == MODEL or own is None or not (own.metrics and summary.metrics):
            continue
        uri = store.resolve(plan.manifests[task])
        yield compare(
            manifests[task],
            chosen_trials(own, trials),
            chosen_trials(summary, trials),
            in_training_text=training_text.find(store, uri, plan.models[MODEL], plan.models[name]),
        )
