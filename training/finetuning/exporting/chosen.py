"""The trained models of a fine-tuning run that are exported or used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_config import TaskConfig, parse_finetuning_config
from pipeline_config.finetuning import MODEL, FinetuningConfig
from pipeline_store import uris
from pipeline_store.formats import FinetuningPlan, FinetuningReport, TaskManifest, TrialResult
from pipeline_store.layout import RunLayout, StoreLayout, TrialLayout
from trained_models.errors import UserError


@dataclass(frozen=True)
class ChosenTrial:
    """A finished trial.

    :param manifest_uri: URI of the manifest of its task.
    """

    layout: TrialLayout
    result: TrialResult
    manifest_uri: str
    manifest: TaskManifest

    @property
    def task(self) -> TaskConfig:
        """Return the task's description."""
        return TaskConfig.model_validate(self.manifest.task)


@dataclass(frozen=True)
class TrainedRun:
    """A fine-tuning run, and the run whose models it uses, which is usually itself."""

    store: StoreLayout
    run: RunLayout
    source: RunLayout
    config: FinetuningConfig

    @classmethod
    def open(cls, store: StoreLayout, run_uri: str) -> TrainedRun:
        """Read a run's configuration.

        :raises FileNotFoundError: there is no such run.
        :raises ConfigError: it is no fine-tuning run.
        """
        run = RunLayout(store.resolve(run_uri))
        config = parse_finetuning_config(uris.read(run.config), run.config)
        key = config.finetuning.source_run
        return cls(store, run, run if key is None else store.run(key), config)

    def best_trials(self, task: str | None = None) -> list[str]:
        """Return the best trial of each of the run's tasks.

        :param task: only the best trial of this task.
        :raises UserError: the run has no report yet, or the report does not have the task.
        """
        report = FinetuningReport.load_or_none(self.source.training_summary)
        if report is None:
            raise UserError(
                f"{self.source.training_summary} is not there, and it says which trials are the "
                "best. Let the run end, or name one by --trial."
            )
        found = {one.task: one.best_trial for one in report.tasks if one.model == MODEL}
        wanted = self.config.finetuning.tasks if task is None else [task]
        if unknown := sorted(set(wanted) - set(found)):
            raise UserError(
                f"{self.source.training_summary} has no model of task {', '.join(unknown)}; it has "
                f"{', '.join(sorted(found)) or 'none'}."
            )
        return [found[name] for name in wanted or sorted(found)]

    def trial(self, trial_id: str) -> ChosenTrial:
        """Return a trial.

        :raises UserError: the run has no trial of this name, or it is not finished.
        :raises FormatError: one of its files is damaged.
        """
        plan = FinetuningPlan.load(self.source.finetuning_plan)
        known = {trial.trial_id: trial for trial in plan.trials}
        if trial_id not in known:
            raise UserError(
                f"Run {self.source.root} has no trial {trial_id!r}; it has {_some(list(known))}."
            )
        layout = self.source.trial(trial_id)
        result = TrialResult.load_or_none(layout.result)
        if result is None:
            raise UserError(f"Trial {trial_id} is not done: there is no {layout.result}.")
        uri = self.store.resolve(plan.manifests[known[trial_id].task])
        return ChosenTrial(layout, result, uri, TaskManifest.load(uri))

    def inputs(self, task: str) -> TaskManifest:
        """Return the manifest that this run itself prepared for a task, with files to predict."""
        plan = FinetuningPlan.load(self.run.finetuning_plan)
        return TaskManifest.load(self.store.resolve(plan.manifests[task]))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
