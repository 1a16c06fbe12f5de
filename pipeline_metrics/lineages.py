"""Reads the lineages of a store: the holder of each, the waiting runs, and the version in use."""

from __future__ import annotations

from dataclasses import dataclass

from model_registry import lease, versions
from pipeline_metrics.reading import Reader, Source
from pipeline_store.formats import (
    LineageLease,
    ModelVersion,
    ProductionPointer,
    TrainingResult,
    Verdict,
    WaitingTicket,
)
from pipeline_store.layout import LineageLayout, StoreLayout, VersionLayout


@dataclass(frozen=True)
class SeenLineage:
    """One lineage.

    :ivar is_held: whether a run holds its lease; None: it cannot be read.
    :ivar lease: the lease of that run.
    :ivar waiting: tickets of runs that wait for it; None: one of them cannot be read.
    :ivar training: result of the run that made the model in use, until retention removes it.
    """

    lineage_id: str
    is_held: bool | None
    lease: LineageLease | None
    waiting: list[WaitingTicket] | None
    pointer: ProductionPointer | None
    model: ModelVersion | None
    verdict: Verdict | None
    training: TrainingResult | None


def read_lineages(store: StoreLayout, reader: Reader) -> list[SeenLineage]:
    """Return all lineages; the files of a version are read only once."""
    known = reader.attempt(Source.LINEAGES, lambda: versions.lineage_ids(store)) or []
    return [_read(store, reader, lineage_id) for lineage_id in known]


def _read(store: StoreLayout, reader: Reader, lineage_id: str) -> SeenLineage:
    place = store.lineage(lineage_id)
    pointer = reader.load(Source.MODELS, ProductionPointer, place.production)
    model = verdict = training = None
    if pointer is not None:
        version = VersionLayout(place.version(pointer.version_id))
        model = reader.unchanging(Source.MODELS, ModelVersion, version.model)
        verdict = reader.unchanging(Source.MODELS, Verdict, version.verdict)
    if model is not None:
        run = store.run(model.run_key)
        training = reader.unchanging(Source.MODELS, TrainingResult, run.training.result)
    is_held, held = reader.attempt(Source.LINEAGES, lambda: _held(place)) or (None, None)
    return SeenLineage(
        lineage_id=lineage_id,
        is_held=is_held,
        lease=held,
        waiting=_waiting(place, reader),
        pointer=pointer,
        model=model,
        verdict=verdict,
        training=training,
    )


def _held(place: LineageLayout) -> tuple[bool, LineageLease | None]:
    found = LineageLease.load_or_none(place.lease)
    if found is None or found.run_key is None:
        return False, None
    return True, found


def _waiting(place: LineageLayout, reader: Reader) -> list[WaitingTicket] | None:
    problems: list[str] = []
    found = reader.attempt(Source.LINEAGES, lambda: lease.waiting(place, problems=problems))
    reader.failed(Source.LINEAGES, problems)
    return None if problems else found
