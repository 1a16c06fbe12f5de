"""Floating-point operations of encoders like BERT, counted from the configuration.

Only matrix multiplications count, 2mnk each, and only those that the model needs: MFU is what is
left of a machine after everything else (PaLM, arXiv 2204.02311, appendix B). The vocabulary
projection is counted at the positions that are predicted, as the head gathers them first.
"""

from __future__ import annotations

from pipeline_config import PipelineConfig
from pipeline_config.schema import ModelConfig
from trained_models.flops import FORWARD_ONLY, TRAINED, WITHOUT_WEIGHTS
from trained_models.phases import Phase
from trained_models.record_sources import predicts_next_sentence


def step_flops(config: PipelineConfig, phase: Phase) -> int:
    """Return the model FLOPs of one training step, over all replicas together.

    Padding counts, as it is computed. Frozen layers run forwards only, and the embeddings below
    them, which the head projects on, need no gradient of their own.

    :param phase: says how many rows a step has, and of what shape.
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
    """Return the FLOPs of a row through encoder, pooler and classifier, forwards."""
    hidden = model.hidden_size
    layers = model.num_hidden_layers * max_seq_length * _layer_flops(model, max_seq_length)
    return layers + 2 * hidden * hidden + 2 * hidden * outputs


def _layer_flops(model: ModelConfig, max_seq_length: int) -> int:
    """Return the FLOPs of one layer on one token, forwards."""
    hidden, inner = model.hidden_size, model.intermediate_size
    # Four projections of attention, two of feed-forward, then scores and their sums.
    return 8 * hidden * hidden + 4 * hidden * inner + 4 * max_seq_length * hidden
