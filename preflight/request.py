"""Refuses requests that name files which the installation does not let them read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline_config import (
    FinetuningConfig,
    PipelineConfig,
    load_finetuning_preset,
    load_preset,
)
from pipeline_config.requests import named_paths
from pipeline_config.schema import Mark
from pipeline_config.settings import Settings
from pipeline_store.layout import StoreLayout
from pipeline_store.request_paths import RequestRoots

_SIGNS = "*?[{"


def request_roots(settings: Settings, store: StoreLayout) -> RequestRoots:
    """Return the folders below which requests may name text and tasks.

    They are those of the installation and what its presets name.
    """
    presets = (load_preset(settings.preset), load_finetuning_preset(settings.finetuning_preset))
    return RequestRoots.of(store.root, [*settings.input_roots, *_of_presets(presets)])


def outside_problems(
    config: PipelineConfig | FinetuningConfig, roots: RequestRoots, store: StoreLayout
) -> Iterator[str]:
    """Yield a line for every path of a request that leads out of the roots."""
    for mark in (Mark.TEXT_PATH, Mark.MODEL_PATH):
        for setting, paths in named_paths(config, mark).items():
            for path in paths:
                try:
                    uri = store.resolve(path.replace("{partition}", "*"))
                    roots.require(uri, model=mark is Mark.MODEL_PATH)
                except ValueError as error:
                    yield f"{setting}: {error}"


def _of_presets(presets: Sequence[PipelineConfig | FinetuningConfig]) -> Iterator[str]:
    """Yield the files and folders that presets name."""
    for preset in presets:
        for paths in named_paths(preset, Mark.TEXT_PATH, Mark.MODEL_PATH).values():
            for path in paths:
                signs = [path.index(sign) for sign in _SIGNS if sign in path]
                root = path[: min(signs)].rpartition("/")[0] if signs else path
                if root:
                    yield root
