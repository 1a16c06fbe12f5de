"""Zones, accelerator types and runtime versions that the emulated service offers.

Sources: the public table of TPU types and zones and the table of TPU software versions. Workers
per accelerator type: one host up to 8 chips, above that one host per 4 chips.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpu_emulator.messages import AcceleratorFamily

_TF_PJRT = tuple(f"tpu-vm-tf-2.{minor}.0-pjrt" for minor in (15, 16, 17, 18))
_TF_POD_PJRT = tuple(f"tpu-vm-tf-2.{minor}.0-pod-pjrt" for minor in (15, 16, 17, 18))
_BASE = ("tpu-ubuntu2204-base", *_TF_PJRT, *_TF_POD_PJRT)

_RUNTIME_VERSIONS = {
    AcceleratorFamily.V2: _BASE,
    AcceleratorFamily.V3: _BASE,
    AcceleratorFamily.V4: _BASE,
    AcceleratorFamily.V5LITE_POD: ("v2-alpha-tpuv5-lite", *_BASE),
    AcceleratorFamily.V5P: ("v2-alpha-tpuv5", *_BASE),
    AcceleratorFamily.V6E: ("v2-alpha-tpuv6e", *_BASE),
}


@dataclass(frozen=True)
class AcceleratorType:
    """One offered slice: its name, family, topology in chips and number of worker hosts."""

    name: str
    family: AcceleratorFamily
    topology: str
    chips: int
    workers: int = 1

    @property
    def runtime_versions(self) -> tuple[str, ...]:
        """The runtime versions that boot on this family."""
        return _RUNTIME_VERSIONS[self.family]


ACCELERATOR_TYPES = {
    accelerator.name: accelerator
    for accelerator in (
        AcceleratorType("v2-8", AcceleratorFamily.V2, "2x2", 4),
        AcceleratorType("v3-8", AcceleratorFamily.V3, "2x2", 4),
        AcceleratorType("v4-8", AcceleratorFamily.V4, "2x2x1", 4),
        AcceleratorType("v5litepod-1", AcceleratorFamily.V5LITE_POD, "1x1", 1),
        AcceleratorType("v5litepod-4", AcceleratorFamily.V5LITE_POD, "2x2", 4),
        AcceleratorType("v5litepod-8", AcceleratorFamily.V5LITE_POD, "2x4", 8),
        AcceleratorType("v5litepod-16", AcceleratorFamily.V5LITE_POD, "4x4", 16, workers=4),
        AcceleratorType("v5litepod-32", AcceleratorFamily.V5LITE_POD, "4x8", 32, workers=8),
        AcceleratorType("v5p-8", AcceleratorFamily.V5P, "2x2x1", 4),
        AcceleratorType("v6e-1", AcceleratorFamily.V6E, "1x1", 1),
        AcceleratorType("v6e-4", AcceleratorFamily.V6E, "2x2", 4),
        AcceleratorType("v6e-8", AcceleratorFamily.V6E, "2x4", 8),
    )
}

_V5E = ("v5litepod-1", "v5litepod-4", "v5litepod-8", "v5litepod-16", "v5litepod-32")
_V6E = ("v6e-1", "v6e-4", "v6e-8")

ZONES: dict[str, tuple[str, ...]] = {
    "europe-west4-a": ("v2-8", "v3-8", *_V6E),
    "europe-west4-b": (*_V5E, "v5p-8"),
    "us-central1-a": ("v3-8", *_V5E, "v5p-8"),
    "us-central1-b": ("v2-8", "v3-8", *_V6E),
    "us-central2-b": ("v4-8",),
    "us-east1-d": _V6E,
    "us-east5-a": (*_V5E, "v5p-8", *_V6E),
    "us-east5-b": (*_V5E, *_V6E),
    "us-south1-a": _V5E,
    "us-west1-c": _V5E,
    "us-west4-a": _V5E,
}


def zone_runtime_versions(zone: str) -> list[str]:
    """Every runtime version that boots on some accelerator type of the zone, sorted."""
    return sorted(
        {version for name in ZONES[zone] for version in ACCELERATOR_TYPES[name].runtime_versions}
    )


def type_for_config(zone: str, family: int, topology: str) -> AcceleratorType | None:
    """The zone's accelerator type with this family and topology, if it offers one."""
    for name in ZONES[zone]:
        accelerator = ACCELERATOR_TYPES[name]
        if accelerator.family == family and accelerator.topology == topology:
            return accelerator
    return None
