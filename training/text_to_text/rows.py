"""Tokenizes texts to rows of ids by SentencePiece's own library. It needs no TensorFlow."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import sentencepiece

from pipeline_config.text_to_text import TextToTextConfig
from pipeline_store import request_paths, uris
from pipeline_store.formats import TaskSplit
from trained_models.errors import BadDataError, UserError
from trained_models.importing.sources import SENTENCEPIECE
from trained_models.text_to_text.sizes import EOS, PAD, SOURCE, TARGET, Sizes
from training.text_to_text.task_text import TaskText

Ids = npt.NDArray[np.int32]
Rows = dict[str, Ids]


def read_sentencepiece(folder: str) -> bytes:
    """Return the content of a folder's SentencePiece model.

    :raises UserError: the file is missing.
    """
    data = request_paths.read_or_none(uris.join(folder, SENTENCEPIECE), model=True)
    if data is None:
        raise UserError(
            f"{folder} has no {SENTENCEPIECE}, from which texts become tokens. Get it from where "
            "the weights come from."
        )
    return data


class Tokenizer:
    """The SentencePiece model of a T5 folder.

    :param data: content of the ``.model`` file.
    :raises UserError: it is not a vocabulary for the model.
    """

    def __init__(self, data: bytes, sizes: Sizes) -> None:
        try:
            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=data)
        except RuntimeError:
            raise UserError("spiece.model is no SentencePiece model; get the file again.") from None
        pad, eos, size = self._pieces.pad_id(), self._pieces.eos_id(), len(self._pieces)
        if (pad, eos) != (PAD, EOS) or size > sizes.vocab_size:
            raise UserError(
                f"spiece.model is not the vocabulary of this T5: its pad is {pad} and its </s> "
                f"{eos}, which have to be {PAD} and {EOS}, and its {size:,} pieces may be at most "
                f"{sizes.vocab_size:,}."
            )
        self.sha256 = hashlib.sha256(data).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts, with ``</s>``."""
        return [[*ids, EOS] for ids in self._pieces.encode(list(texts), num_threads=1)]

    def decode(self, rows: Ids) -> list[str]:
        """Return the texts of rows of ids, each up to ``</s>``."""
        return [self._pieces.decode(_text_ids(row, len(self._pieces))) for row in rows.tolist()]

    def spells(self, text: str) -> bool:
        """Return whether the vocabulary can represent a text without unknown tokens."""
        return self._pieces.unk_id() not in self._pieces.encode(text)


def _text_ids(row: list[int], known: int) -> list[int]:
    end = row.index(EOS) if EOS in row else len(row)
    # Published models have more embedding rows than pieces; ids without a piece are skipped.
    return [token for token in row[:end] if PAD < token < known]


def task_rows(
    found: TaskText, config: TextToTextConfig, tokenizer: Tokenizer
) -> dict[TaskSplit, Rows]:
    """Return the rows of each split, cut to the configured lengths; count the cut examples.

    :raises BadDataError: more texts are cut than the task allows, or a label cannot be represented.
    """
    task = found.task
    if task.target == "label":
        unwritable = [label for label in found.labels if not tokenizer.spells(label)]
        if unwritable:
            raise BadDataError(
                f"task {task.name}: {len(unwritable)} of {len(found.labels)} labels have signs "
                "that the model's vocabulary cannot write. Use other names for the labels."
            )
    return {split: _split_rows(found, split, config, tokenizer) for split in found.splits}


def _split_rows(
    found: TaskText, split: TaskSplit, config: TextToTextConfig, tokenizer: Tokenizer
) -> Rows:
    task, pairs = found.task, found.splits[split]
    sources = tokenizer.encode([task.prefix + pair.text for pair in pairs])
    targets = tokenizer.encode([pair.target for pair in pairs])
    longest = {SOURCE: config.max_source_length, TARGET: config.max_target_length}
    for name, ids in ((SOURCE, sources), (TARGET, targets)):
        cut = sum(len(row) > longest[name] for row in ids)
        if cut > task.max_truncated_fraction * len(ids):
            raise BadDataError(
                f"task {task.name}: {cut:,} of {len(ids):,} {split} {name}s are longer than "
                f"max_{name}_length ({longest[name]}) and would be cut. Raise it, shorten the "
                "texts, or allow more by max_truncated_fraction."
            )
    found.truncated[split] = sum(
        len(source) > longest[SOURCE] or len(target) > longest[TARGET]
        for source, target in zip(sources, targets, strict=True)
    )
    return {
        SOURCE: padded(sources, config.max_source_length),
        TARGET: padded(targets, config.max_target_length),
    }


def padded(rows: Sequence[Sequence[int]], longest: int) -> Ids:
    """Return rows padded to equal length; rows that are cut also end with ``</s>``."""
    ids = np.full((len(rows), longest), PAD, np.int32)
    for place, row in enumerate(rows):
        kept = [*row[: longest - 1], EOS] if len(row) > longest else row
        ids[place, : len(kept)] = kept
    return ids


def trimmed(rows: Sequence[Rows]) -> list[Rows]:
    """Return rows trimmed to the length of the longest text and the longest target."""
    used = {
        name: max(int((part[name] != PAD).sum(axis=1).max()) for part in rows)
        for name in (SOURCE, TARGET)
    }
    return [{name: part[name][:, : used[name]] for name in part} for part in rows]


def joined(parts: Sequence[Rows]) -> Rows:
    """Return the concatenated rows of several tasks, which have equal lengths."""
    return {name: np.concatenate([part[name] for part in parts]) for name in (SOURCE, TARGET)}
