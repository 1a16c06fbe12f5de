"""In which zones Cloud TPU has which types: what presets name, and what a check can add to."""

from __future__ import annotations

from collections.abc import Iterable

SOURCE = "https://cloud.google.com/tpu/docs/regions-zones"

ZONES_INTRODUCTION = f"""\
All zones of `tpu.zones` lie in the bucket's region, unless `tpu.allow_other_regions` is on
([tpu.md](../explain/tpu.md#capacity)). Where a region has several zones with a type, name them
all: each is another chance of capacity. By {SOURCE}: *read* on 2026-11-26 in a copy of
that page, or only *believed*, as the copy ended before. Some sizes of v2 and v3 are in only one of
the zones. What your project is offered, `python -m preflight cloud` asks the service."""

# By family, as accelerator types begin.
READ = {
    "v2": ("us-central1-a", "us-central1-b", "us-central1-c"),
    "v3": ("us-central1-a", "us-central1-b"),
    "v4": ("us-central2-b",),
    "v5litepod": ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a"),
    "v5p": ("us-central1-a", "us-east5-a"),
    "v6e": ("us-central1-b", "us-east1-d", "us-east5-a", "us-east5-b"),
}
BELIEVED = {
    "v2": ("asia-east1-c", "europe-west4-a"),
    "v3": ("europe-west4-a",),
    "v5litepod": ("europe-west4-b",),
    "v5p": ("europe-west4-b",),
    "v6e": ("asia-northeast1-b", "europe-west4-a", "southamerica-west1-a"),
}


def region_of(zone: str) -> str:
    """Return the region that a zone such as ``us-central1-a`` is part of."""
    return zone.rpartition("-")[0]


def by_region(zones: Iterable[str]) -> dict[str, list[str]]:
    """Return zones by the region that they are part of, both sorted."""
    found: dict[str, list[str]] = {}
    for zone in sorted(zones):
        found.setdefault(region_of(zone), []).append(zone)
    return found


def more_zones(accelerator_type: str, zones: Iterable[str]) -> list[str]:
    """Return the zones of the same regions that are not named and have the type too, sorted.

    :param accelerator_type: such as ``v5litepod-8``.
    :param zones: ``tpu.zones``.
    """
    named = {*zones}
    regions = {region_of(zone) for zone in named}
    family = accelerator_type.rpartition("-")[0]
    known = {*READ.get(family, ()), *BELIEVED.get(family, ())}
    return sorted(zone for zone in known - named if region_of(zone) in regions)
