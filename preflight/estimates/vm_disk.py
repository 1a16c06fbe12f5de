"""Estimates what a run copies from a bucket to each TPU VM's disk, and checks that it fits.

A step needs many small reads, so every host first copies all record files whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from model_registry.errors import RegistryError
from model_registry.panel import scored_sets
from model_registry.plans import general_set
from model_registry.production import production
from model_registry.versions import manifests
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, RunPlan, Split
from pipeline_store.layout import StoreLayout
from preflight.estimates.sizes import checkpoint_bytes, prepared, record_bytes, size_text
from trained_models.phases import trained_shapes

SYSTEM_GIGABYTES = 40
"""Disk space for the VM's system, the container image and logs. An estimate that was not measured
on a TPU VM."""

_GIGABYTE = 10**9
# A position takes up to 3 bytes for the token, 1 for the mask and 1 for the segment; a prediction
# about 2 and 2, and 4 for its weight. The rest is feature names, framing, and the offset index.
_POSITION_BYTES, _PREDICTION_BYTES, _ROW_BYTES = 5, 8, 256
# One being written, and one being uploaded or that training starts from.
_CHECKPOINTS = 2


@dataclass(frozen=True)
class CopiedBytes:
    """Estimated bytes that a run puts on the disk of each TPU VM."""

    new: int
    replayed: int
    held_out: int
    checkpoints: int

    @property
    def words(self) -> str:
        """Return the sizes in words."""
        parts = {
            "records to train on": self.new,
            "records to replay": self.replayed,
            "held-out records": self.held_out,
            "checkpoints": self.checkpoints,
        }
        listed = ", ".join(
            f"{size_text(count)} of {name}" for name, count in parts.items() if count
        )
        return f"about {size_text(self.total)} ({listed})"

    @property
    def total(self) -> int:
        """Return the total."""
        return self.new + self.replayed + self.held_out + self.checkpoints


def estimated(config: PipelineConfig, partition: str, store: StoreLayout) -> CopiedBytes | None:
    """Return what a run would copy if it began now; None: nothing, as the store is no bucket.

    For a partition that is not prepared yet it is estimated from the size of its files. What
    ``training.partitions=unseen`` adds is only known when the run plans.

    :param partition: the run's own.
    """
    if not uris.is_cloud(store.root):
        return None
    lineage = store.lineage(config.model.lineage_id)
    parent = production(lineage)
    seen = manifests(lineage, parent) if parent else {}
    try:
        general = general_set(store, lineage, config)
    except RegistryError:
        # Another check reports that it is not prepared.
        general = {}
    own = prepared(config, partition, store)
    others = {name: uri for name, uri in (seen | general).items() if name != partition}
    always = {partition, *general}
    scored = scored_sets({**others, partition: ""}, always, config.evaluation.max_sets)
    replayed = [uri for name, uri in others.items() if name not in general]
    found = _copied(
        config,
        trained=[] if own is None else [own],
        replayed=_load(replayed if config.training.replay_fraction else []),
        scored=_load(uri for uri in scored.values() if uri),
    )
    if own is None:
        by_size = record_bytes(config, partition, store)
        return CopiedBytes(by_size, found.replayed, found.held_out, found.checkpoints)
    return found


def planned(config: PipelineConfig, plan: RunPlan, store: StoreLayout) -> CopiedBytes | None:
    """Return what a planned run will copy; None: nothing, as the store is no bucket."""
    if not uris.is_cloud(store.root):
        return None
    others = {uri for name, uri in plan.evaluated.items() if name not in plan.trained}
    return _copied(
        config,
        trained=_load(plan.trained.values()),
        replayed=_load(plan.replayed.values()),
        scored=_load(others),
    )


def problem(config: PipelineConfig, copied: CopiedBytes) -> str | None:
    """Return why a run's TPU VMs do not have the disk space that it needs, or None."""
    tpu = config.tpu
    if copied.total <= _room(config):
        return None
    replay = "set training.replay_fraction to 0, " if copied.replayed else ""
    return (
        f"tpu.disk_gigabytes: a VM of {tpu.accelerator_type} has {tpu.disk_gigabytes} GB, less "
        f"{SYSTEM_GIGABYTES} for system and image, but the run needs {copied.words} there, an "
        f"estimate. Train on less text at once, {replay}lower evaluation.max_sets, or raise "
        "tpu.disk_gigabytes where VMs have more."
    )


def disk_line(config: PipelineConfig, copied: CopiedBytes) -> str:
    """Return the estimate's line on disk space."""
    return f"TPU disk: {copied.words}, of {size_text(_room(config))} on each host"


def _room(config: PipelineConfig) -> int:
    return max(0, config.tpu.disk_gigabytes - SYSTEM_GIGABYTES) * _GIGABYTE


def _load(manifest_uris: Iterable[str]) -> Iterator[PartitionManifest]:
    return map(PartitionManifest.load, manifest_uris)


def _copied(
    config: PipelineConfig,
    *,
    trained: Iterable[PartitionManifest],
    replayed: Iterable[PartitionManifest],
    scored: Iterable[PartitionManifest],
) -> CopiedBytes:
    """Return the bytes that are copied for the given partitions.

    :param scored: partitions that are scored but not trained on.
    """
    both = len(trained_shapes(config)) > 1
    new = held_out = 0
    for manifest in trained:
        new += _bytes(manifest, Split.TRAIN, both)
        held_out += _bytes(manifest, Split.VALIDATION, False)
    return CopiedBytes(
        new=new,
        replayed=sum(_bytes(manifest, Split.TRAIN, both) for manifest in replayed),
        held_out=held_out + sum(_bytes(manifest, Split.VALIDATION, False) for manifest in scored),
        checkpoints=_CHECKPOINTS * checkpoint_bytes(config),
    )


def _bytes(manifest: PartitionManifest, split: Split, both_lengths: bool) -> int:
    """Return the bytes of a partition's records of one split, with their offset indexes."""
    lengths = [(manifest.records, manifest.max_seq_length, manifest.max_predictions_per_seq)]
    if both_lengths and manifest.extra_max_seq_length is not None:
        predictions = manifest.extra_max_predictions_per_seq or 0
        lengths.append((manifest.extra_records, manifest.extra_max_seq_length, predictions))
    return sum(
        rows.get(split, 0)
        * (_POSITION_BYTES * positions + _PREDICTION_BYTES * predictions + _ROW_BYTES)
        for rows, positions, predictions in lengths
    )
