"""What stays of versions that retention removed: enough to prove the line of models."""

from __future__ import annotations

from datetime import UTC, datetime

from model_registry.versions import list_commits, load_version, manifests
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, PrunedVersion, RunPlan
from pipeline_store.layout import LineageLayout, VersionLayout


def describe_pruned(lineage: LineageLayout, version_id: str, reason: str) -> PrunedVersion:
    """Return what is to stay of a version that is about to be removed.

    :raises FileNotFoundError: its plan or a manifest is missing.
    :raises FormatError: one of its records is damaged.
    """
    folder = VersionLayout(lineage.version(version_id))
    model = load_version(lineage, version_id)
    seen = manifests(lineage, model)
    return PrunedVersion(
        model=model,
        trained={
            partition: PartitionManifest.load(seen[partition]).content_sha256
            for partition in RunPlan.load(folder.plan).trained
        },
        pruned=datetime.now(UTC),
        reason=reason,
    )


def pruned_versions(lineage: LineageLayout) -> dict[str, PrunedVersion]:
    """Return what is left of every removed version, by version id.

    :raises FormatError: a record is damaged.
    """
    found = [PrunedVersion.load(uri) for uri in uris.list_files(lineage.pruned)]
    there = {commit.uri.split("/")[-2] for commit in list_commits(lineage)}
    # A pass that was killed, or overtaken by a rollback, leaves the version and this record.
    return {p.model.version_id: p for p in found if p.model.version_id not in there}
