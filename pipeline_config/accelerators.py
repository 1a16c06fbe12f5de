"""Accelerator types of Cloud TPU: cores, chips and hosts by type, and the zones that have them."""

from __future__ import annotations

import math
from collections.abc import Iterable

SOURCE = "https://cloud.google.com/tpu/docs/regions-zones"

ZONES_INTRODUCTION = f"""\
All zones of `tpu.zones` lie in the bucket's region, unless `tpu.allow_other_regions` is on
([tpu.md](../explain/tpu.md#capacity)). Where a region has several zones with a type, name them
all: each is another chance of capacity. By {SOURCE}: *read* on 2026-11-26 in a copy of
that page, or only *believed*, as the copy ended before. Some sizes of v2 and v3 are in only one of
the zones. What your project is offered, `python -m preflight cloud` asks the service."""

# By family, the prefix of an accelerator type.
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
    """Return zones grouped by region, both sorted."""
    found: dict[str, list[str]] = {}
    for zone in sorted(zones):
        found.setdefault(region_of(zone), []).append(zone)
    return found


def more_zones(accelerator_type: str, zones: Iterable[str]) -> list[str]:
    """Return further zones of the same regions that also have the type, sorted.

    :param accelerator_type: such as ``v5litepod-8``.
    :param zones: ``tpu.zones``.
    """
    named = {*zones}
    regions = {region_of(zone) for zone in named}
    family = accelerator_type.rpartition("-")[0]
    known = {*READ.get(family, ()), *BELIEVED.get(family, ())}
    return sorted(zone for zone in known - named if region_of(zone) in regions)


def core_count(accelerator_type: str) -> int:
    """Return the number in an accelerator type's name; batches must split evenly over as many."""
    return int(accelerator_type.rpartition("-")[2])


def chips(accelerator_type: str) -> int:
    """Return the number of chips of an accelerator type.

    The names of v2, v3, v4 and v5p count cores, two per chip; those of v5litepod and v6e count
    chips.
    Source: https://cloud.google.com/tpu/docs/supported-tpu-configurations
    """
    family, _, count = accelerator_type.rpartition("-")
    return max(1, int(count) // 2) if family in {"v2", "v3", "v4", "v5p"} else int(count)


def hosts(accelerator_type: str) -> int:
    """Return the number of hosts of an accelerator type, each a worker.

    A single-host slice of v5litepod or v6e has up to 8 chips; larger slices, and all other types,
    have 4 chips per host. Source: as for :func:`chips`.
    """
    count = chips(accelerator_type)
    return 1 if count <= host_chips(accelerator_type) else math.ceil(count / 4)


def host_chips(accelerator_type: str) -> int:
    """Return the chips of the largest single-host slice in an accelerator type's family."""
    return 8 if accelerator_type.rpartition("-")[0] in {"v5litepod", "v6e"} else 4
