"""Reads configurations: presets, ``section.name`` overrides and stored ``config.json`` files."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pipeline_config.finetuning import (
    FINETUNING_FORMAT,
    FINETUNING_FORMAT_VERSION,
    FinetuningConfig,
)
from pipeline_config.finetuning_rules import finetuning_violations
from pipeline_config.patterns import IN_WORDS
from pipeline_config.rental_schema import RentalConfig
from pipeline_config.rules import violations
from pipeline_config.schema import FORMAT_VERSION, PipelineConfig
from pipeline_config.unquoted import broken_fields, fault, kind_of

PRESETS = Path(__file__).parent / "presets"
FOLDERS = {PipelineConfig: PRESETS, FinetuningConfig: PRESETS / "finetuning"}
"""Where the presets of each kind of run are."""

Schema = type[PipelineConfig] | type[FinetuningConfig]
Config = TypeVar("Config", PipelineConfig, FinetuningConfig)


class ConfigError(ValueError):
    """A configuration is refused; ``violations`` has one line for each rule it breaks."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__("\n".join(violations))
        self.violations = violations


def fields(schema: Schema = PipelineConfig) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every setting as (``section.name``, field), in the order of the form."""
    for section, outer in schema.model_fields.items():
        model = outer.annotation
        assert isinstance(model, type)  # noqa: S101 - a section is a class by construction
        assert issubclass(model, BaseModel)  # noqa: S101
        for name, field in model.model_fields.items():
            yield f"{section}.{name}", field


def preset_names(schema: Schema = PipelineConfig) -> list[str]:
    """Return the names of the presets that ship with the project, of one kind of run."""
    return sorted(path.stem for path in FOLDERS[schema].glob("*.toml"))


def load_preset(name: str) -> PipelineConfig:
    """Return a preset's configuration of a pretraining run.

    :param name: one of :func:`preset_names`, or the path of a ``.toml`` file of your own, which may
        contain ``extends = "NAME"``.

    :raises ConfigError: there is no such preset, or it breaks a rule.
    """
    return with_overrides(PipelineConfig(), _preset_overrides(name, PipelineConfig))


def load_finetuning_preset(name: str) -> FinetuningConfig:
    """Return a preset's configuration of a fine-tuning run; as :func:`load_preset`."""
    return with_overrides(FinetuningConfig(), _preset_overrides(name, FinetuningConfig))


def _preset_overrides(name: str, schema: Schema) -> dict[str, Any]:
    is_own, names = name.endswith(".toml"), preset_names(schema)
    path = Path(name) if is_own else FOLDERS[schema] / f"{name}.toml"
    if not (path.is_file() if is_own else name in names):
        line = f"preset: {name!r} does not exist; name a .toml file or one of {names}."
        raise ConfigError([line])
    content = tomllib.loads(path.read_text())
    parent = content.pop("extends", None)
    own = {f"{section}.{key}": v for section, part in content.items() for key, v in part.items()}
    return (_preset_overrides(parent, schema) if parent else {}) | own


def with_overrides(base: Config, overrides: Mapping[str, Any]) -> Config:
    """Return the configuration with some settings replaced.

    :param base: the configuration to start from.
    :param overrides: values by ``section.name``, as the trigger form and REST send them.
    :raises ConfigError: a key is unknown or nested, a value is out of its limits, or the
        combination is impossible; every violation is listed, not just the first.
    """
    schema = type(base)
    merged = base.model_dump(mode="json")
    known = dict(fields(schema))
    optional = {name for name, field in known.items() if type(None) in get_args(field.annotation)}
    lists = {name for name, field in known.items() if get_origin(field.annotation) is list}
    problems = []
    for key, value in overrides.items():
        if key not in known:
            problems.append(_unknown_key(key, value, known, schema))
            continue
        annotation: Any = known[key].annotation
        if _is_bool(value) and bool not in {annotation, *get_args(annotation)}:
            problems.append(f"{key}: Input should be no true or false, received {value!r}.")
            continue
        section, name = key.split(".")
        merged[section][name] = value
        # An empty input of a form or command line means "no value" where that is allowed.
        if value == "" and key in optional:
            merged[section][name] = None
        elif value is None and key in lists:
            merged[section][name] = []
    try:
        config = schema.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(problems + _limit_problems(error)) from error
    problems += _violations(config)
    if problems:
        raise ConfigError(problems)
    return config


def _is_bool(value: object) -> bool:
    """Return whether a value is or contains a bool, which Python would take for 1 or 0."""
    return isinstance(value, bool) or (isinstance(value, list) and any(map(_is_bool, value)))


def _violations(config: PipelineConfig | FinetuningConfig) -> list[str]:
    if isinstance(config, FinetuningConfig):
        return finetuning_violations(config)
    return violations(config)


def _unknown_key(key: str, value: Any, known: Iterable[str], schema: Schema) -> str:
    if key in schema.model_fields:
        inner = next(iter(value), "name") if isinstance(value, dict) else "name"
        return f"{key}: settings are not nested; write '{key}.{inner}' with a value of its own."
    close = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    guide = " See docs/reference/config.md for the names."
    hint = f" Did you mean '{close[0]}'?" if close else guide
    return f"{key}: there is no such setting.{hint}"


def _limit_problems(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, item['loc']))}: {_limit(item)}, received {item['input']!r}."
        for item in error.errors()
    ]


def _limit(item: Any) -> str:
    """Return the limit that a pydantic error is about; a pattern is put in words."""
    words = IN_WORDS.get(item.get("ctx", {}).get("pattern"))
    return f"Input should be: {words}" if words else str(item["msg"])


def parse_overrides(assignments: list[str], schema: Schema = PipelineConfig) -> dict[str, Any]:
    """Return the overrides from the ``section.name=value`` arguments of a command line.

    The value of a text setting is taken literally, and an empty one as no value where that is
    allowed. A list may be written with commas. Any other value is parsed as JSON.

    :raises ConfigError: an argument has no ``=``.
    """
    wrong = [word for word in assignments if "=" not in word]
    if wrong:
        raise ConfigError([f"{word}: write section.name=value." for word in wrong])
    types = {name: field.annotation for name, field in fields(schema)}
    overrides = {}
    for word in assignments:
        name, _, text = word.partition("=")
        overrides[name] = _parse_value(types.get(name), text)
    return overrides


def _parse_value(annotation: Any, text: str) -> Any:
    options = get_args(annotation)
    if type(None) in options and text in {"", "null"}:
        return None
    # Text, optional text, or a choice of words: a partition such as 20260131 is not a number.
    if annotation is str or str in options or get_origin(annotation) is Literal:
        return text
    is_list = get_origin(annotation) is list
    if is_list and not text.startswith("["):
        return [_parse_item(get_args(annotation)[0], word) for word in text.split(",") if word]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parse_item(annotation: Any, word: str) -> Any:
    """Return an item of a list, converted to the item type."""
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return _parse_value(kind, word)


def parse_config(data: bytes, uri: str) -> PipelineConfig:
    """Read a stored ``config.json`` of a pretraining run.

    :raises ConfigError: it is damaged, of an unknown version, or breaks a rule.
    """
    content = _content(data, uri, "pipeline-config", FORMAT_VERSION)
    return _sound(PipelineConfig, content, uri)


def parse_finetuning_config(data: bytes, uri: str) -> FinetuningConfig:
    """Read a stored ``config.json`` of a fine-tuning run.

    :raises ConfigError: it is damaged, of an unknown version, or breaks a rule.
    """
    content = _content(data, uri, FINETUNING_FORMAT, FINETUNING_FORMAT_VERSION)
    return _sound(FinetuningConfig, content, uri)


def parse_rental_config(data: bytes, uri: str) -> RentalConfig:
    """Read the TPU rental settings of a stored ``config.json`` of any kind of run.

    :raises ConfigError: it is damaged, of an unknown version, or breaks a rule.
    """
    if _head(data, uri)["format"] == FINETUNING_FORMAT:
        return parse_finetuning_config(data, uri)
    return parse_config(data, uri)


def _sound(schema: type[Config], content: dict[str, Any], uri: str) -> Config:
    try:
        config = schema.model_validate(content)
    except ValidationError as error:
        raise ConfigError([f"{uri}: {line}" for line in broken_fields(error, schema)]) from None
    if problems := _violations(config):
        raise ConfigError([f"{uri}: {line}" for line in problems])
    return config


def _content(data: bytes, uri: str, kind: str, version: int) -> dict[str, Any]:
    content = _head(data, uri)
    found = (content.pop("format"), content.pop("format_version"))
    if found != (kind, version):
        number = found[1] if isinstance(found[1], int) else kind_of(found[1])
        line = f"{uri}: {'version ' + str(number) if found[0] == kind else 'another format'}; this "
        raise ConfigError([f"{line}program reads {kind!r} version {version}."])
    return content


def _head(data: bytes, uri: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(data)
        content["format"], content["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError([f"{uri}: not a stored configuration ({fault(error)})."]) from None
    return content
