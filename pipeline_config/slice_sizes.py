"""How many cores, chips and hosts a TPU slice has, by the name of its accelerator type."""

from __future__ import annotations

import math


def core_count(accelerator_type: str) -> int:
    """Return the number in an accelerator type's name, over which batches have to split evenly."""
    return int(accelerator_type.rpartition("-")[2])


def chips(accelerator_type: str) -> int:
    """Return the number of chips of an accelerator type.

    v2, v3, v4 and v5p count cores, two a chip, in their names; v5litepod and v6e count chips.
    Source: https://cloud.google.com/tpu/docs/supported-tpu-configurations
    """
    family, _, count = accelerator_type.rpartition("-")
    return max(1, int(count) // 2) if family in {"v2", "v3", "v4", "v5p"} else int(count)


def hosts(accelerator_type: str) -> int:
    """Return the number of hosts of an accelerator type, each a worker.

    Of v5litepod and v6e one host has up to 8 chips; larger slices, and all of the others, have 4
    chips a host. Source: as for :func:`chips`.
    """
    count = chips(accelerator_type)
    return 1 if count <= host_chips(accelerator_type) else math.ceil(count / 4)


def host_chips(accelerator_type: str) -> int:
    """Return the chips of the largest slice of an accelerator type's family that is one host."""
    return 8 if accelerator_type.rpartition("-")[0] in {"v5litepod", "v6e"} else 4
