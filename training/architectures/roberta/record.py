"""Describes RoBERTa to the trainer: like BERT, except for what it lacks."""

from __future__ import annotations

from dataclasses import replace

from training.architectures.bert import record as bert
from training.architectures.bert.model import trained_without_pooler
from training.architectures.roberta import model

ARCHITECTURE = replace(
    bert.ARCHITECTURE,
    build_model=model.build_model,
    build_encoder=model.build_encoder,
    build_plain=None,
    trained_variables=trained_without_pooler,
    make_pooler=model.make_pooler,
)
