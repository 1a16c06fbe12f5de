"""A finished run as a version of its lineage, without what publishing asks for."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline_store.formats import ModelVersion, TrainingResult
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore
from trained_models import artifacts


def version_of(store: TinyStore, run: RunLayout) -> str:
    """Copy a run's checkpoint into a version folder of the store's lineage; return its URI."""
    lineage_id = store.config.model.lineage_id
    run_key = run.root.rpartition("/")[2]
    version_id = f"v-{run_key}"
    lineage = store.layout.lineage(lineage_id)
    folder = lineage.version(version_id)
    files, prefix = artifacts.copy_checkpoint_files(run.training.root, folder)
    ModelVersion(
        version_id=version_id,
        lineage_id=lineage_id,
        parent=None,
        run_key=run_key,
        partitions_seen=[],
        files=files,
        checkpoint_prefix=prefix,
        vocabulary_sha256=store.vocabulary_sha256,
        train_steps_total=TrainingResult.load(run.training.result).train_steps,
        metrics={},
        created=datetime.now(UTC),
    ).create(lineage.model(version_id))
    return folder
