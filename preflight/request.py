"""Refuses requests that name files outside the folders that the installation allows."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    load_finetuning_preset,
    load_preset,
)
from pipeline_config.requests import named_paths
from pipeline_config.sections import Mark
from pipeline_config.settings import Settings
from pipeline_config.unquoted import one_line
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from pipeline_store.request_paths import PLACEHOLDER, RequestRoots
from trained_models.importing.sources import files_of_prefix

_SHOWN = 100
# Limits of Linux and of Cloud Storage; the latter is for the name without the bucket.
_NAME_BYTES, _PATH_BYTES, _OBJECT_BYTES = 255, 4095, 1024
_LONGEST_PARTITION = "p" * 63
# Control characters, and the other characters that end a line.
_CONTROLS = frozenset({"Cc", "Zl", "Zp"})

Presets = Sequence[PipelineConfig | FinetuningConfig]


def request_roots(settings: Settings, store: StoreLayout) -> RequestRoots:
    """Return the folders below which requests may name text and tasks.

    They are the configured input roots and the paths that the installation's presets name.

    :raises ConfigError: one of them leaves the store by ``..``, or is not a valid path.
    """
    presets = (load_preset(settings.preset), load_finetuning_preset(settings.finetuning_preset))
    models = list(_models(presets))
    try:
        roots = [*settings.input_roots, *_folders(presets, store), *models]
        beside = [file for model in models for file in files_of_prefix(model)]
        return RequestRoots.of(store.root, roots, beside)
    except ValueError as error:
        line = "what REPRETRAIN_INPUT_ROOTS or a preset names cannot be a folder for requests: "
        raise ConfigError([f"{line}{error}"]) from error


def outside_problems(
    config: PipelineConfig | FinetuningConfig, roots: RequestRoots, store: StoreLayout
) -> Iterator[str]:
    """Yield a line for every path of a request that is invalid or outside the roots."""
    for mark in (Mark.TEXT_PATH, Mark.MODEL_PATH):
        for setting, paths in named_paths(config, mark).items():
            for path in paths:
                if odd := _oddity(path, store):
                    shown = one_line(path[:_SHOWN])
                    yield f"{setting}: {shown}{'…' * (len(path) > _SHOWN)} {odd}."
                    continue
                try:
                    if mark is Mark.TEXT_PATH:
                        roots.require_pattern(store.resolve(path))
                    else:
                        roots.require(store.resolve(path), model=True)
                except ValueError as error:
                    yield f"{setting}: {error}"


def _oddity(path: str, store: StoreLayout) -> str:
    """Return why a path is invalid; empty: it is valid.

    A file system would report it only as an obscure error, and a log would not show it in one line.
    """
    if any(unicodedata.category(sign) in _CONTROLS for sign in path):
        return "has a line break or another control character, which paths may not have"
    try:
        plain = uris.for_library(store.resolve(path)).replace(PLACEHOLDER, _LONGEST_PARTITION)
    except ValueError:
        return ""  # the check against the roots reports it
    if len(plain.encode()) > (_OBJECT_BYTES if uris.is_cloud(plain) else _PATH_BYTES):
        return "is longer than any path can be"
    if not uris.is_cloud(plain) and max(len(p.encode()) for p in plain.split("/")) > _NAME_BYTES:
        return f"has a part that is longer than {_NAME_BYTES} bytes, the most that a name can have"
    return ""


def _folders(presets: Presets, store: StoreLayout) -> Iterator[str]:
    """Yield the folders of the text that presets name.

    If such a folder contains the store, as for ``{partition}/*.txt``, all runs and models would be
    below it: then only the files that the pattern matches are allowed.
    """
    for preset in presets:
        for paths in named_paths(preset, Mark.TEXT_PATH).values():
            for path in paths:
                folder = uris.pattern_folder(store.resolve(path))
                own = f"{uris.for_library(store.root).rstrip('/')}/"
                holds_store = own.startswith(f"{uris.for_library(folder or '/').rstrip('/')}/")
                yield path.replace(PLACEHOLDER, "*") if holds_store else folder


def _models(presets: Presets) -> Iterator[str]:
    """Yield the models and vocabularies that presets name."""
    for preset in presets:
        for paths in named_paths(preset, Mark.MODEL_PATH).values():
            yield from paths
