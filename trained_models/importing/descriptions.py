"""Which architecture weights are for, as the file beside them says. No TensorFlow, either."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from pipeline_config.schema import ModelConfig
from pipeline_config.unquoted import UNPARSABLE, fault, kind_of
from pipeline_store import uris
from trained_models.errors import UserError
from trained_models.importing.sources import (
    GOOGLE_CONFIG,
    HUGGING_FACE_CONFIG,
    TF_MODELS_CONFIG,
    SourceKind,
    split,
)

# Names as in bert_config.json, which are Hugging Face's and ours, too. `hidden_act` besides.
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
# Settings that change what the same weights compute; the rest of the model's follow from shapes.
ARCHITECTURE = (*SIZES, "hidden_act")
# By our names. "gelu" is the exact form in Hugging Face's library, the tanh form in Google's.
# https://github.com/huggingface/transformers/blob/main/src/transformers/activations.py
_TANH_FORMS = dict.fromkeys(
    ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"), "gelu_new"
)
HUGGING_FACE_ACTIVATIONS = {"gelu": "gelu", "gelu_python": "gelu"} | _TANH_FORMS
GOOGLE_ACTIVATIONS = {"gelu": "gelu_new"} | _TANH_FORMS
# Of the encoder in tf-models.
LAYER_NORM_EPSILON = 1e-12
# What BERT has, where Hugging Face's configuration offers something else.
_AS_BERT: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
}
# Places of the settings in tf-models' experiment configuration, `task.model.encoder.bert`.
_TF_MODELS_NAMES: dict[str, str] = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
}


class _Loader(yaml.SafeLoader):
    """Also reads the tuples that tf-models writes."""


_Loader.add_constructor(
    "tag:yaml.org,2002:python/tuple", lambda loader, node: tuple(loader.construct_sequence(node))
)


class Description(NamedTuple):
    """What a file beside weights says of them.

    :param uri: the file.
    :param settings: of :data:`ARCHITECTURE`, by name.
    :param notes: what is different from here, but no reason to refuse.
    """

    uri: str
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()

    def differences(self, model: ModelConfig) -> list[str]:
        """Return a line for each setting that is not the model's; the vocabulary may grow."""
        here = model.model_dump(mode="json")
        return [
            f"model.{name} is {value!r} there and {here[name]!r} here"
            for name, value in self.settings.items()
            if name != "vocab_size" and value != here[name]
        ]


def describe(uri: str, kind: SourceKind, read: uris.Reader = uris.read) -> Description | None:
    """Return the description beside weights that are not ours; None when there is no file.

    :param read: reads it.
    :raises UserError: it is not readable, incomplete, or of something that is not BERT.
    """
    if kind is SourceKind.HUGGING_FACE:
        config = uris.join(uri, HUGGING_FACE_CONFIG)
        return _hugging_face(config, read(config))
    folder, _ = split(uri)
    for name, parse in {GOOGLE_CONFIG: _google, TF_MODELS_CONFIG: _tf_models}.items():
        config = uris.join(folder, name)
        if uris.exists(config):
            return parse(config, read(config))
    return None


def check_description(
    uri: str, kind: SourceKind, model: ModelConfig, read: uris.Reader = uris.read
) -> Description | None:
    """Return the description beside weights, refusing another architecture than the configured one.

    :param read: reads it.
    :raises UserError: with all differences; see also :func:`describe`.
    """
    found = describe(uri, kind, read)
    differences = found.differences(model) if found else []
    if found and differences:
        raise UserError(
            f"{uri} does not fit ({found.uri}): {'; '.join(differences)}.{_gelu(differences)} Set "
            "the model section to what it says; `python -m training.import_model "
            f"{uri} --write-preset FILE.toml` writes it for you."
        )
    return found


def _gelu(differences: list[str]) -> str:
    if not any(line.startswith("model.hidden_act") for line in differences):
        return ""
    return (
        " Of the two functions that are called gelu, `gelu` is the exact form (Hugging Face) and "
        "`gelu_new` the tanh form (Google's BERT, tf-models)."
    )


def _hugging_face(uri: str, data: bytes) -> Description:
    config = _parse_json(uri, data)
    problems = [
        f"{name} is another than {' or '.join(map(repr, allowed))}"
        for name, allowed in _AS_BERT.items()
        if config.get(name, allowed[0]) not in allowed
    ]
    epsilon = config.get("layer_norm_eps", LAYER_NORM_EPSILON)
    if type(epsilon) not in (int, float):
        problems.append(f"layer_norm_eps is {kind_of(epsilon)}, not a number")
    settings = _settings(uri, config, HUGGING_FACE_ACTIVATIONS, problems)
    notes = []
    if epsilon != LAYER_NORM_EPSILON:
        notes.append(
            f"Its layer norms add {epsilon} to the variance, those here {LAYER_NORM_EPSILON}: "
            "outputs differ a little until training has adapted."
        )
    return Description(uri, settings, tuple(notes))


def _google(uri: str, data: bytes) -> Description:
    return Description(uri, _settings(uri, _parse_json(uri, data), GOOGLE_ACTIVATIONS, []))


def _tf_models(uri: str, data: bytes) -> Description:
    try:
        # A subclass of the safe loader.
        params = yaml.load(data, Loader=_Loader)  # noqa: S506
        model = params["task"]["model"]
        items: dict[Any, Any] = dict(model["encoder"]["bert"])
    except (yaml.YAMLError, *UNPARSABLE) as error:
        raise UserError(
            f"{uri} is no experiment configuration of tf-models with task.model.encoder.bert "
            f"({type(error).__name__}); remove it to take the architecture from the weights, or "
            f"put a {GOOGLE_CONFIG} beside them."
        ) from None
    problems = []
    if model["encoder"].get("type", "bert") != "bert":
        problems.append("task.model.encoder.type is another than bert")
    if odd := sum(not isinstance(name, str) for name in items):
        problems.append(f"task.model.encoder.bert has {odd} name(s) that are no text")
    if items.get("norm_first"):
        problems.append("norm_first is true, here layers are normalized after each part")
    head = model.get("mlm_activation", items.get("hidden_activation"))
    if head != items.get("hidden_activation"):
        problems.append("mlm_activation is another than that of the layers")
    config = {_TF_MODELS_NAMES.get(name, name): value for name, value in items.items()}
    return Description(uri, _settings(uri, config, GOOGLE_ACTIVATIONS, problems))


def _settings(
    uri: str, config: Mapping[str, Any], activations: dict[str, str], problems: list[str]
) -> dict[str, Any]:
    problems = [*problems, *_unusable(config, activations)]
    if problems:
        raise UserError(f"{uri} does not describe a BERT that can be used: {'; '.join(problems)}.")
    sizes = {name: config[name] for name in SIZES}
    return sizes | {"hidden_act": activations[config["hidden_act"]]}


def _unusable(config: Mapping[str, Any], activations: dict[str, str]) -> Iterator[str]:
    missing = [name for name in ARCHITECTURE if name not in config]
    if missing:
        yield f"it lacks {', '.join(missing)}"
    for name in SIZES:
        # Nothing else of a file is told: see pipeline_config.unquoted.
        if name in config and type(config[name]) is not int:
            yield f"{name} is {kind_of(config[name])}, not a whole number"
    if config.get("hidden_act", "gelu") not in list(activations):
        yield f"hidden_act is none of {', '.join(activations)}"
    width = config.get("embedding_size") or config.get("hidden_size")
    if width != config.get("hidden_size"):
        yield "embedding_size is another than hidden_size, here they are the same"


def _parse_json(uri: str, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{uri} is not JSON ({fault(error)}); get the file again.") from None
    if not isinstance(content, dict):
        raise UserError(f"{uri} is no JSON object; get the file again.")
    return content
