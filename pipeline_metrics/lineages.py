"""Reads the lines of models: who works on each, who waits, and what is in use."""

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
from pipeline_store.layout import StoreLayout, VersionLayout


@dataclass(frozen=True)
class SeenLineage:
    """One line of models.

    :ivar lease: as it is stored, given back or not; None: there never was one.
    :ivar waiting: runs that wait for it.
    :ivar training: of the run that made the model in use, while retention has left it.
    """

    lineage_id: str
    lease: LineageLease | None
    waiting: list[WaitingTicket]
    pointer: ProductionPointer | None
    model: ModelVersion | None
    verdict: Verdict | None
    training: TrainingResult | None


def read_lineages(store: StoreLayout, reader: Reader) -> list[SeenLineage]:
    """Return all lines of models; of a version nothing is read a second time."""
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
    return SeenLineage(
        lineage_id=lineage_id,
        lease=reader.load(Source.LINEAGES, LineageLease, place.lease),
        waiting=reader.attempt(Source.LINEAGES, lambda: lease.waiting(place)) or [],
        pointer=pointer,
        model=model,
        verdict=verdict,
        training=training,
    )
