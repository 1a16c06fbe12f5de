"""Reads from the store what is sent to MLflow about model versions; needs no MLflow."""

from __future__ import annotations

from model_registry.versions import load_version
from pipeline_mirror.passes import Report
from pipeline_mirror.runs import TAG
from pipeline_store import uris
from pipeline_store.formats import ModelVersion, ProductionPointer, RunPlan, Verdict
from pipeline_store.layout import LineageLayout, VersionLayout

ALIAS = "production"
"""MLflow's alias of the version in use: ``models:/<lineage>@production``."""

VERSION_ID, REMOVED = f"{TAG}version_id", f"{TAG}removed"


def source_of(folder: str) -> str:
    """Return a version's folder as an address that MLflow's server accepts.

    The server refuses all local paths as the source of a version, but does not open the address
    itself: a local folder gets a scheme that is only meant for people.
    """
    return folder if uris.is_cloud(folder) else f"repretraining-store://{folder}"


def version_tags(lineage: LineageLayout, model: ModelVersion) -> dict[str, str]:
    """Return the tags of a version: its origin, the partitions it has seen, and its verdict."""
    place = VersionLayout(lineage.version(model.version_id))
    plan = RunPlan.load_or_none(place.plan)
    verdict = Verdict.load_or_none(place.verdict)
    tags = {
        "version_id": model.version_id,
        "lineage": model.lineage_id,
        "parent_version": model.parent or "",
        "run_key": model.run_key,
        "partitions_seen": ", ".join(model.partitions_seen),
        "train_steps_total": str(model.train_steps_total),
        "vocabulary_sha256": model.vocabulary_sha256,
        "created": f"{model.created:%FT%TZ}",
        "folder": place.root,
    }
    if plan is not None:
        tags["partition"] = plan.partition
        tags["partitions_trained"] = ", ".join(sorted(plan.trained))
    if verdict is not None:
        tags |= {
            "candidate_loss": f"{verdict.candidate_loss:.6f}",
            "reference": verdict.reference,
            "reference_loss": f"{verdict.reference_loss:.6f}",
            "improvement": f"{verdict.improvement:.6f}",
            "improvement_low": f"{verdict.improvement_low:.6f}",
            "improvement_high": f"{verdict.improvement_high:.6f}",
            "held_out_documents": str(verdict.documents),
        }
    return {TAG + name: value for name, value in tags.items()}


def version_description(lineage: LineageLayout, model: ModelVersion) -> str:
    """Return the verdict in a sentence, and the address of the model card."""
    place = VersionLayout(lineage.version(model.version_id))
    verdict = Verdict.load_or_none(place.verdict)
    sentences = [verdict.reason] if verdict is not None else []
    return "\n\n".join([*sentences, f"Model card: {place.card}"])


def readable_versions(
    lineage: LineageLayout, wanted: set[str], report: Report, name: str
) -> list[ModelVersion]:
    """Return some versions, oldest first, so that MLflow numbers them in order of creation.

    :param report: collects those that cannot be read; the others are returned all the same.
    :param name: name of the lineage's copy in the report.
    """
    found = []
    for version_id in wanted:
        with report.collected(f"version {version_id} of {name}"):
            found.append(load_version(lineage, version_id))
    return sorted(found, key=lambda model: (model.created, model.version_id))


def pointer_tags(pointer: ProductionPointer) -> dict[str, str]:
    """Return the tags of the registered model: which version is in use, since when and why."""
    tags = {
        "production_version": pointer.version_id,
        "production_since": f"{pointer.changed:%FT%TZ}",
        "production_reason": pointer.reason,
        "rolled_back": ", ".join(pointer.rolled_back),
        "rolled_back_by": pointer.changed_by or "",
    }
    return {TAG + name: value for name, value in tags.items()}
