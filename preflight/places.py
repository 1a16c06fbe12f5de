"""Checks the store itself: that it honors write preconditions and is located near the TPUs."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from pipeline_config import PipelineConfig
from pipeline_config.accelerators import SOURCE, more_zones, region_of
from pipeline_config.rental_schema import TpuConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.findings import Finding, failed, not_checked, ok, warning
from tpu_lifecycle.records.installation import new_identity

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


def store_finding(store: StoreLayout) -> Finding:
    """Check that a file can be written, created only once, replaced if unchanged, and deleted.

    Without such preconditions two runs could each believe that they alone hold a lineage or a TPU.
    """
    probe = store.probe(uuid.uuid4().hex)
    try:
        keeps_promises = _try(probe)
    except Exception as error:  # noqa: BLE001 - each kind of store has its own; all mean no
        return failed(
            f"{store.root} cannot be written ({type(error).__name__}: {error}).",
            "check that the folder or bucket exists and that this account may create and delete "
            "files in it",
        )
    if not keeps_promises:
        return failed(
            f"{store.root} gives back other bytes than were written, or takes a write whose "
            "precondition does not hold.",
            "use another store: a local disk, or a gs:// bucket",
        )
    return ok(f"{store.root} can be written, with preconditions")


def _try(probe: str) -> bool:
    """Create, replace and delete a file; return whether the store honored all preconditions."""
    try:
        created = uris.create_if_absent(probe, b"first")
        again = uris.create_if_absent(probe, b"second")
        first = uris.read_versioned(probe)
        if first is None:
            return False
        newer = uris.compare_and_set(probe, b"third", first[1])
        is_refused = _is_refused(probe, first[1])
        last = uris.read_versioned(probe)
    finally:
        uris.delete(probe)
    kept = first[0] == b"first" and last == (b"third", newer)
    return created and not again and is_refused and kept


def _is_refused(probe: str, old_version: str) -> bool:
    try:
        uris.compare_and_set(probe, b"late", old_version)
    except uris.VersionConflictError:
        return True
    return False


def identity_finding(store: StoreLayout) -> Finding:
    """Check that TPUs requested from the store are still recognized as its own."""
    new = new_identity(store)
    return ok("as ever") if new is None else warning(new.text, "python -m tpu_lifecycle list")


def shared_finding(store: StoreLayout) -> Finding:
    """Check that TPU VMs in the cloud can reach the store."""
    if uris.is_cloud(store.root):
        return ok(store.root)
    return failed(
        f"{store.root} is a folder of this machine, which TPU VMs cannot reach.",
        "gcloud storage buckets create gs://BUCKET --location=REGION, and "
        "export REPRETRAIN_STORE_URI=gs://BUCKET/PREFIX",
    )


def region_finding(
    tpu: TpuConfig, store: StoreLayout, location: Callable[[str], str | None]
) -> Finding | None:
    """Check that the store is in the region of every zone in which a TPU may run.

    Otherwise records and checkpoints cross regions, which is slow and billed by the byte: refused
    unless ``tpu.allow_other_regions`` is on.

    :param location: returns the location of a URI's storage; None if it is unknown.
    :returns: None for a local folder, whose location is unknown.
    """
    zones = tpu.zones
    place = location(store.root)
    if place is None:
        return _unknown(store.root)
    if far := far_zones(zones, place):
        found = (
            f"{', '.join(far)} {'is' if len(far) == 1 else 'are'} not in {place}, where the bucket "
            f"of {store.root} is."
        )
        if tpu.allow_other_regions:
            return warning(f"{found} tpu.allow_other_regions is on, so the bytes are paid.")
        return failed(
            found,
            "name zones of that location in tpu.zones, or use a bucket beside the TPUs: "
            f"gcloud storage buckets create gs://BUCKET --location={region_of(zones[0])}; or pay "
            "for the bytes that cross: --set tpu.allow_other_regions=true",
        )
    if more := more_zones(tpu.accelerator_type, zones):
        return ok(
            f"{', '.join(zones)} and the bucket are in {place}; {', '.join(more)} of the same "
            f"region may have {tpu.accelerator_type} too ({SOURCE})"
        )
    return ok(f"{', '.join(zones)} and the bucket are in {place}")


def far_zones(zones: list[str], place: str) -> list[str]:
    """Return the zones that are outside a bucket's location.

    :param place: its region or multi-region, as Cloud Storage names it: ``US-CENTRAL1``, ``EU``.
    """
    return [zone for zone in zones if not zone.startswith(_prefixes(place))]


def dataflow_finding(config: PipelineConfig, store: StoreLayout) -> Finding | None:
    """Check that Dataflow's workers, if there are any, can reach the store."""
    if config.beam.runner != "DataflowRunner":
        return None
    if uris.is_cloud(store.root):
        return ok(f"the workers can reach {store.root}")
    return failed(
        f"Dataflow's workers cannot reach the store {store.root}.",
        "use a gs:// bucket, or --set beam.runner=FnApiRunner",
    )


def temporary_place_finding(
    config: PipelineConfig, location: Callable[[str], str | None]
) -> Finding | None:
    """Check that Dataflow's temporary files are in the region of its workers.

    :param location: as in :func:`region_finding`.
    """
    beam = config.beam
    if beam.runner != "DataflowRunner" or not beam.temp_location:
        return None
    place = location(beam.temp_location)
    if place is None:
        return _unknown(beam.temp_location)
    if not f"{beam.region}-".startswith(_prefixes(place)):
        return failed(
            f"the bucket of {beam.temp_location} is in {place}, the workers are in {beam.region}.",
            "use a bucket of that region: gcloud storage buckets create gs://BUCKET "
            f"--location={beam.region}",
        )
    return ok(f"the workers and the bucket are in {place}")


def _unknown(uri: str) -> Finding | None:
    return not_checked(f"nobody tells where the bucket of {uri} is") if uris.is_cloud(uri) else None


def _prefixes(place: str) -> tuple[str, ...]:
    """Return the prefixes of the zones in a bucket's location."""
    return _PARTS.get(place.lower(), (f"{place.lower()}-",))
