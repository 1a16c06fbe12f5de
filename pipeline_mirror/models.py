"""What MLflow is told of a model version and of the one in use; needs no MLflow."""

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

    It refuses each path of its own machine as the source of a version, and opens none of these by
    itself: that a folder lies on a disk is said by a scheme that only people read.
    """
    return folder if uris.is_cloud(folder) else f"repretraining-store://{folder}"


def version_tags(lineage: LineageLayout, model: ModelVersion) -> dict[str, str]:
    """Return where a version comes from, what it has seen and how it was judged."""
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
    """Return the verdict in a sentence, and where the model card is."""
    place = VersionLayout(lineage.version(model.version_id))
    verdict = Verdict.load_or_none(place.verdict)
    sentences = [verdict.reason] if verdict is not None else []
    return "\n\n".join([*sentences, f"Model card: {place.card}"])


def readable_versions(
    lineage: LineageLayout, wanted: set[str], report: Report, name: str
) -> list[ModelVersion]:
    """Return some versions, oldest first, so that MLflow's numbers grow as theirs did.

    :param report: is told of those that cannot be read; the others do not wait for them.
    :param name: of the lineage's copy, as the report names it.
    """
    found = []
    for version_id in wanted:
        with report.collected(f"version {version_id} of {name}"):
            found.append(load_version(lineage, version_id))
    return sorted(found, key=lambda model: (model.created, model.version_id))


def pointer_tags(pointer: ProductionPointer) -> dict[str, str]:
    """Return since when and why a version is in use, for the registered model."""
    tags = {
        "production_version": pointer.version_id,
        "production_since": f"{pointer.changed:%FT%TZ}",
        "production_reason": pointer.reason,
        "rolled_back": ", ".join(pointer.rolled_back),
        "rolled_back_by": pointer.changed_by or "",
    }
    return {TAG + name: value for name, value in tags.items()}
