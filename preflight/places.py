"""Checks the store itself: it can be written, and it is where the TPUs are."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

# Predefined dual-regions: https://cloud.google.com/storage/docs/locations
_PARTS = {
    "us": ("us-",),
    "eu": ("europe-",),
    "asia": ("asia-",),
    "nam4": ("us-central1-", "us-east1-"),
    "eur4": ("europe-north1-", "europe-west4-"),
    "eur5": ("europe-west1-", "europe-west2-"),
    "eur7": ("europe-west2-", "europe-west3-"),
    "eur8": ("europe-west3-", "europe-west6-"),
    "asia1": ("asia-northeast1-", "asia-northeast2-"),
}


def store_problems(store: StoreLayout) -> Iterator[str]:
    """Yield a line when a file cannot be written to the store, read back and deleted."""
    probe = store.probe(uuid.uuid4().hex)
    try:
        uris.write(probe, b"probe")
        found = uris.read(probe)
        uris.delete(probe)
    except Exception as error:  # noqa: BLE001 - each kind of store has its own; all mean no
        yield (
            f"store: {store.root} cannot be written ({type(error).__name__}: {error}). Check that "
            "the folder or bucket exists and that this account may create and delete files in it."
        )
        return
    if found != b"probe":
        yield f"store: {store.root} gives back other bytes than were written; do not use it."


def region_problems(
    zones: list[str], store: StoreLayout, location: Callable[[str], str | None]
) -> Iterator[str]:
    """Yield a line when the store is not in the region of every zone in which a TPU may run.

    Records and checkpoints would cross regions, which is slow and is paid by the byte.

    :param zones: ``tpu.zones``.
    :param location: tells where a URI's storage is; None when nobody knows.
    """
    place = location(store.root)
    if place is None:
        return
    far = [zone for zone in zones if not zone.startswith(_prefixes(place))]
    if far:
        yield (
            f"tpu.zones: {', '.join(far)} {'is' if len(far) == 1 else 'are'} not in {place}, where "
            f"the bucket of {store.root} is. Name zones of that location, or use a bucket beside "
            "the TPUs."
        )


def dataflow_problems(
    config: PipelineConfig, store: StoreLayout, location: Callable[[str], str | None]
) -> Iterator[str]:
    """Yield a line for every reason why Dataflow's workers could not reach the data, or not well.

    :param location: as in :func:`region_problems`.
    """
    beam = config.beam
    if beam.runner != "DataflowRunner":
        return
    if not uris.is_cloud(store.root):
        yield (
            f"beam.runner: Dataflow's workers cannot reach the store {store.root}; use a gs:// "
            "bucket, or FnApiRunner."
        )
    place = location(beam.temp_location) if beam.temp_location else None
    if place is not None and not f"{beam.region}-".startswith(_prefixes(place)):
        yield (
            f"beam.temp_location: the bucket of {beam.temp_location} is in {place}, the workers "
            f"are in {beam.region}. Use a bucket of that region."
        )


def _prefixes(place: str) -> tuple[str, ...]:
    """Return how the zones of a bucket's location begin."""
    return _PARTS.get(place.lower(), (f"{place.lower()}-",))
