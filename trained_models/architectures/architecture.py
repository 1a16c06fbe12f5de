"""The interface of an architecture to the rest of the code, except for what needs TensorFlow.

``model.architecture`` names a folder next to this file whose ``record.py`` implements it as
``ARCHITECTURE``. The part that needs TensorFlow is in :mod:`training.architectures`, in a folder of
the same name. Nothing outside these two folders compares the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, get_args

from pipeline_config import PipelineConfig
from pipeline_config.training_schema import ModelConfig
from trained_models.phases import Phase
from trained_models.weight_names import Part, Weight


@dataclass(frozen=True)
class HuggingFaceForm:
    """The form in which the library transformers stores a model of an architecture.

    :param model_type: ``model_type`` in ``config.json``.
    :param masked_lm: its class with a masked-LM head.
    :param encoder: its class without one.
    :param classifier: its class for sequence classification.
    :param prefix: of the encoder's tensors in classes that have a head, such as ``bert.``; not part
        of :attr:`trained_models.weight_names.Weight.tensor`.
    :param settings: names in ``config.json`` by ours, of everything that decides what weights
        compute.
    :param more: how much larger a number is there.
    :param dropouts: the same as ``settings``, for those that matter in training only.
    :param activations: our ``hidden_act`` by its name there.
    :param fixed: settings of ``config.json`` that are constant here: accepted values by name, of
        which the first is the default.
    :param constants: other entries of an exported ``config.json``.
    :param classifier_dropout: name of the dropout before the classifier.
    :param own_pooler: name of the layer that pools for a classifier, if the encoder has no pooler.
    :param classifier_layer: name of a classifier's last layer.
    :param head_prefix: prefixes of the names of the masked-LM head's tensors.
    :param tied: first names of tensors by their second names.
    :param left_out: tensors that are not weights, or belong to layers that do not exist here.
    :param inputs: names of the inputs that the tokenizer passes to the model.
    """

    model_type: str
    masked_lm: str
    encoder: str
    classifier: str
    prefix: str
    settings: Mapping[str, str]
    dropouts: Mapping[str, str]
    activations: Mapping[str, str]
    fixed: Mapping[str, tuple[Any, ...]]
    constants: Mapping[str, Any]
    classifier_dropout: str
    head_prefix: tuple[str, ...]
    tied: Mapping[str, str]
    left_out: frozenset[str]
    inputs: tuple[str, ...]
    more: Mapping[str, int] = field(default_factory=dict)
    own_pooler: str | None = None
    classifier_layer: str = "classifier"

    def full_name(self, weight: Weight) -> str:
        """Return the name of a weight's tensor in a model with a head."""
        prefix = "" if weight.part in {Part.MASKED_LM, Part.NEXT_SENTENCE} else self.prefix
        return prefix + weight.tensor

    def known_name(self, name: str) -> str:
        """Return the current name of a tensor, without the prefix of the encoder.

        Old models have TensorFlow's names of layer norms.
        """
        name = name.removeprefix(self.prefix)
        head, _, last = name.rpartition(".")
        return f"{head}.{ {'gamma': 'weight', 'beta': 'bias'}.get(last, last) }" if head else name


@dataclass(frozen=True)
class Architecture:
    """An architecture, as far as files and numbers go.

    :param title: its name in a model card.
    :param weights: function from sizes, and whether there is a next-sentence head, to all weights
        from the embeddings up.
    :param norm_epsilon: the number that layer norms add to the variance.
    :param step_flops: function to the model FLOPs of a step of pretraining, over all replicas.
    :param classifier_flops: function from sizes, tokens of a row and outputs to the forward FLOPs
        of a row of a classifier.
    :param describe: function from the URI and content of a ``config.json`` to settings of the
        model, if :attr:`HuggingFaceForm.settings` alone do not define them.
    :param tied: function from sizes to :attr:`HuggingFaceForm.tied`, if that depends on them.
    """

    title: str
    weights: Callable[[ModelConfig, bool], list[Weight]]
    norm_epsilon: float
    step_flops: Callable[[PipelineConfig, Phase], int]
    classifier_flops: Callable[[ModelConfig, int, int], int]
    hugging_face: HuggingFaceForm
    describe: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None
    tied: Callable[[ModelConfig], Mapping[str, str]] | None = None

    @property
    def has_pooler(self) -> bool:
        """Return whether it has a pooler: a layer on the first token that pretraining may train."""
        # Neither two stacks of layers nor an activation make a difference to that.
        model = ModelConfig(hidden_act="gelu_new")
        return any(weight.part is Part.POOLER for weight in self.weights(model, False))

    def stored_form(self, model: ModelConfig) -> HuggingFaceForm:
        """Return the form in which the library stores a model of these sizes."""
        form = self.hugging_face
        return form if self.tied is None else replace(form, tied=self.tied(model))


def architecture_of(model: ModelConfig) -> Architecture:
    """Return the architecture of a model."""
    return named(model.architecture)


def named(name: str) -> Architecture:
    """Return the architecture of a name that the schema knows."""
    found: Architecture = import_module(f"trained_models.architectures.{name}.record").ARCHITECTURE
    return found


def names() -> tuple[str, ...]:
    """Return the values of ``model.architecture``."""
    return get_args(ModelConfig.model_fields["architecture"].annotation)


def weights(model: ModelConfig, *, next_sentence: bool) -> list[Weight]:
    """Return the weights of a model, from the embeddings up.

    :param next_sentence: whether there is a next-sentence head.
    """
    return architecture_of(model).weights(model, next_sentence)


def step_flops(config: PipelineConfig, phase: Phase) -> int:
    """Return the model FLOPs of one step of pretraining, over all replicas together.

    :param phase: has the number and the shape of the rows of a step.
    """
    return architecture_of(config.model).step_flops(config, phase)
