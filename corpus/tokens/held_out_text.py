"""Finds the documents that a new lineage will hold out, before it has vocabulary or signatures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpus.errors import reading
from corpus.text.content import Content, is_held_out, split_of
from corpus.text.drops import RejectedFileError
from corpus.text.inputs import input_format
from corpus.text.shard_contents import DocumentCounts, read_contents
from corpus.text.split_units import (
    HASH_BYTES,
    LEAST_FILES,
    FileOfDocuments,
    file_draw,
    group_draw,
    held_out_files,
    unit_of_new_lineage,
)
from pipeline_config import PipelineConfig
from pipeline_config.rules import documents_of
from pipeline_store import request_paths
from pipeline_store.formats import Split


class HeldOut:
    """The documents of a lineage's first partition that will be held out.

    If whole groups or files are, the files are read once to find out. A document that is in units
    of both sides counts as held out, so that the vocabulary gets no word because of it.
    """

    def __init__(self, inputs: Sequence[str], config: PipelineConfig) -> None:
        self._fraction = config.corpus.validation_fraction
        self._documents: set[bytes] | None = None
        if _may_be_units(inputs, config):
            self._documents = _held_out(inputs, config)

    def __contains__(self, content: Content) -> bool:
        """Return whether a document is held out."""
        if self._documents is None:
            return split_of(content.sha256, self._fraction) is Split.VALIDATION
        return content.sha256[:HASH_BYTES] in self._documents


def _may_be_units(inputs: Sequence[str], config: PipelineConfig) -> bool:
    corpus = config.corpus
    if corpus.split_by != "auto":
        return corpus.split_by != "document"
    if corpus.duplicates == "keep" or corpus.group_field is not None:
        return corpus.duplicates != "keep"
    text = [uri for uri in inputs if "blank_line" in documents_of(input_format(uri, config))]
    return corpus.documents_of_text != "file" and len(text) >= LEAST_FILES


def _held_out(inputs: Sequence[str], config: PipelineConfig) -> set[bytes] | None:
    fraction = config.corpus.validation_fraction
    hashes = []
    by_group: set[bytes] = set()
    for uri in inputs:
        contents = _hashes(uri, config)
        hashes.append(b"".join(one for one, _ in contents))
        by_group.update(one for one, draw in contents if is_held_out(draw, fraction))
    files = [
        FileOfDocuments(input_format(uri, config), len(one) // HASH_BYTES, file_draw(one))
        for uri, one in zip(inputs, hashes, strict=True)
    ]
    unit = unit_of_new_lineage(config.corpus, files)
    if unit == "document":
        return None
    if unit == "group":
        return by_group
    draws = np.array([file.draw for file in files], np.uint64)
    documents = np.array([file.documents for file in files], np.int64)
    chosen = held_out_files(draws, documents, fraction)
    return {
        one[begin : begin + HASH_BYTES]
        for one, is_chosen in zip(hashes, chosen, strict=True)
        if is_chosen
        for begin in range(0, len(one), HASH_BYTES)
    }


def _hashes(uri: str, config: PipelineConfig) -> list[tuple[bytes, int]]:
    """Return the hash of each usable document, and the draw of its group or else its own."""
    found: list[tuple[bytes, int]] = []
    with reading(uri), request_paths.open_stream(uri) as stream:
        contents = read_contents(
            stream,
            input_format(uri, config),
            config.corpus,
            split_sentences=False,
            counts=DocumentCounts(),
            reject=lambda rejected: None,
        )
        try:
            for content in contents:
                own = int.from_bytes(content.sha256[8:HASH_BYTES], "little")
                draw = own if content.group is None else group_draw(content.group)
                found.append((content.sha256[:HASH_BYTES], draw))
        except RejectedFileError:
            # Nothing of it is used; the reader of its text reports why.
            return []
    return found
