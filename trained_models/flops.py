"""Counts the floating-point operations of a step of an encoder, and those that a machine can do.

An architecture chooses the functions that apply to it: :mod:`trained_models.architectures`.
"""

from __future__ import annotations

from pipeline_config import PipelineConfig
from pipeline_config.accelerators import chips
from pipeline_config.training_schema import ModelConfig
from trained_models.phases import Phase
from trained_models.record_sources import predicts_next_sentence

# The backward pass multiplies twice: for the gradient of the input and for that of the weights.
TRAINED, WITHOUT_WEIGHTS, FORWARD_ONLY = 3, 2, 1
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


def available_flops(config: PipelineConfig) -> float | None:
    """Return the peak FLOP/s of the machine that trains, or None if it is not known.

    It is only known for TPUs: the peak of a CPU depends on its clock, its cores and their other
    users.
    """
    if config.training.distribution_strategy != "tpu":
        return None
    return peak_flops(config.tpu.accelerator_type)


def peak_flops(accelerator_type: str) -> float | None:
    """Return the peak FLOP/s of all chips of a slice together; None if it is not known.

    It is that of bfloat16, in which the TPU's matrix units multiply float32 too unless told
    otherwise.

    :param accelerator_type: such as ``v5litepod-8``.
    """
    peak = PEAK_FLOPS_PER_CHIP.get(accelerator_type.rpartition("-")[0])
    return None if peak is None else peak * chips(accelerator_type)


def step_flops(config: PipelineConfig, phase: Phase) -> int:
    """Return the model FLOPs of one training step, over all replicas together.

    Padding counts, as it is computed. Frozen layers only run forward, and the embeddings below
    them, which the head projects on, need no gradient of their own.

    :param phase: has the number and the shape of the rows of a step.
    """
    model, frozen = config.model, config.training.frozen_layers
    hidden = model.hidden_size
    layer = _layer_flops(model, phase.max_seq_length)
    layers = TRAINED * (model.num_hidden_layers - frozen) + FORWARD_ONLY * frozen
    # By prediction: a dense layer, and the projection on the vocabulary.
    projection = (WITHOUT_WEIGHTS if frozen else TRAINED) * 2 * hidden * model.vocab_size
    head = TRAINED * 2 * hidden * hidden + projection
    row = phase.max_seq_length * layers * layer + phase.max_predictions_per_seq * head
    if predicts_next_sentence(config):
        row += TRAINED * (2 * hidden * hidden + 2 * hidden * 2)
    return phase.global_batch_size * row


def classifier_flops(model: ModelConfig, max_seq_length: int, outputs: int) -> int:
    """Return the forward FLOPs of a row through encoder, pooler and classifier."""
    hidden = model.hidden_size
    layers = model.num_hidden_layers * max_seq_length * _layer_flops(model, max_seq_length)
    return layers + 2 * hidden * hidden + 2 * hidden * outputs


def _layer_flops(model: ModelConfig, max_seq_length: int) -> int:
    """Return the forward FLOPs of one layer on one token."""
    hidden, inner = model.hidden_size, model.intermediate_size
    # Four projections of attention, two of feed-forward, then scores and their sums.
    return 8 * hidden * hidden + 4 * hidden * inner + 4 * max_seq_length * hidden
