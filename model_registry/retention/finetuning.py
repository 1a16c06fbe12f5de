"""Keeps what fine-tuning runs need, and the classifiers that stay after they end."""

from __future__ import annotations

import re
from collections.abc import Collection

from model_registry.retention.keeping import Keeper
from model_registry.retention.policy import Kind
from model_registry.retention.survey import is_run_bytes
from pipeline_config import FinetuningConfig
from pipeline_store.formats import CompressedModel, FinetuningPlan, RunRecord

_CHILD = re.compile(r"runs/[^/]+/children/[^/]+/[^/]+/child\.json")


class FinetuningNeeds:
    """Keeps what fine-tuning runs need."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._survey = keeper.survey
        self._needs = keeper.needs
        kinds = {Kind.VERSION, Kind.TRAINING, Kind.TRIAL, Kind.TASK}
        self._plans = keeper.by_run(FinetuningPlan, "finetuning_plan.json", kinds)
        self._recipes: dict[str, FinetuningConfig] = {}

    def open_run(self, key: str, config: FinetuningConfig, text: str) -> None:
        """Keep what a fine-tuning run uses, and what it has trained so far."""
        self._recipes[key] = config
        if config.encoder.version is not None:
            self._keeper.need_version(config.encoder.version, text)
        for run in (key, config.finetuning.source_run):
            if run is not None:
                self._keep_classifiers(run, text)

    def is_one(self, key: str) -> bool:
        """Return whether an open run fine-tunes."""
        return key in self._recipes

    def unfinished_run(self, key: str) -> None:
        """Keep what a fine-tuning run could be about to put into its plan."""
        # A further TPU's folder has no plan of its own: its run's plan counts.
        if key in self._plans or self._is_rental(key):
            return
        self._needs.block({Kind.TASK}, f"run {key} may be preparing tasks")
        if self._recipes[key].encoder.compare_with:
            kinds = {Kind.VERSION, Kind.TRAINING}
            self._needs.block(kinds, f"run {key} has yet to name what it compares with")

    def _is_rental(self, key: str) -> bool:
        path = f"runs/{key}/run.json"
        kinds = {Kind.VERSION, Kind.TRAINING, Kind.TASK}
        record = self._keeper.read(RunRecord, path, kinds) if path in self._survey.files else None
        return record is not None and record.rental_of is not None

    def _keep_classifiers(self, key: str, text: str, tasks: Collection[str] | None = None) -> None:
        """Keep the trials of a run, and what they need to be used.

        :param tasks: only those; None: all.
        """
        plan = self._plans.get(key)
        if plan is None:
            return
        for trial in plan.trials:
            if tasks is None or trial.task in tasks:
                self._needs.trials.add(f"{key}/trials/{trial.trial_id}")
                self._needs.trials.add(f"{key}/children/{trial.trial_id}/student_training")
        for source in plan.models.values():
            if source.uri is not None:
                self._keeper.pin(source.uri, text)
        for task, uri in plan.manifests.items():
            if tasks is None or task in tasks:
                self._needs.tasks.add((task, uri.split("/")[-2]))

    def keep_newest(self) -> None:
        """Keep the newest classifiers of each lineage and task, and all fine-tuning exports."""
        ended = [
            (self._survey.files[path].modified, key)
            for key in self._plans
            if (path := f"runs/{key}/training_summary.json") in self._survey.files
            # Otherwise it has used the classifiers of another run.
            if any(is_run_bytes(file) for file in self._survey.runs[key])
        ]
        known: set[tuple[str, str]] = set()
        for _, key in sorted(ended, reverse=True):
            plan = self._plans[key]
            newest = {task for task in plan.manifests if (plan.lineage_id, task) not in known}
            known |= {(plan.lineage_id, task) for task in newest}
            if newest:
                self._keep_classifiers(key, f"run {key} has the newest classifiers", newest)
        # They are not copied into a version, unlike those of a pretraining run.
        self._needs.exports |= {*self._plans}

    def keep_children(self) -> None:
        """Keep the smaller models of classifiers and versions that stay.

        After all kept versions are known: a rollback to any of them makes its children current.
        """
        versions = {version for (_, version), reasons in self._needs.versions.items() if reasons}
        paths = [
            path for files in self._survey.runs.values() for path in files if _CHILD.fullmatch(path)
        ]
        found = self._keeper.read_all(CompressedModel, paths, {Kind.CHILD})
        for path, child in found.items():
            _, key, _, trial, *_ = path.split("/")
            is_used = f"{key}/trials/{trial}" in self._needs.trials
            if is_used or child.parent.version_id in versions:
                self._needs.children.add(path.rpartition("/")[0])
