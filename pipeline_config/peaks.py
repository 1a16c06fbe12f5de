"""How fast chips can multiply at best: what a measured speed is compared with."""

from __future__ import annotations

from pipeline_config.rules import chips

# Peak bfloat16 FLOP/s of one chip by family, as accelerator types begin. From the tables "Peak
# compute per chip (bf16)" of https://cloud.google.com/tpu/docs/v2 to /v6e, read on 2026-11-22.
PEAK_FLOPS_PER_CHIP = {
    "v2": 45e12,
    "v3": 123e12,
    "v4": 275e12,
    "v5litepod": 197e12,
    "v5p": 459e12,
    "v6e": 918e12,
}


def peak_flops(accelerator_type: str) -> float | None:
    """Return the peak FLOP/s of all chips of a slice together; None if it is not known.

    It is that of bfloat16, in which the TPU's matrix units multiply float32 too unless told
    otherwise.

    :param accelerator_type: such as ``v5litepod-8``.
    """
    peak = PEAK_FLOPS_PER_CHIP.get(accelerator_type.rpartition("-")[0])
    return None if peak is None else peak * chips(accelerator_type)
