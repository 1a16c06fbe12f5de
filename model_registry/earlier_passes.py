"""Counts how often earlier runs of a lineage passed over rows that a run trains on again.

The unit is a shard: of a partition that was prepared again, shards with unchanged files are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

from model_registry.versions import load_version
from pipeline_config import PipelineConfig, parse_config
from pipeline_store import uris
from pipeline_store.formats import ModelVersion, PartitionManifest, RunPlan, ShardManifest, Split
from pipeline_store.layout import LineageLayout, VersionLayout
from trained_models.decided_steps import RowCounts, passes, replay_passes, with_steps

_PARALLEL_READS = 16


class _Training(NamedTuple):
    """The training of a version: its run's configuration, and what it trained on."""

    config: PipelineConfig
    plan: RunPlan


class EarlierPasses:
    """The passes that a version and its ancestors were trained for, as far as records exist.

    :param version: the model in production; None: there is none.
    """

    def __init__(self, lineage: LineageLayout, version: ModelVersion | None) -> None:
        self._load = cache(_manifest_or_none)
        self._times: defaultdict[str, float] = defaultdict(float)
        for training in _trainings(lineage, version):
            self._add(training)

    def over(self, manifest_uris: Iterable[str]) -> float:
        """Return the mean number of passes over the training rows of some manifests."""
        shards = [
            shard
            for manifest in map(self._load, manifest_uris)
            for shard in (manifest.shards if manifest is not None else [])
        ]
        if not any(shard in self._times for shard in shards):
            return 0.0
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            rows = list(pool.map(_training_rows, shards))
        seen = sum(count * self._times[shard] for shard, count in zip(shards, rows, strict=True))
        return seen / max(1, sum(rows))

    def _add(self, training: _Training) -> None:
        config, plan = training
        rows = RowCounts(self._rows(plan.trained.values()), self._rows(plan.replayed.values()))
        if not rows.new:
            return
        parts: tuple[tuple[Iterable[str], Callable[[PipelineConfig, RowCounts], float]], ...] = (
            (plan.trained.values(), passes),
            (plan.replayed.values(), replay_passes),
        )
        for manifest_uris, count in parts:
            times = count(config, rows)
            for manifest in map(self._load, manifest_uris):
                for shard in manifest.shards if manifest is not None else []:
                    self._times[shard] += times

    def _rows(self, manifest_uris: Iterable[str]) -> int:
        found = map(self._load, manifest_uris)
        return sum(manifest.training_rows for manifest in found if manifest is not None)


def _trainings(lineage: LineageLayout, version: ModelVersion | None) -> list[_Training]:
    folders = []
    while version is not None:
        folders.append(VersionLayout(lineage.version(version.version_id)))
        parent = version.parent
        is_left = parent is not None and uris.exists(lineage.model(parent))
        version = load_version(lineage, parent) if parent is not None and is_left else None
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = list(pool.map(_training, folders))
    return [one for one in found if one is not None]


def _training(folder: VersionLayout) -> _Training | None:
    """Return the training of a version; None: it has no plan."""
    plan = RunPlan.load_or_none(folder.plan)
    if plan is None:
        return None
    config = parse_config(uris.read(folder.config), folder.config)
    if plan.train_steps is not None:
        config = with_steps(config, plan.train_steps)
    return _Training(config, plan)


def _manifest_or_none(uri: str) -> PartitionManifest | None:
    return PartitionManifest.load_or_none(uri)


def _training_rows(uri: str) -> int:
    shard = ShardManifest.load_or_none(uri)
    files = [] if shard is None else shard.files
    return sum(file.records for file in files if file.split is Split.TRAIN)
