"""Checks by estimates that the disks of a local store and of TPU VMs have space for a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.estimates import vm_disk
from preflight.estimates.sizes import (
    checkpoint_bytes,
    model_bytes,
    record_bytes,
    size_text,
)

_MARGIN = 1.25
"""Factor for what is not counted: logs, events, the index of documents, a resumed training."""


def disk_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line if the disk of a local store has less space than the run needs.

    Buckets have no limit.
    """
    if uris.is_cloud(store.root):
        return
    needed = needed_bytes(config, partition, store)
    free = shutil.disk_usage(existing_folder(Path(uris.for_library(store.root)))).free
    if needed > free:
        yield (
            f"store: {store.root} has {size_text(free)} of disk left, and the run needs about "
            f"{size_text(needed)} (an estimate): {config.training.max_to_keep} checkpoints of "
            f"{size_text(checkpoint_bytes(config))}, the records and the model. Free some, use "
            "another store, or lower training.max_to_keep."
        )


def vm_disk_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line if a TPU VM's disk has less space than a run copies there from a bucket."""
    copied = vm_disk.estimated(config, partition, store)
    if copied is not None and (found := vm_disk.problem(config, copied)):
        yield found


def needed_bytes(config: PipelineConfig, partition: str, store: StoreLayout) -> int:
    """Return about how many bytes a run adds to the store: records, checkpoints and the model."""
    # One is written while max_to_keep others exist; the best one is kept in addition.
    kept = config.training.max_to_keep + 1 + config.training.keep_best
    versions = 1 + len(config.promotion.export_formats)
    model = kept * checkpoint_bytes(config) + 2 * versions * model_bytes(config)
    return int(_MARGIN * (model + record_bytes(config, partition, store)))


def existing_folder(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
