"""What machine this is, as far as the speed of a training depends on it."""

from __future__ import annotations

import platform
from pathlib import Path

# By how much they speed up, most first.
_BFLOAT16_UNITS = ("amx_bf16", "avx512_bf16")


def processor() -> str:
    """Return the name of the processor."""
    return _cpuinfo().get("model name", platform.machine())


def bfloat16_units() -> str | None:
    """Return the instructions for bfloat16 that the processor has, or None.

    Without any, a library computes in float32 and converts, so bfloat16 is no faster.
    """
    flags = _cpuinfo().get("flags", "").split()
    return next((unit for unit in _BFLOAT16_UNITS if unit in flags), None)


def _cpuinfo() -> dict[str, str]:
    """Return the fields of the first processor."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    fields = (line.partition(":") for line in first.split("\n"))
    return {name.strip(): value.strip() for name, _, value in fields}
