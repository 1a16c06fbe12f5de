"""The TPU chips that a step can be compiled for, and the number of replicas of their slices."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline_config import PipelineConfig
from pipeline_config.accelerators import chips
from preflight.compiled.errors import CheckError


@dataclass(frozen=True)
class Chip:
    """One generation of TPU.

    ``topology`` is the smallest slice that the compiler knows by name; a step is compiled for one
    device of it. ``family`` is the prefix of accelerator types, and ``replicas_per_chip`` the
    number of devices that TensorFlow sees on a chip (v4 and v5p join their two cores into one).
    ``flops_per_cycle`` counts the bfloat16 operations of all matrix units of such a device per
    cycle, two per multiplier; None where the number of multipliers is not published.
    ``unproven``: this project knows of no training with TensorFlow 2 on such chips.
    """

    name: str
    family: str
    topology: str
    replicas_per_chip: int = 1
    flops_per_cycle: int | None = None
    unproven: bool = False
    options: dict[str, str] = field(default_factory=dict)


_MATRIX_UNIT = 2 * 128 * 128
_MEGACORE = {"chip_config_name": "megacore"}
# Matrix units per core: https://cloud.google.com/tpu/docs/v2 to /v5p.
_CHIPS = (
    Chip("v2", "v2", "v2:2x2", replicas_per_chip=2, flops_per_cycle=_MATRIX_UNIT),
    Chip("v3", "v3", "v3:2x2", replicas_per_chip=2, flops_per_cycle=2 * _MATRIX_UNIT),
    Chip("v4", "v4", "v4:2x2x1", flops_per_cycle=8 * _MATRIX_UNIT, options=_MEGACORE),
    Chip("v5e", "v5litepod", "v5e:2x2", flops_per_cycle=4 * _MATRIX_UNIT),
    Chip("v5p", "v5p", "v5p:2x2x1", flops_per_cycle=8 * _MATRIX_UNIT, unproven=True),
    Chip("v6e", "v6e", "v6e:2x2", unproven=True),
)
CHIPS = {chip.name: chip for chip in _CHIPS}


def chip_named(name: str | None, config: PipelineConfig) -> Chip:
    """Return the chip to compile for.

    :param name: one of :data:`CHIPS`; None for the chip of ``tpu.accelerator_type``.
    :raises CheckError: the compiler has no such chip.
    """
    if name is None:
        accelerator = config.tpu.accelerator_type
        family = accelerator.rpartition("-")[0]
        found = next((chip for chip in CHIPS.values() if chip.family == family), None)
        source = f"tpu.accelerator_type={accelerator}"
    else:
        found, source = CHIPS.get(name), f"--topology {name}"
    if found is None:
        raise CheckError(
            f"{source}: there is no compiler for that chip; choose --topology {', '.join(CHIPS)}."
        )
    return found


def replicas(config: PipelineConfig) -> int:
    """Return the number of replicas over which a slice of the type splits a global batch."""
    family = config.tpu.accelerator_type.rpartition("-")[0]
    known = next((chip for chip in CHIPS.values() if chip.family == family), None)
    return chips(config.tpu.accelerator_type) * (known.replicas_per_chip if known else 1)
