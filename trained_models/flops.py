"""How many floating-point operations a step has and a machine can do, whatever is trained.

An architecture counts those of its own steps: :mod:`trained_models.architectures`.
"""

from __future__ import annotations

from pipeline_config import PipelineConfig
from pipeline_config.peaks import peak_flops

# The backward pass multiplies twice: for the gradient of the input and for that of the weights.
TRAINED, WITHOUT_WEIGHTS, FORWARD_ONLY = 3, 2, 1


def available_flops(config: PipelineConfig) -> float | None:
    """Return the peak FLOP/s of the machine that trains, or None where it is not known.

    Only known for TPUs: what a CPU could do at best depends on its clock, its cores and who else
    uses them.
    """
    if config.training.distribution_strategy != "tpu":
        return None
    return peak_flops(config.tpu.accelerator_type)
