"""Describes T5 to the trainer."""

from __future__ import annotations

from typing import NoReturn

from trained_models.architectures.t5.record import NO_CLASSIFIER
from trained_models.errors import UserError
from training.architectures.models import Architecture
from training.architectures.t5 import model
from training.architectures.t5.text_to_text import NO_WEIGHT_DECAY


def _no_classifier(*_: object) -> NoReturn:
    raise UserError(NO_CLASSIFIER)


def _no_amos(*_: object) -> NoReturn:
    raise UserError(
        "optimizer.type: amos needs to know how large each of a model's weights is, which of T5 is "
        "not known; use adamw or lamb."
    )


ARCHITECTURE = Architecture(
    build_model=model.build_model,
    build_encoder=_no_classifier,
    build_plain=None,
    trained_variables=model.trained_variables,
    make_pooler=_no_classifier,
    initializer=_no_classifier,
    no_weight_decay=NO_WEIGHT_DECAY,
    scale=_no_amos,
    averaged_axes=_no_amos,
)
