"""What the trainer asks of RoBERTa: BERT's answers, but for what it lacks."""

from __future__ import annotations

from training.architectures.bert import model as bert
from training.architectures.bert.record import NO_WEIGHT_DECAY, averaged_axes, scale
from training.architectures.models import Architecture
from training.architectures.roberta import model

ARCHITECTURE = Architecture(
    build_model=model.build_model,
    build_encoder=model.build_encoder,
    build_plain=None,
    trained_variables=bert.trained_without_pooler,
    make_pooler=model.make_pooler,
    initializer=bert.initializer,
    no_weight_decay=NO_WEIGHT_DECAY,
    scale=scale,
    averaged_axes=averaged_axes,
)
