"""Lists the data that the tasks of a fine-tuning run have read and written, from its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from model_registry.finetuning_plans import rental_count
from operators.task_data import Data, TaskData, prepared_task
from pipeline_config import parse_finetuning_config
from pipeline_store import uris
from pipeline_store.formats import (
    FinetuningPlan,
    FinetuningReport,
    ModelExports,
    Trial,
    TrialResult,
)
from pipeline_store.layout import RunLayout


def of_plan(run: RunLayout) -> TaskData:
    """Return the tasks and models of the plan, and the plan."""
    plan = FinetuningPlan.load_or_none(run.finetuning_plan)
    if plan is None:
        return TaskData()
    inputs = [*_tasks(run, plan.trials), *_models(plan, plan.models)]
    return TaskData(inputs, [Data(run.finetuning_plan, "plan of a run", rows=len(plan.trials))])


def of_finetune(run: RunLayout, number: int) -> TaskData:
    """Return the tasks and models that one TPU's trials began with, and the trained trials.

    :param number: number of the TPU, from 0.
    """
    plan = FinetuningPlan.load_or_none(run.finetuning_plan)
    if plan is None:
        return TaskData()
    config = parse_finetuning_config(uris.read(run.config), run.config)
    shares = plan.shares(rental_count(config, plan))
    trials = shares[number] if number < len(shares) else []
    models = _models(plan, [trial.model for trial in trials])
    return TaskData([*_tasks(run, trials), *models], list(_trained(run, trials)))


def of_report(run: RunLayout) -> TaskData:
    """Return all trials and the report on them."""
    plan = FinetuningPlan.load_or_none(run.finetuning_plan)
    report = FinetuningReport.load_or_none(run.training_summary)
    trials = list(_trained(run, plan.trials)) if plan else []
    about = "scores over seeds, and whether re-pretraining paid"
    rows = len(trials)
    return TaskData(trials, [Data(run.training_summary, about, rows=rows)] if report else [])


def of_export(run: RunLayout) -> TaskData:
    """Return the classifiers that were exported, and the exports."""
    plan, data = FinetuningPlan.load_or_none(run.finetuning_plan), TaskData()
    for trial in plan.trials if plan else []:
        layout = run.trial_exports(trial.trial_id)
        exports = ModelExports.load_or_none(layout.record)
        if exports is not None:
            data.inputs.extend(_trained(run, [trial]))
            files = [file for one in exports.formats.values() for file in one.files]
            data.outputs.append(
                Data(
                    layout.root,
                    f"classifier as {', '.join(exports.formats)}",
                    version=exports.files_sha256,
                    bytes=sum(file.bytes for file in files),
                    files=len(files),
                )
            )
    return data


def _tasks(run: RunLayout, trials: Iterable[Trial]) -> Iterator[Data]:
    for name in dict.fromkeys(trial.task for trial in trials):
        yield from prepared_task(run, name)


def _models(plan: FinetuningPlan, names: Iterable[str]) -> Iterator[Data]:
    for name in dict.fromkeys(names):
        source = plan.models[name]
        if source.uri is not None:
            yield Data(source.uri, f"encoder: {name}", version=source.version_id or "")


def _trained(run: RunLayout, trials: Iterable[Trial]) -> Iterator[Data]:
    for trial in trials:
        layout = run.trial(trial.trial_id)
        result = TrialResult.load_or_none(layout.result)
        if result is not None:
            yield Data(
                layout.root,
                f"{trial.model} fine-tuned on {trial.task}",
                version=result.weights_sha256,
                rows=result.train_examples,
            )
