"""Proves that the versions of a lineage fit together: ancestry, plans, checksums, pointer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from model_registry import lease
from model_registry.errors import DamagedVersionError, RegistryError
from model_registry.retention.policy import pruned_versions
from model_registry.versions import list_versions, manifests, require_files, verify
from pipeline_store import identity
from pipeline_store.formats import (
    FormatError,
    ModelVersion,
    PartitionManifest,
    ProductionPointer,
    RunPlan,
    VocabularyInfo,
)
from pipeline_store.layout import LineageLayout, VersionLayout


@dataclass(frozen=True)
class ConsistencyReport:
    """Result of :func:`check`. An empty list of problems is the proof."""

    versions: int
    in_use: str | None
    times_trained: dict[str, int] = field(default_factory=dict)
    """How often the model in production and its ancestors were trained on each partition."""
    partitions_seen_once: bool = True
    """Whether these models were never trained on the same text of a partition twice, and list each
    partition once. Training on a partition whose text has changed is no repetition."""
    lease: str = ""
    """Who may continue the lineage now."""
    problems: list[str] = field(default_factory=list)


def check(lineage: LineageLayout, *, quick: bool = False) -> ConsistencyReport:
    """Check every version of a lineage and its pointer. Changes nothing.

    :param quick: compare only the sizes of files, not their checksums.
    :raises RegistryError: a version's folder was copied or renamed.
    :raises FormatError: a version's record is damaged.
    """
    versions = {model.version_id: model for model in list_versions(lineage)}
    pruned = pruned_versions(lineage)
    known = {version_id: removed.model for version_id, removed in pruned.items()} | versions
    pointer = ProductionPointer.load_or_none(lineage.production)
    problems = list(_pointer_problems(pointer, versions, known))
    for model in versions.values():
        found = [*_ancestry_problems(model, known), *_content_problems(lineage, model, quick)]
        problems += [f"{model.version_id}: {line}" for line in found]
    line = _ancestors(known, pointer.version_id) if pointer else []
    trained: list[tuple[str, str]] = []
    for model in line:
        # For a version that retention removed, its record holds this.
        removed = pruned.get(model.version_id)
        trained += removed.trained.items() if removed else _trained_on(lineage, model, problems)
    listed = Counter(line[0].partitions_seen) if line else Counter()
    is_once = all(count == 1 for count in (*Counter(trained).values(), *listed.values()))
    return ConsistencyReport(
        versions=len(versions),
        in_use=pointer.version_id if pointer else None,
        times_trained=dict(sorted(Counter(partition for partition, _ in trained).items())),
        partitions_seen_once=is_once,
        lease=_lease(lineage, problems),
        problems=problems,
    )


def _lease(lineage: LineageLayout, problems: list[str]) -> str:
    """Return who may continue the lineage; a lease that a run holds is no problem."""
    try:
        found = lease.read(lineage)
    except RegistryError as error:
        problems.append(str(error))
        return "damaged"
    is_over = found is not None and found.run_key is not None and lease.holder(lineage) is None
    return lease.describe(found) + (
        ", but it has expired: if that run has ended, whoever is next takes it" if is_over else ""
    )


def _pointer_problems(
    pointer: ProductionPointer | None,
    versions: dict[str, ModelVersion],
    known: dict[str, ModelVersion],
) -> Iterator[str]:
    if pointer is None:
        return
    if pointer.version_id not in versions:
        yield f"production.json names {pointer.version_id}, which does not exist"
    if pointer.version_id in pointer.rolled_back:
        yield f"production.json names {pointer.version_id} and says that it was rolled back"
    for version_id in pointer.rolled_back:
        if version_id not in known:
            yield f"production.json says that {version_id} was rolled back; it does not exist"


def _ancestry_problems(model: ModelVersion, versions: dict[str, ModelVersion]) -> Iterator[str]:
    if model.version_id != identity.version_id(model.run_key):
        yield f"its run is {model.run_key}, whose version has another name"
    twice = [name for name, count in Counter(model.partitions_seen).items() if count > 1]
    if twice:
        yield f"partitions {', '.join(twice)} are listed more than once"
    if model.parent is None:
        return
    parent = versions.get(model.parent)
    if parent is None:
        yield f"its parent {model.parent} does not exist"
        return
    if forgotten := sorted({*parent.partitions_seen} - {*model.partitions_seen}):
        yield f"its parent has seen {', '.join(forgotten)}, which it does not list"
    if model.train_steps_total <= parent.train_steps_total:
        yield f"it has {model.train_steps_total} steps, its parent {parent.train_steps_total}"
    if model.created < parent.created:
        yield f"it is older than its parent {model.parent}"


def _content_problems(lineage: LineageLayout, model: ModelVersion, quick: bool) -> Iterator[str]:
    vocabulary = VocabularyInfo.load(lineage.vocabulary_info).sha256
    if model.vocabulary_sha256 != vocabulary:
        yield f"its vocabulary is {model.vocabulary_sha256}, its lineage's {vocabulary}"
    try:
        if quick:
            require_files(lineage, model)
        else:
            verify(lineage, model.version_id)
    except DamagedVersionError as error:
        yield from error.problems
    if not any(file.path.startswith(model.checkpoint_prefix) for file in model.files):
        yield f"no file belongs to its checkpoint {model.checkpoint_prefix}"
    for partition, uri in manifests(lineage, model).items():
        try:
            manifest = PartitionManifest.load(uri)
        except (FormatError, FileNotFoundError) as error:
            yield f"the manifest of partition {partition} cannot be read: {error}"
            continue
        if (manifest.partition, manifest.vocabulary_sha256) != (partition, vocabulary):
            yield f"the manifest of partition {partition} is of another partition or vocabulary"


def _ancestors(versions: dict[str, ModelVersion], version_id: str) -> list[ModelVersion]:
    """Return a model and its ancestors, newest first, up to a missing parent."""
    line: list[ModelVersion] = []
    model = versions.get(version_id)
    while model is not None and model not in line:
        line.append(model)
        model = versions.get(model.parent or "")
    return line


def _trained_on(
    lineage: LineageLayout, model: ModelVersion, problems: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield each partition that a version was trained on, with the hash of its manifest."""
    folder, seen = VersionLayout(lineage.version(model.version_id)), manifests(lineage, model)
    try:
        plan = RunPlan.load(folder.plan)
    except (FormatError, OSError) as error:
        problems.append(f"{model.version_id}: {folder.plan} cannot be read: {error}")
        return
    if plan.parent_version != model.parent:
        planned = f"{plan.parent_version or 'no model'}, not from {model.parent or 'none'}"
        problems.append(f"{model.version_id}: its run was planned from {planned}")
    for partition in plan.trained:
        if partition not in model.partitions_seen:
            line = f"it was made of {partition!r}, which it does not list"
            problems.append(f"{model.version_id}: {line}")
            continue
        try:
            yield partition, PartitionManifest.load(seen[partition]).content_sha256
        except (FormatError, OSError):
            continue  # reported among the version's content problems
