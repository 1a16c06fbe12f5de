"""Floating-point operations of a training step, counted from the configuration.

Only matrix multiplications count, 2mnk each, and only those that the model needs: MFU is what is
left of a machine after everything else (PaLM, arXiv 2204.02311, appendix B). The vocabulary
projection is counted at the positions that are predicted, as the head gathers them first.
"""

from __future__ import annotations

from pipeline_config import PipelineConfig
from pipeline_config.peaks import peak_flops
from pipeline_config.schema import ModelConfig
from trained_models.phases import Phase
from trained_models.record_sources import predicts_next_sentence

# The backward pass multiplies twice: for the gradient of the input and for that of the weights.
TRAINED, WITHOUT_WEIGHTS, FORWARD_ONLY = 3, 2, 1


def step_flops(config: PipelineConfig, phase: Phase) -> int:
    """Return the model FLOPs of one training step, over all replicas together.

    Padding counts, as it is computed. Frozen layers run forwards only, and the embeddings below
    them, which the head projects on, need no gradient of their own.

    :param phase: says how many rows a step has, and of what shape.
    """
    model, frozen = config.model, config.training.frozen_layers
    hidden = model.hidden_size
    layer = layer_flops(model, phase.max_seq_length)
    layers = TRAINED * (model.num_hidden_layers - frozen) + FORWARD_ONLY * frozen
    # By prediction: a dense layer, and the projection on the vocabulary.
    projection = (WITHOUT_WEIGHTS if frozen else TRAINED) * 2 * hidden * model.vocab_size
    head = TRAINED * 2 * hidden * hidden + projection
    row = phase.max_seq_length * layers * layer + phase.max_predictions_per_seq * head
    if predicts_next_sentence(config):
        row += TRAINED * (2 * hidden * hidden + 2 * hidden * 2)
    return phase.global_batch_size * row


def layer_flops(model: ModelConfig, max_seq_length: int) -> int:
    """Return the FLOPs of one layer on one token, forwards."""
    hidden, inner = model.hidden_size, model.intermediate_size
    # Four projections of attention, two of feed-forward, then scores and their sums.
    return 8 * hidden * hidden + 4 * hidden * inner + 4 * max_seq_length * hidden


def available_flops(config: PipelineConfig) -> float | None:
    """Return the peak FLOP/s of the machine that trains, or None where it is not known.

    Only known for TPUs: what a CPU could do at best depends on its clock, its cores and who else
    uses them.
    """
    if config.training.distribution_strategy != "tpu":
        return None
    return peak_flops(config.tpu.accelerator_type)
