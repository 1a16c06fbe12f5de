"""The names in the store and in configurations: keys, kinds, folders, settings, enumerations."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from corpus.mlm_records import record_features
from pipeline_config import (
    FinetuningConfig,
    PipelineConfig,
    TaskConfig,
    load_finetuning_preset,
    load_preset,
    preset_names,
)
from pipeline_config.settings import load_settings
from pipeline_store import identity
from pipeline_store.formats import Attempt, ExitKind, Reservation, StoredFile
from pipeline_store.layout import READY_MARKERS, StoreLayout, VersionLayout
from tests.golden.discovery import calls, sources, subclasses
from tests.golden.more_files import full
from tpu_lifecycle.boot.launcher import boot_metadata
from tpu_lifecycle.service.labels import attempt_labels
from trained_models.metric_files import FIELDS

ROOT = "/store"


def formats() -> dict[str, list[str]]:
    """Return every key of every stored file, by kind and version."""
    found = {
        f"{kind.kind} {kind.version}": lines(kind.model_json_schema())
        for kind in subclasses(StoredFile, rigs=True)
    }
    for config in (PipelineConfig(), FinetuningConfig()):
        head = json.loads(config.to_bytes())
        found[f"{head['format']} {head['format_version']}"] = ["(sections: see settings)"]
    found["task.toml"] = lines(TaskConfig.model_json_schema())
    found["metrics/*.jsonl"] = sorted(f"{kind}.{key}" for kind in FIELDS for key in FIELDS[kind])
    records = {
        f"{feature.name}: {feature.dtype} [{feature.length}]"
        for pairs, masked in itertools.product((True, False), repeat=2)
        for feature in record_features(next_sentence=pairs, masked=masked)
    }
    found["*.tfrecord"] = sorted(records)
    found["*.npz"] = sorted(
        {word.arg or "" for call in calls("to_npz") for word in call.keywords} - {""}
    )
    return found


def lines(schema: Mapping[str, Any]) -> list[str]:
    """Return every key below a JSON schema with its types, such as ``files[].bytes: integer``.

    A key that a file may lack ends with a question mark.
    """
    types: dict[str, dict[str, None]] = {}
    for path, kind in keys(schema, "", schema):
        types.setdefault(path, {})[kind] = None
    return sorted(f"{path}: {' or '.join(kinds)}" for path, kinds in types.items())


def keys(schema: Mapping[str, Any], path: str, top: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every key below a schema, and its type, as often as it is possible."""
    if "$ref" in schema:
        schema = top["$defs"][schema["$ref"].rpartition("/")[2]]
    for option in schema.get("anyOf", ()):
        yield from keys(option, path, top)
    for name, inner in schema.get("properties", {}).items():
        need = "" if name in schema.get("required", ()) else "?"
        yield from keys(inner, f"{path}.{name}{need}".lstrip("."), top)
    for number, inner in enumerate(schema.get("prefixItems", ())):
        yield from keys(inner, f"{path}[{number}]", top)
    if isinstance(inner := schema.get("items"), dict):
        yield from keys(inner, f"{path}[]", top)
    if isinstance(inner := schema.get("additionalProperties"), dict):
        named = _resolved(schema.get("propertyNames", {}), top).get("enum", ())
        yield from keys(inner, f"{path}{{{'|'.join(named)}}}", top)
    if not any(word in schema for word in ("anyOf", "properties", "prefixItems")):
        inner_types = ("items", "additionalProperties")
        if not any(isinstance(schema.get(word), dict) for word in inner_types):
            yield path, _type(schema)


def _resolved(schema: Mapping[str, Any], top: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return top["$defs"][reference.rpartition("/")[2]] if reference else schema


def _type(schema: Mapping[str, Any]) -> str:
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else ())
    words = "|".join(map(str, choices)) or schema.get("type", "any")
    return " ".join(filter(None, (words, schema.get("format"), schema.get("pattern"))))


def settings() -> dict[str, list[str]]:
    """Return the settings of each kind of run, and the presets."""
    found = {}
    for config, load in ((PipelineConfig, load_preset), (FinetuningConfig, load_finetuning_preset)):
        kind = json.loads(config().to_bytes())["format"]
        found[kind] = [line.replace("?", "", 2) for line in lines(config.model_json_schema())]
        found[f"presets of {kind}"] = preset_names(config)
        assert all(load(name) for name in found[f"presets of {kind}"])
        hashes = (name for name in dir(config) if name.endswith("sha256"))
        # Shards and checkpoints are found again by these.
        found[f"hashes of {kind}"] = [f"{name} {getattr(config(), name)}" for name in hashes]
    return found


class _Asked(dict[str, str]):
    """An empty environment that remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return default


def environment() -> list[str]:
    """Return the variables that the product reads or sets and that belong to nobody else."""
    asked = _Asked()
    load_settings(asked)
    words = re.compile(r"""["'](REPRETRAIN_[A-Z_]+)["']""")
    return sorted(asked.names.union(*map(words.findall, sources().values())))


def places() -> list[str]:
    """Return every folder and file of the store's layout."""
    store = StoreLayout(ROOT)
    version = VersionLayout(store.lineage("{lineage_id}").version("{version_id}"))
    seen = {type(store), type(version)}
    found = {*_places(store, seen), *_places(version, seen)}
    layouts = {c for c in vars(sys.modules[StoreLayout.__module__]).values() if _is_layout(c)}
    assert seen == layouts, f"no method leads to {layouts - seen}: name it in {__name__}"
    return sorted(found) + [f"corpus/{{partition}}/{marker}" for marker in READY_MARKERS]


def _is_layout(thing: object) -> bool:
    return isinstance(thing, type) and thing.__name__.endswith("Layout")


def _places(layout: Any, seen: set[type]) -> Iterator[str]:
    for name, member in vars(type(layout)).items():
        # This one only joins a URI that it is given.
        if name.startswith("_") or name == "resolve":
            continue
        for place in _values(layout, name, member):
            if isinstance(place, str):
                yield place.removeprefix(f"{ROOT}/")
            else:
                seen.add(type(place))
                yield from _places(place, seen)


def _values(layout: Any, name: str, member: object) -> Iterator[Any]:
    if isinstance(member, property):
        yield getattr(layout, name)
    elif callable(member):
        for arguments in _arguments(getattr(layout, name)):
            yield getattr(layout, name)(**arguments)


def _arguments(function: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments that show in a name where each of them goes."""
    names = inspect.signature(function).parameters
    choices = [
        [7] if "int" in kind else [["{" + name + "}"]] if "list" in kind else ["{" + name + "}"]
        for name, kind in ((name, str(found.annotation)) for name, found in names.items())
    ]
    optional = [name for name, found in names.items() if "None" in str(found.annotation)]
    for values in itertools.product(*choices):
        arguments = dict(zip(names, values, strict=True))
        yield arguments
        if optional:
            yield arguments | dict.fromkeys(optional)


def identities() -> list[str]:
    """Return what the functions that name runs, TPUs, shards and versions make of their words."""
    functions = inspect.getmembers(identity, inspect.isfunction)
    found = (
        (function(**arguments), arguments)
        for name, function in functions
        if not name.startswith(("_", "check_"))
        for arguments in _arguments(function)
    )
    return sorted(f"{name} of {', '.join(map(str, words.values()))}" for name, words in found)


def enumerations() -> list[str]:
    """Return the values of every enumeration, each as one line."""
    return sorted(" | ".join(one.value for one in kind) for kind in subclasses(StrEnum))


def exit_codes() -> list[str]:
    """Return the exit codes of jobs."""
    return [f"{kind.exit_code} {kind.value}" for kind in ExitKind]


def tpu_names() -> dict[str, list[str]]:
    """Return the labels and the metadata of a TPU."""
    arguments: dict[str, Any] = dict.fromkeys(inspect.signature(boot_metadata).parameters, "gs://a")
    arguments["expires_at"] = datetime(2026, 1, 31, tzinfo=UTC)
    metadata = set(boot_metadata(**arguments))
    metadata |= set(boot_metadata(**arguments | {"container_image": None}))
    return {
        "labels": sorted(attempt_labels(full(Reservation), full(Attempt))),
        "metadata": sorted(metadata),
    }
