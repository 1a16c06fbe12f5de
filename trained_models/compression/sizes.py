"""How many weights a classifier has by its sizes, to compare what is in a file with."""

from __future__ import annotations

import math

from pipeline_config.schema import ModelConfig
from trained_models.architectures.architecture import architecture_of, weights
from trained_models.weight_names import Part


def classifier_weights(model: ModelConfig, outputs: int) -> int:
    """Return the weights of encoder, pooler and classifier.

    :param outputs: of the last layer.
    """
    encoder = sum(
        math.prod(weight.shape)
        for weight in weights(model, next_sentence=False)
        if weight.part in {Part.ENCODER, Part.POOLER}
    )
    own_pooler = 0
    if architecture_of(model).hugging_face.own_pooler is not None:
        own_pooler = model.hidden_size * (model.hidden_size + 1)
    return encoder + own_pooler + outputs * (model.hidden_size + 1)
