"""Reads which architecture weights are for, from the file next to them. No TensorFlow, either."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from pipeline_config.training_schema import ModelConfig
from pipeline_config.unquoted import UNPARSABLE, fault, kind_of
from pipeline_store import uris
from trained_models.architectures import architecture
from trained_models.architectures.bert import record as bert
from trained_models.errors import UserError
from trained_models.importing.sources import (
    GOOGLE_CONFIG,
    HUGGING_FACE_CONFIG,
    TF_MODELS_CONFIG,
    SourceKind,
    split,
)

BERT = "bert"
ARCHITECTURE = ("architecture", *bert.SETTINGS, "attention_head_size")
"""Settings that change what the same weights compute, or which exist; frozen in a lineage."""
GOOGLE_ACTIVATIONS = {"gelu": "gelu_new"} | bert.TANH_FORMS
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
    """The description of weights by a file next to them.

    :param uri: the file.
    :param settings: values of the settings in :data:`ARCHITECTURE`, by name.
    :param notes: differences from here that are no reason to refuse.
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
    """Return the description next to weights that are not ours; None if there is no file.

    :param read: function that reads the file.
    :raises UserError: it is not readable, incomplete, or of an architecture that is not known.
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
    """Return the description next to weights; refuse another architecture than the configured one.

    :param read: function that reads the file.
    :raises UserError: it is another one; all differences are listed. See also :func:`describe`.
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
    known = {
        architecture.named(name).hugging_face.model_type: name for name in architecture.names()
    }
    # Old folders of BERT have no model_type. A value that is no text counts as another type, too.
    name = known.get(str(config.get("model_type", BERT)))
    if name is None:
        raise UserError(
            f"{uri} does not describe a model that can be used: model_type is another than "
            f"{' or '.join(map(repr, known))}."
        )
    record = architecture.named(name)
    form = record.hugging_face
    if record.describe is not None:
        return Description(uri, record.describe(uri, config))
    problems = [
        f"{fixed} is another than {' or '.join(map(repr, allowed))}"
        for fixed, allowed in form.fixed.items()
        if config.get(fixed, allowed[0]) not in allowed
    ]
    epsilon = config.get("layer_norm_eps", record.norm_epsilon)
    if type(epsilon) not in (int, float):
        problems.append(f"layer_norm_eps is {kind_of(epsilon)}, not a number")
    settings = _settings(uri, config, name, form.activations, problems)
    notes = []
    if epsilon != record.norm_epsilon:
        notes.append(
            f"Its layer norms add {epsilon} to the variance, those here {record.norm_epsilon}: "
            "outputs differ a little until training has adapted."
        )
    return Description(uri, settings, tuple(notes))


def _google(uri: str, data: bytes) -> Description:
    return Description(uri, _of_bert(uri, _parse_json(uri, data), []))


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
    return Description(uri, _of_bert(uri, config, problems))


def _of_bert(uri: str, config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    return _settings(uri, config, BERT, GOOGLE_ACTIVATIONS, problems)


def _settings(
    uri: str,
    config: Mapping[str, Any],
    name: str,
    activations: Mapping[str, str],
    problems: list[str],
) -> dict[str, Any]:
    record = architecture.named(name)
    names = record.hugging_face.settings
    problems = [*problems, *_unusable(config, names, activations)]
    if problems:
        raise UserError(
            f"{uri} does not describe a {record.title} that can be used: {'; '.join(problems)}."
        )
    found = {ours: config[theirs] for ours, theirs in names.items()}
    found |= {ours: found[ours] - more for ours, more in record.hugging_face.more.items()}
    return {"architecture": name} | found | {"hidden_act": activations[found["hidden_act"]]}


def _unusable(
    config: Mapping[str, Any], names: Mapping[str, str], activations: Mapping[str, str]
) -> Iterator[str]:
    missing = [name for name in names.values() if name not in config]
    if missing:
        yield f"it lacks {', '.join(missing)}"
    activation, width = names["hidden_act"], names["hidden_size"]
    for name in names.values():
        # Nothing else of a file is quoted: see pipeline_config.unquoted.
        if name != activation and name in config and type(config[name]) is not int:
            yield f"{name} is {kind_of(config[name])}, not a whole number"
    if config.get(activation, "gelu") not in list(activations):
        yield f"{activation} is none of {', '.join(activations)}"
    if (config.get("embedding_size") or config.get(width)) != config.get(width):
        yield f"embedding_size is another than {width}, here they are the same"


def _parse_json(uri: str, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{uri} is not JSON ({fault(error)}); get the file again.") from None
    if not isinstance(content, dict):
        raise UserError(f"{uri} is no JSON object; get the file again.")
    return content
