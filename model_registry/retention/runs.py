"""Keeps what runs need that have not ended, or that a person may let continue."""

from __future__ import annotations

from model_registry.retention.finetuning import FinetuningNeeds
from model_registry.retention.keeping import Keeper
from model_registry.retention.policy import Kind
from pipeline_config import FinetuningConfig, PipelineConfig
from pipeline_store import identity
from pipeline_store.formats import LineageLease, RunOutcome, RunPlan


class RunNeeds:
    """Keeps what open runs of both kinds need.

    :ivar plans: of pretraining runs, by run key.
    """

    def __init__(self, keeper: Keeper, finetunings: FinetuningNeeds) -> None:
        self._keeper = keeper
        self._survey = keeper.survey
        self._needs = keeper.needs
        self._finetunings = finetunings
        self.plans = keeper.by_run(RunPlan, "plan.json", {Kind.VERSION, Kind.MANIFEST})

    def keep(self) -> None:
        """Keep what runs that may continue name, or could be about to name."""
        files, leases = self._survey.files, list[LineageLease]()
        for lineage in sorted(self._survey.lineages):
            path = f"lineages/{lineage}/lease.json"
            if path in files and (lease := self._keeper.read(LineageLease, path, Kind)):
                leases.append(lease)
        waiting = {path: path.split("/") for path in files if path.startswith("lineages/")}
        tickets = {
            parts[3].removesuffix(".json"): path
            for path, parts in waiting.items()
            if len(parts) == 4 and parts[2] == "waiting"
        }
        holders = {lease.run_key for lease in leases if lease.run_key}
        outcomes = self._keeper.by_run(RunOutcome, "outcome.json", Kind)
        for key in sorted({*self._survey.runs, *tickets, *holders}):
            if reason := self._open_reason(key, outcomes, holders, {*tickets}):
                self._needs.open_runs[key] = reason
                self._open_run(key)
                if key not in outcomes or key in holders or key in tickets:
                    self._unfinished_run(key, is_prepared=key in holders or key in tickets)

    def _open_reason(
        self, key: str, outcomes: dict[str, RunOutcome], holders: set[str], waiting: set[str]
    ) -> str | None:
        """Return why a run counts as running, or None when it has ended for good."""
        if key in holders:
            return "it holds its lineage"
        if key in waiting:
            return "it waits for its lineage"
        if f"runs/{key}/run.json" not in self._survey.files:
            # Refused before it was recorded: it has nothing and needs nothing.
            return None
        if key not in outcomes:
            return "it has no outcome"
        return None if self._keeper.is_old(self._survey.runs[key].values()) else "it ended lately"

    def _open_run(self, key: str) -> None:
        """Keep what a run names that is running, or that a person may let continue."""
        files, text = self._survey.runs.get(key, {}), f"run {key} names it"
        for path in files:
            folder, _, name = path.removeprefix(f"runs/{key}/").rpartition("/")
            if folder in ("evaluations", "verdicts"):
                self._keeper.need_version(name.removesuffix(".json"), text)
        if f"runs/{key}/config.json" in files:
            self._open_config(key, text)
        self._keeper.need_version(identity.version_id(key), f"run {key} made it")
        plan = self.plans.get(key)
        if plan is not None:
            if plan.parent_version is not None:
                self._keeper.need_version(plan.parent_version, text)
            for manifests in (plan.trained, plan.replayed, plan.evaluated):
                for uri in manifests.values():
                    self._keeper.need_manifest(uri, f"the plan of run {key}")

    def _open_config(self, key: str, text: str) -> None:
        kinds = {Kind.VERSION, Kind.TRAINING, Kind.TRIAL, Kind.TASK}
        files = self._survey.files
        config = self._keeper.config(f"runs/{key}/config.json", kinds)
        if isinstance(config, FinetuningConfig):
            self._finetunings.open_run(key, config, text)
        elif isinstance(config, PipelineConfig):
            self._keeper.settings_in_use.add(config.data_sha256)
            if config.model.init_checkpoint:
                self._keeper.pin(config.model.init_checkpoint, text)
            # No record says before the run has ended which preparation of a task its probe uses.
            self._needs.tasks |= {
                (task, prepared)
                for task, prepared in self._survey.tasks
                if task in config.promotion.probe_tasks
                # A refused preparation leaves only its dead letters there, which nothing uses.
                if f"tasks/{task}/prepared/{prepared}/manifest.json" in files
            }

    def _unfinished_run(self, key: str, *, is_prepared: bool) -> None:
        """Keep what a run could be about to name."""
        if self._finetunings.is_one(key):
            self._finetunings.unfinished_run(key)
        elif key not in self.plans:
            doing = "is about to choose from" if is_prepared else "may be preparing"
            self._needs.block({Kind.MANIFEST}, f"run {key} {doing} partitions")
        if not any("/reservation.json" in path for path in self._survey.runs.get(key, ())):
            self._needs.block({Kind.BUNDLE}, f"run {key} may be about to use one")
