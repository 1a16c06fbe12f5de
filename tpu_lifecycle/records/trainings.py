"""Finds the trainings and the folders that belong to the TPUs of a run."""

from __future__ import annotations

from pipeline_config import FinetuningConfig, parse_rental_config
from pipeline_store import identity, uris
from pipeline_store.formats import FinetuningPlan, RunRecord
from pipeline_store.layout import RunLayout, TrainingLayout, TrialLayout


def trainings(run: RunLayout) -> list[TrainingLayout]:
    """Return the folders of the trainings that run on the TPU of a run's folder.

    A pretraining run has one. A fine-tuning run has one for each trial, divided among its TPUs.
    """
    found = trials(run)
    return [run.training] if found is None else [trial.training for trial in found]


def trials(run: RunLayout) -> list[TrialLayout] | None:
    """Return the trials that run on the TPU of a run's folder; None for a pretraining run."""
    record = RunRecord.load_or_none(run.record)
    if record is None:
        return None
    owner = run if record.rental_of is None else _beside(run, record.rental_of)
    plan = FinetuningPlan.load_or_none(owner.finetuning_plan)
    if plan is None:
        return None
    config = parse_rental_config(uris.read(run.config), run.config)
    assert isinstance(config, FinetuningConfig)  # noqa: S101 - it has such a plan
    share = plan.shares(config.finetuning.parallel_tpus)[record.tpu_number]
    return [owner.trial(trial.trial_id) for trial in share]


def rental_folders(run: RunLayout) -> list[RunLayout]:
    """Return the folders of a run's TPUs: the run's own, then those of further TPUs."""
    folders, key = [run], run.root.rstrip("/").rpartition("/")[2]
    while uris.exists((rental := _beside(run, identity.rental_key(key, len(folders)))).record):
        folders.append(rental)
    return folders


def _beside(run: RunLayout, run_key: str) -> RunLayout:
    return RunLayout(uris.join(run.root.rstrip("/").rpartition("/")[0], run_key))
