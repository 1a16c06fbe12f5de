"""What a store needs: everything that a model in use, a kept version or a running job leads to.

Found from records alone, without a guess: where a record cannot be read, whatever it could name
stays, and the report says which record it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from model_registry.retention_policy import Kind, RetentionPolicy, and_what_they_name
from model_registry.retention_survey import (
    Files,
    PartitionFiles,
    Survey,
    is_run_bytes,
    newest,
)
from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    RentalConfig,
    parse_rental_config,
)
from pipeline_store import identity, uris
from pipeline_store.details import ObjectDetails
from pipeline_store.formats import (
    FinetuningPlan,
    FormatError,
    LineageLease,
    ModelVersion,
    PartitionManifest,
    ProductionPointer,
    Reservation,
    RunOutcome,
    RunPlan,
    ShardManifest,
    SignatureFile,
    StoredFile,
)
from pipeline_store.layout import StoreLayout

_PARALLEL_READS = 16
_VERSION = re.compile(r"lineages/[^/]+/versions/(v-[^/]+)")
_TRAINING = re.compile(r"runs/([^/]+)/training")
_MANIFEST = re.compile(
    r"lineages/[^/]+/(?:partitions/[^/]+/[0-9a-f]+\.json|versions/[^/]+/manifests/[^/]+\.json)$"
)

File = TypeVar("File", bound=StoredFile)
Found = TypeVar("Found")


@dataclass
class Needs:
    """What must stay, with the reasons; ``blocked`` says of which kinds nothing may go, and why."""

    open_runs: dict[str, str] = field(default_factory=dict)
    finetunings: set[str] = field(default_factory=set)
    """Those of them that fine-tune."""
    versions: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    unlisted: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Objects in the folder of a version that its record does not name, by path."""
    trainings: set[str] = field(default_factory=set)
    trials: set[str] = field(default_factory=set)
    """Trials whose trained classifiers stay, as ``<run key>/trials/<trial id>``."""
    exports: set[str] = field(default_factory=set)
    """Runs whose exports are in no version, and stay."""
    tasks: set[tuple[str, str]] = field(default_factory=set)
    """Prepared tasks, by name and key."""
    manifests: set[str] = field(default_factory=set)
    records_only: set[str] = field(default_factory=set)
    """Manifests that stay without their shards, as a record of what was trained on."""
    indexes: set[str] = field(default_factory=set)
    """What the manifests that stay know of documents, by path."""
    shards: dict[str, ShardManifest | None] = field(default_factory=dict)
    signatures: set[str] = field(default_factory=set)
    decisions: set[str] = field(default_factory=set)
    bundles: set[str] = field(default_factory=set)
    blocked: dict[Kind, list[str]] = field(default_factory=lambda: defaultdict(list))

    def block(self, kinds: Iterable[Kind], reason: str) -> None:
        """Let nothing of some kinds go, nor what such things name."""
        for kind in and_what_they_name(kinds):
            if reason not in self.blocked[kind]:
                self.blocked[kind].append(reason)


def find_needs(store: StoreLayout, survey: Survey, policy: RetentionPolicy) -> Needs:
    """Follow the records of a store and return all that must stay."""
    return _Finder(store, survey, policy).find()


class _Finder:
    def __init__(self, store: StoreLayout, survey: Survey, policy: RetentionPolicy) -> None:
        self._store = store
        self._survey = survey
        self._policy = policy
        self._cutoff = survey.taken - policy.older_than
        self._needs = Needs()
        self._settings_in_use: set[str] = set()
        self._leases: dict[str, LineageLease] = {}
        self._plans: dict[str, RunPlan] = {}
        self._finetunings: dict[str, FinetuningPlan] = {}
        self._models: dict[tuple[str, str], ModelVersion] = {}
        self._manifests: dict[str, PartitionManifest] = {}

    def find(self) -> Needs:
        self._runs()
        for uri in self._policy.pinned:
            self._pin(uri, "it is pinned")
        self._classifiers()
        self._versions()
        self._partitions()
        self._shards()
        self._bundles()
        return self._needs

    # Reading

    def _read(self, kind: type[File], path: str, could_name: Iterable[Kind]) -> File | None:
        """Read a record of the survey; one that cannot be read keeps what it could name."""
        return self._try(path, could_name, lambda: kind.load(self._survey.uri(path)))

    def _read_all(
        self, kind: type[File], paths: Iterable[str], could_name: Iterable[Kind]
    ) -> dict[str, File]:
        wanted = sorted(paths)
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = pool.map(lambda path: self._read(kind, path, could_name), wanted)
            return {path: file for path, file in zip(wanted, found, strict=True) if file}

    def _config(self, path: str, could_name: Iterable[Kind]) -> RentalConfig | None:
        uri = self._survey.uri(path)
        return self._try(path, could_name, lambda: parse_rental_config(uris.read(uri), uri))

    def _try(
        self, path: str, could_name: Iterable[Kind], read: Callable[[], Found]
    ) -> Found | None:
        try:
            return read()
        except (FormatError, ConfigError, FileNotFoundError) as error:
            text = " ".join(str(error).split())
            self._needs.block(could_name, f"{path} cannot be read: {text[:300]}")
            return None

    # Runs

    def _runs(self) -> None:
        files = self._survey.files
        for lineage in sorted(self._survey.lineages):
            path = f"lineages/{lineage}/lease.json"
            if path in files and (lease := self._read(LineageLease, path, Kind)):
                self._leases[lineage] = lease
        waiting = {path: path.split("/") for path in files if path.startswith("lineages/")}
        tickets = {
            parts[3].removesuffix(".json"): path
            for path, parts in waiting.items()
            if len(parts) == 4 and parts[2] == "waiting"
        }
        holders = {lease.run_key for lease in self._leases.values() if lease.run_key}
        self._plans = self._by_run(RunPlan, "plan.json", {Kind.VERSION, Kind.MANIFEST})
        kinds = {Kind.VERSION, Kind.TRAINING, Kind.TRIAL, Kind.TASK}
        self._finetunings = self._by_run(FinetuningPlan, "finetuning_plan.json", kinds)
        outcomes = self._by_run(RunOutcome, "outcome.json", Kind)
        for key in sorted({*self._survey.runs, *tickets, *holders}):
            if reason := self._open_reason(key, outcomes, holders, {*tickets}):
                self._needs.open_runs[key] = reason
                self._open_run(key)
                if key not in outcomes or key in holders or key in tickets:
                    self._unfinished_run(key, is_prepared=key in holders or key in tickets)

    def _by_run(self, kind: type[File], name: str, could_name: Iterable[Kind]) -> dict[str, File]:
        paths = [path for key in self._survey.runs if (path := f"runs/{key}/{name}") in self._files]
        found = self._read_all(kind, paths, could_name)
        return {path.split("/")[1]: file for path, file in found.items()}

    @property
    def _files(self) -> Files:
        return self._survey.files

    def _open_reason(
        self, key: str, outcomes: dict[str, RunOutcome], holders: set[str], waiting: set[str]
    ) -> str | None:
        """Return why a run counts as running, or None when it has ended for good."""
        if key in holders:
            return "it holds its lineage"
        if key in waiting:
            return "it waits for its lineage"
        if f"runs/{key}/run.json" not in self._files:
            # Refused before it was recorded: it has nothing, and nothing is done for it.
            return None
        if key not in outcomes:
            return "it has no outcome"
        return None if self._is_old(self._survey.runs[key].values()) else "it ended lately"

    def _is_old(self, files: Iterable[ObjectDetails]) -> bool:
        return newest(files) < self._cutoff

    def _open_run(self, key: str) -> None:
        """Keep what a run names that is running, or that a person may let go on."""
        files, text = self._survey.runs.get(key, {}), f"run {key} names it"
        for path in files:
            folder, _, name = path.removeprefix(f"runs/{key}/").rpartition("/")
            if folder in ("evaluations", "verdicts"):
                self._need_version(name.removesuffix(".json"), text)
        if f"runs/{key}/config.json" in files:
            self._open_config(key, text)
        self._need_version(identity.version_id(key), f"run {key} made it")
        plan = self._plans.get(key)
        if plan is not None:
            if plan.parent_version is not None:
                self._need_version(plan.parent_version, text)
            for manifests in (plan.trained, plan.replayed, plan.evaluated):
                for uri in manifests.values():
                    self._need_manifest(uri, f"the plan of run {key}")

    def _open_config(self, key: str, text: str) -> None:
        kinds = {Kind.VERSION, Kind.TRAINING, Kind.TRIAL}
        config = self._config(f"runs/{key}/config.json", kinds)
        if isinstance(config, FinetuningConfig):
            self._open_finetuning(key, config, text)
        elif isinstance(config, PipelineConfig):
            self._settings_in_use.add(config.data_sha256)
            if config.model.init_checkpoint:
                self._pin(config.model.init_checkpoint, text)

    def _unfinished_run(self, key: str, *, is_prepared: bool) -> None:
        """Keep what a run could be about to name."""
        is_finetuning = key in self._needs.finetunings
        if is_finetuning and key not in self._finetunings:
            self._needs.block({Kind.TASK}, f"run {key} may be preparing tasks")
        if not is_finetuning and key not in self._plans:
            doing = "is about to choose from" if is_prepared else "may be preparing"
            self._needs.block({Kind.MANIFEST}, f"run {key} {doing} partitions")
        if not any("/reservation.json" in path for path in self._survey.runs.get(key, ())):
            self._needs.block({Kind.BUNDLE}, f"run {key} may be about to use one")

    def _pin(self, uri: str, reason: str) -> None:
        path = self._survey.path(self._store.resolve(uri))
        if found := _VERSION.match(path):
            self._need_version(found[1], reason)
        if found := _TRAINING.match(path):
            self._needs.trainings.add(found[1])

    # Fine-tuning

    def _open_finetuning(self, key: str, config: FinetuningConfig, text: str) -> None:
        """Keep what a fine-tuning run uses, and what it has trained so far."""
        self._needs.finetunings.add(key)
        if config.encoder.version is not None:
            self._need_version(config.encoder.version, text)
        for run in (key, config.finetuning.source_run):
            if run is not None:
                self._keep_classifiers(run, text)

    def _keep_classifiers(self, key: str, text: str, tasks: Collection[str] | None = None) -> None:
        """Keep the trials of a run, and what they need to be used.

        :param tasks: only those; None: all.
        """
        plan = self._finetunings.get(key)
        if plan is None:
            return
        for trial in plan.trials:
            if tasks is None or trial.task in tasks:
                self._needs.trials.add(f"{key}/trials/{trial.trial_id}")
        for source in plan.models.values():
            if source.uri is not None:
                self._pin(source.uri, text)
        for task, uri in plan.manifests.items():
            if tasks is None or task in tasks:
                self._needs.tasks.add((task, uri.split("/")[-2]))

    def _classifiers(self) -> None:
        """Keep the classifiers that were trained last, of each lineage and task, and exports."""
        ended = [
            (self._files[path].modified, key)
            for key in self._finetunings
            if (path := f"runs/{key}/training_summary.json") in self._files
            # Else it has used those of another run.
            if any(is_run_bytes(file) for file in self._survey.runs[key])
        ]
        known: set[tuple[str, str]] = set()
        for _, key in sorted(ended, reverse=True):
            plan = self._finetunings[key]
            newest = {task for task in plan.manifests if (plan.lineage_id, task) not in known}
            known |= {(plan.lineage_id, task) for task in newest}
            if newest:
                self._keep_classifiers(key, f"run {key} has the newest classifiers", newest)
        # They are not copied into a version, as those of a pretraining run are.
        self._needs.exports |= {*self._finetunings}

    # Versions

    def _need_version(self, version_id: str, reason: str) -> None:
        for lineage, known in self._survey.versions:
            if known == version_id and reason not in self._needs.versions[lineage, known]:
                self._needs.versions[lineage, known].append(reason)

    def _versions(self) -> None:
        paths = [
            path
            for lineage, version in self._survey.versions
            if (path := f"lineages/{lineage}/versions/{version}/model.json") in self._files
        ]
        found = self._read_all(ModelVersion, paths, {Kind.VERSION})
        for path, model in found.items():
            _, lineage, _, version, _ = path.split("/")
            self._models[lineage, version] = model
            folder = path.removesuffix("model.json")
            known = {path, *(folder + file.path for file in model.files)}
            if others := sorted({*self._survey.versions[lineage, version]} - known):
                self._needs.unlisted[lineage, version] = others
        for lineage in sorted(self._survey.lineages):
            self._lineage(lineage)
        for (lineage, version), files in self._survey.versions.items():
            if not self._is_old(files.values()):
                self._needs.versions[lineage, version].append("it is young")
        for (lineage, version), reasons in self._needs.versions.items():
            if reasons and (lineage, version) in self._models:
                folder = f"lineages/{lineage}/versions/{version}"
                config = self._config(f"{folder}/config.json", {Kind.MANIFEST})
                if isinstance(config, PipelineConfig):
                    self._settings_in_use.add(config.data_sha256)
                for partition in self._models[lineage, version].partitions_seen:
                    path = f"{folder}/manifests/{partition}.json"
                    self._need_manifest(self._survey.uri(path), f"version {version}")

    def _lineage(self, lineage: str) -> None:
        models = {v: model for (known, v), model in self._models.items() if known == lineage}
        path = f"lineages/{lineage}/production.json"
        if path not in self._files:
            for version in models:
                self._needs.versions[lineage, version].append("its lineage has no model in use yet")
            return
        pointer = self._read(ProductionPointer, path, {Kind.VERSION})
        if pointer is None:
            return
        if pointer.version_id not in models:
            text = f"{path} names {pointer.version_id}, which does not exist"
            self._needs.block({Kind.VERSION}, text)
            return
        self._needs.versions[lineage, pointer.version_id].append("in use")
        line, model = [], models.get(models[pointer.version_id].parent or "")
        while model is not None and model.version_id not in line:
            line.append(model.version_id)
            model = models.get(model.parent or "")
        for version in line[: self._policy.keep_versions]:
            self._needs.versions[lineage, version].append("an ancestor of the one in use")
        order = sorted(models.values(), key=lambda m: (m.created, m.version_id), reverse=True)
        for model in order[: self._policy.keep_versions]:
            self._needs.versions[lineage, model.version_id].append("one of the newest")

    # Data

    def _need_manifest(self, uri: str, user: str) -> None:
        """Keep the manifest at a URI, its original among the partitions, and its shards."""
        found = _MANIFEST.search(uris.for_library(self._store.resolve(uri)))
        path = found[0] if found else uri
        if path in self._needs.manifests:
            return
        if path not in self._survey.files:
            self._needs.block({Kind.SHARD}, f"{user} names {uri}, which is not in the store")
            return
        manifest = self._read(PartitionManifest, path, {Kind.SHARD})
        if manifest is not None:
            self._keep_manifest(path, manifest)

    def _keep_manifest(self, path: str, manifest: PartitionManifest) -> None:
        keys = [uri.split("/")[-2] for uri in manifest.shards]
        original = identity.manifest_id(manifest.partition, keys)
        folder = f"lineages/{manifest.lineage_id}/partitions/{manifest.partition}"
        self._needs.manifests |= {path, f"{folder}/{original}.json"}
        self._needs.shards |= dict.fromkeys(keys)

    def _partitions(self) -> None:
        paths = [path for found in self._survey.partitions.values() for path in found.manifests]
        self._manifests = self._read_all(PartitionManifest, paths, {Kind.MANIFEST})
        for files in self._survey.partitions.values():
            self._partition(files)
        trained = {uri for plan in self._plans.values() for uri in plan.trained.values()}
        trained_paths = {found[0] for uri in trained if (found := _MANIFEST.search(uri))}
        self._needs.records_only = trained_paths & {*self._manifests} - self._needs.manifests
        for path in self._needs.records_only | (self._needs.manifests & {*self._manifests}):
            if index := self._manifests[path].duplicate_index:
                self._needs.indexes.add(uris.join(path.rpartition("/")[0], index.data.path))

    def _partition(self, files: PartitionFiles) -> None:
        """Keep the newest manifest, the newest of each kind in use, and all that are young."""
        seen: set[str] = set()
        newest_first = sorted(files.manifests.items(), key=lambda it: it[1].modified, reverse=True)
        for place, (path, details) in enumerate(newest_first):
            manifest = self._manifests.get(path)
            if manifest is None:
                self._needs.manifests.add(path)
                continue
            settings = manifest.config_sha256
            is_first = settings in self._settings_in_use and settings not in seen
            seen.add(settings)
            if place == 0 or is_first or details.modified >= self._cutoff:
                self._keep_manifest(path, manifest)

    def _shards(self) -> None:
        """Read the shards that stay: they say which signatures and decisions do."""
        paths = [path for key in self._needs.shards if (path := _shard(key)) in self._files]
        kinds = {Kind.SIGNATURE, Kind.DECISION}
        inputs = set()
        for path, shard in self._read_all(ShardManifest, paths, kinds).items():
            self._needs.shards[path.split("/")[1]] = shard
            self._needs.decisions.add(f"decisions/{shard.decisions_sha256}.json")
            inputs.add(shard.input_sha256)
        commits = [path for path in self._survey.signatures if path.endswith(".json")]
        for path, file in self._read_all(SignatureFile, commits, {Kind.SIGNATURE}).items():
            if file.input_sha256 in inputs:
                self._needs.signatures |= {path, f"signatures/{file.data.path}"}

    # Code

    def _bundles(self) -> None:
        """Keep the code of every TPU that may still be there, and the code used last."""
        paths = [path for path in self._files if path.endswith("/reservation.json")]
        found = self._read_all(Reservation, paths, {Kind.BUNDLE})
        for path, reservation in found.items():
            is_open = path.split("/")[1] in self._needs.open_runs
            if is_open or path.replace("reservation.json", "ledger.json") not in self._files:
                self._needs.bundles.add(reservation.bundle_sha256)
        if found:
            last = max(found.values(), key=lambda reservation: reservation.created)
            self._needs.bundles.add(last.bundle_sha256)


def _shard(key: str) -> str:
    return f"shards/{key}/shard.json"
