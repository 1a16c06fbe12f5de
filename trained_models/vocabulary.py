"""The tokens of a lineage's vocabulary, verified."""

from __future__ import annotations

import hashlib

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import FormatError
from pipeline_store.layout import StoreLayout
from trained_models import record_sources


def lineage_tokens(store: StoreLayout, config: PipelineConfig) -> tuple[str, ...]:
    """Return the tokens in order of id.

    :raises FileNotFoundError: the lineage has no vocabulary.
    :raises FormatError: its ``vocab.txt`` is not the one that the lineage began with.
    """
    info = record_sources.vocabulary_info(store, config)
    uri = store.lineage(config.model.lineage_id).vocabulary
    content = uris.read(uri)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != info.tokens_sha256:
        raise FormatError(
            f"{uri} is damaged: its SHA-256 is {sha256}; vocabulary.json says "
            f"{info.tokens_sha256}. Restore it; a lineage keeps one vocabulary for ever."
        )
    return split_tokens(content.decode())


def split_tokens(text: str) -> tuple[str, ...]:
    """Return the lines of a ``vocab.txt``; a byte order mark and Windows line ends are removed."""
    # Not splitlines: a token may hold what Unicode calls a line separator.
    lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n")
    return tuple(line.removesuffix("\r") for line in lines)
