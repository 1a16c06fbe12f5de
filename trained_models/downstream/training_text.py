"""Finds the test examples of a task that are in the text the compared models were trained on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    ModelVersion,
    RunPlan,
    RunRecord,
    TaskOverlap,
)
from pipeline_store.layout import RunLayout, StoreLayout, TaskLayout, VersionLayout


@dataclass(frozen=True)
class Seen:
    """The partitions of a lineage that a model or its ancestors were trained on."""

    lineage_id: str
    partitions: tuple[str, ...]


@dataclass(frozen=True)
class InTrainingText:
    """What is known of a task's test examples and the models' training text.

    ``exact``, ``near``: ids of examples, none in both. The others are as in
    :class:`pipeline_store.formats.TrainingTextFindings`.
    """

    partitions: list[str] | None
    exact: set[int] = field(default_factory=set)
    near: set[int] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    near_unknown: list[str] = field(default_factory=list)


def find(
    store: StoreLayout, manifest_uri: str, model: EncoderSource, reference: EncoderSource
) -> InTrainingText:
    """Combine the records that the task's preparation made on all text that the two models saw.

    :param manifest_uri: URI of the TaskManifest.
    :raises FormatError: a record is damaged.
    """
    seen = _seen(store, model)
    if seen is None:
        return InTrainingText(partitions=None)
    # What imported weights were trained on is not recorded anywhere.
    other = _seen(store, reference)
    both = dict.fromkeys(
        (one.lineage_id, name) for one in (seen, other) if one for name in one.partitions
    )
    found = InTrainingText(partitions=[name for _, name in both])
    for lineage_id, partition in both:
        _add(found, partition, list(_noted(store, manifest_uri, lineage_id, partition)))
    found.near.difference_update(found.exact)
    return found


def _seen(store: StoreLayout, source: EncoderSource) -> Seen | None:
    """Return the partitions that a model was trained on; None: nothing records it.

    :param source: a version, the training folder of a run with a plan, or other weights.
    """
    if source.uri is None:
        return Seen("", ())
    uri = store.resolve(source.uri)
    version = ModelVersion.load_or_none(VersionLayout(uri).model)
    if version is not None:
        return Seen(version.lineage_id, tuple(version.partitions_seen))
    run = RunLayout(uri.rstrip("/").rpartition("/")[0])
    record, plan = RunRecord.load_or_none(run.record), RunPlan.load_or_none(run.plan)
    if record is None or plan is None:
        return None
    names = [*plan.trained, *plan.replayed]
    if plan.parent_version is not None:
        parent = ModelVersion.load_or_none(
            store.lineage(record.lineage_id).model(plan.parent_version)
        )
        if parent is None:
            return None
        names = [*parent.partitions_seen, *names]
    return Seen(record.lineage_id, tuple(dict.fromkeys(names)))


def _noted(
    store: StoreLayout, manifest_uri: str, lineage_id: str, partition: str
) -> Iterator[TaskOverlap | None]:
    """Yield the record of each manifest of a partition; None if there is none."""
    folder, _, key = manifest_uri.rpartition("/")[0].rpartition("/")
    task = TaskLayout(folder.rpartition("/")[0])
    folders = (
        store.lineage(lineage_id).manifests(partition),
        task.overlaps(key, lineage_id, partition),
    )
    names = {_json_name(uri) for place in folders for uri in uris.list_files(place)} - {None}
    for name in sorted(name for name in names if name):
        yield TaskOverlap.load_or_none(task.overlap(key, lineage_id, partition, name))


def _json_name(uri: str) -> str | None:
    name = uri.rpartition("/")[2]
    return name.removesuffix(".json") if name.endswith(".json") else None


def _add(found: InTrainingText, partition: str, noted: Collection[TaskOverlap | None]) -> None:
    known = [one for one in noted if one is not None and one.exact is not None]
    for one in known:
        found.exact.update(one.exact or ())
        found.near.update(one.near or ())
    if len(known) < len(noted) or not noted:
        found.unknown.append(partition)
    elif any(one.near is None for one in known):
        found.near_unknown.append(partition)
