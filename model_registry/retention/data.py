"""Decides which prepared data stay, from manifests down to signatures, and which code."""

from __future__ import annotations

from collections.abc import Collection

from model_registry.retention.keeping import MANIFEST, Keeper
from model_registry.retention.policy import Kind
from model_registry.retention.survey import PartitionFiles
from pipeline_store import uris
from pipeline_store.formats import (
    PartitionManifest,
    Reservation,
    RunPlan,
    ShardManifest,
    SignatureFile,
)


class DataNeeds:
    """Keeps the newest manifests of each partition, and the data that kept manifests name.

    :param plans: of pretraining runs; manifests that they trained on stay as records.
    """

    def __init__(self, keeper: Keeper, plans: Collection[RunPlan]) -> None:
        self._keeper = keeper
        self._survey = keeper.survey
        self._needs = keeper.needs
        self._plans = plans
        self._manifests: dict[str, PartitionManifest] = {}

    def keep(self) -> None:
        """Keep manifests, shards and signatures; then the code of TPUs that may exist."""
        self._partitions()
        self._shards()
        self._bundles()

    def _partitions(self) -> None:
        paths = [path for found in self._survey.partitions.values() for path in found.manifests]
        self._manifests = self._keeper.read_all(PartitionManifest, paths, {Kind.MANIFEST})
        for files in self._survey.partitions.values():
            self._partition(files)
        trained = {uri for plan in self._plans for uri in plan.trained.values()}
        trained_paths = {found[0] for uri in trained if (found := MANIFEST.search(uri))}
        self._needs.records_only = trained_paths & {*self._manifests} - self._needs.manifests
        for path in self._needs.records_only | (self._needs.manifests & {*self._manifests}):
            if index := self._manifests[path].duplicate_index:
                self._needs.indexes.add(uris.join(path.rpartition("/")[0], index.data.path))

    def _partition(self, files: PartitionFiles) -> None:
        """Keep the newest manifest, the newest for each hash of settings in use, and young ones."""
        seen: set[str] = set()
        newest_first = sorted(files.manifests.items(), key=lambda it: it[1].modified, reverse=True)
        for place, (path, details) in enumerate(newest_first):
            manifest = self._manifests.get(path)
            if manifest is None:
                self._needs.manifests.add(path)
                continue
            settings = manifest.config_sha256
            is_first = settings in self._keeper.settings_in_use and settings not in seen
            seen.add(settings)
            if place == 0 or is_first or details.modified >= self._keeper.cutoff:
                self._keeper.keep_manifest(path, manifest)

    def _shards(self) -> None:
        """Read the shards that stay: they name the signatures and decisions that stay."""
        paths = [path for key in self._needs.shards if (path := _shard(key)) in self._survey.files]
        kinds = {Kind.SIGNATURE, Kind.DECISION}
        inputs = set()
        for path, shard in self._keeper.read_all(ShardManifest, paths, kinds).items():
            self._needs.shards[path.split("/")[1]] = shard
            self._needs.decisions.add(f"decisions/{shard.decisions_sha256}.json")
            inputs.add(shard.input_sha256)
        commits = [path for path in self._survey.signatures if path.endswith(".json")]
        for path, file in self._keeper.read_all(SignatureFile, commits, {Kind.SIGNATURE}).items():
            if file.input_sha256 in inputs:
                self._needs.signatures |= {path, f"signatures/{file.data.path}"}

    def _bundles(self) -> None:
        """Keep the code of every TPU that may still exist, and the code used last."""
        paths = [path for path in self._survey.files if path.endswith("/reservation.json")]
        found = self._keeper.read_all(Reservation, paths, {Kind.BUNDLE})
        for path, reservation in found.items():
            is_open = path.split("/")[1] in self._needs.open_runs
            if is_open or path.replace("reservation.json", "ledger.json") not in self._survey.files:
                self._needs.bundles.add(reservation.bundle_sha256)
        if found:
            last = max(found.values(), key=lambda reservation: reservation.created)
            self._needs.bundles.add(last.bundle_sha256)


def _shard(key: str) -> str:
    return f"shards/{key}/shard.json"
