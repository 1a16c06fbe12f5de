"""Writes a folder that transformers reads as a sequence classifier.

Its class is the architecture's, such as ``BertForSequenceClassification``.

``AutoModelForSequenceClassification`` in https://huggingface.co/docs/transformers/model_doc/auto
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tf_keras

from pipeline_config.task import TaskConfig
from pipeline_config.training_schema import ModelConfig
from trained_models.architectures.architecture import architecture_of, weights
from trained_models.weight_names import Part
from training.architectures.models import named_variables
from training.exporting import hugging_face
from training.finetuning.model import Classifier

_PROBLEMS = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}


def write_configuration(
    folder: Path,
    model: ModelConfig,
    task: TaskConfig,
    labels: Sequence[str],
    *,
    classifier_dropout: float,
) -> None:
    """Write ``config.json``.

    :param labels: labels in order of their ids; empty for a regression, whose number is named like
        its column.
    """
    form = architecture_of(model).hugging_face
    names = dict(enumerate(labels or [task.label_column]))
    own = {
        "architectures": [form.classifier],
        "problem_type": _PROBLEMS[task.kind],
        "id2label": names,
        "label2id": {name: number for number, name in names.items()},
        form.classifier_dropout: classifier_dropout,
    }
    hugging_face.write_json(folder / "config.json", hugging_face.configuration(model) | own)


def added_layers(model: ModelConfig, classifier: Classifier) -> dict[str, tf_keras.layers.Dense]:
    """Return the layers that fine-tuning adds to an encoder, by their names in transformers."""
    form = architecture_of(model).hugging_face
    pooler = {} if form.own_pooler is None else {form.own_pooler: classifier.own_pooler}
    return pooler | {form.classifier_layer: classifier.classifier}


def write_weights(folder: Path, model: ModelConfig, classifier: Classifier) -> None:
    """Write ``model.safetensors``: encoder, pooler and classifier, all of them trained."""
    variables = named_variables(classifier.encoder_network)
    values = {name: variable.numpy() for name, variable in variables.items()}
    of_encoder = [
        weight
        for weight in weights(model, next_sentence=False)
        if weight.part in {Part.ENCODER, Part.POOLER}
    ]
    tensors = hugging_face.tensors(of_encoder, values, architecture_of(model).hugging_face)
    for name, layer in added_layers(model, classifier).items():
        tensors[f"{name}.weight"] = np.ascontiguousarray(layer.kernel.numpy().T)
        tensors[f"{name}.bias"] = layer.bias.numpy()
    hugging_face.save_tensors(folder, tensors)
