"""Provides documentation pages that every installation has, and runs the data job on them."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beam_jobs.cli import JobArguments
from beam_jobs.prepare_corpus import prepare_partition
from beam_jobs.train_vocabulary import ensure_vocabulary
from local.demo.installed_text import file_texts
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest
from pipeline_store.layout import StoreLayout

PARTITION = "2026-01-01"
PAGES = 80
_SMALLEST, _LARGEST = 4_000, 40_000
"""Characters: a page has paragraphs, and none is much of the text."""
# As much vocabulary as so little text gives.
_SETTINGS: dict[str, Any] = {"vocabulary.size": 4000, "model.vocab_size": 4000}


def pages() -> dict[str, str]:
    """Return the text of pages by package: the long descriptions of installed packages.

    A blank line ends a paragraph. The same installation gives the same pages.

    :raises FileNotFoundError: the installation has too few pages.
    """
    found: dict[str, str] = {}
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).glob("*.dist-info/METADATA")):
        for text in file_texts(path):
            if _SMALLEST <= len(text) <= _LARGEST and len(found) < PAGES:
                found[path.parent.stem] = text
    if len(found) < PAGES:
        raise FileNotFoundError(
            f"{len(found)} installed packages have a description of {_SMALLEST} to {_LARGEST} "
            f"characters, and {PAGES} are needed; `make install` gives more."
        )
    return found


def new_store(folder: Path, files: Mapping[str, str]) -> StoreLayout:
    """Return a store with only these files of the partition, by name.

    :param folder: the store's folder; its earlier content is deleted.
    """
    shutil.rmtree(folder, ignore_errors=True)
    store = StoreLayout(str(folder.resolve()))
    put_files(store, PARTITION, files)
    return store


def put_files(store: StoreLayout, partition: str, files: Mapping[str, str]) -> None:
    """Write files of a partition, by name."""
    for name, text in files.items():
        uris.write(uris.join(store.root, "corpus", partition, name), text.encode())


def configured(settings: Mapping[str, Any]) -> PipelineConfig:
    """Return the preset for small models with these settings."""
    return with_overrides(load_preset("smoke"), _SETTINGS | dict(settings))


def prepare(
    store: StoreLayout, settings: Mapping[str, Any], partition: str = PARTITION
) -> PartitionManifest:
    """Run the data job over a partition of the store, for a lineage with its own vocabulary.

    :param settings: the settings that differ from the defaults.
    """
    config = configured(settings)
    arguments = JobArguments(config, store, partition, config.corpus.input_pattern)
    ensure_vocabulary(arguments)
    return prepare_partition(arguments).manifest
