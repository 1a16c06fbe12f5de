"""Reads held-out rows of the shards that a model was trained on, to check its exports on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from corpus.tokens.bpe_model import text_of
from corpus.tokens.vocabulary import CLS, MASK, PAD, SEP, UNK
from pipeline_config import PipelineConfig
from pipeline_store.formats import ShardManifest, Split, TrainingInputs
from pipeline_store.layout import StoreLayout
from trained_models.errors import BadDataError
from trained_models.record_sources import RecordSource
from training.input import examples
from training.input.records import RecordReader

_NOT_TEXT = {PAD, CLS, SEP, UNK}
_CONTINUING = "##"
_WORD_START = "\u2581"

Rows = dict[str, npt.NDArray[np.int32]]


def held_out_rows(
    inputs: TrainingInputs, store: StoreLayout, config: PipelineConfig, count: int
) -> Rows:
    """Return masked rows of documents that were not trained on, as model inputs.

    :param inputs: training inputs of the model.
    :param count: maximum number of rows; the shards may have fewer.
    :returns: ``input_word_ids``, ``input_mask``, ``input_type_ids`` [R, S], and
        ``masked_lm_positions`` [R, P] or, for a model with a decoder, ``masked_lm_ids``.
    :raises BadDataError: there are no such rows.
    :raises FormatError: a file of records does not verify.
    """
    sources = _sources(inputs, store, config.masking.max_seq_length, count)
    if not sources:
        raise BadDataError(
            f"None of the {len(inputs.records)} shards that the model was trained on has held-out "
            f"rows of {config.masking.max_seq_length} tokens in {store.root}, so its exports "
            "cannot be tried out. Use the store that it was trained from."
        )
    reader = RecordReader(sources)
    serialized = reader.read(np.arange(min(count, len(reader))))
    rows = examples.model_inputs(examples.parse(tf.constant(serialized), reader.row_format))
    asked = "masked_lm_ids" if config.model.has_decoder else "masked_lm_positions"
    names = ("input_word_ids", "input_mask", "input_type_ids", asked)
    return {name: rows[name].numpy() for name in names}


def _sources(
    inputs: TrainingInputs, store: StoreLayout, length: int, count: int
) -> list[RecordSource]:
    """Return the first files, in order of shard keys, that together hold that many rows."""
    sources: list[RecordSource] = []
    for key in sorted(inputs.records):
        uri = store.shard_manifest(key)
        shard = ShardManifest.load_or_none(uri)
        file = shard.file(Split.VALIDATION, length) if shard else None
        if file is not None and file.records:
            # Next-sentence labels are not needed, so they may be missing.
            sources.append(RecordSource(key, uri.rpartition("/")[0], file, next_sentence=False))
        if sum(source.file.records for source in sources) >= count:
            break
    return sources


def texts_of(rows: Rows, tokens: Sequence[str], kind: str) -> list[str]:
    """Return the text of each row, with ``[MASK]`` tokens but without other special tokens.

    :param tokens: tokens of the vocabulary, in order of id.
    :param kind: as in ``vocabulary.kind``.
    """
    join = {"wordpiece": _words, "sentencepiece": _sentence, "bpe": _bytes}[kind]
    return [join([tokens[number] for number in row]) for row in rows["input_word_ids"].tolist()]


def _words(row: list[str]) -> str:
    text = " ".join(token for token in row if token not in _NOT_TEXT)
    return text.replace(f" {_CONTINUING}", "").removeprefix(_CONTINUING)


def _sentence(row: list[str]) -> str:
    pieces = [f" {token} " if token == MASK else token for token in row if token not in _NOT_TEXT]
    return "".join(pieces).replace(_WORD_START, " ").strip()


def _bytes(row: list[str]) -> str:
    kept = [token for token in row if token not in _NOT_TEXT]
    parts: list[list[str]] = [[]]
    for token in kept:
        if token == MASK:
            parts.append([])
        else:
            parts[-1].append(token)
    # The space before a masked word was part of its token.
    return f" {MASK}".join(map(text_of, parts))
