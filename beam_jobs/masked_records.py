"""Token rows to serialised masked-LM records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_jobs.examples import serialize_examples
from beam_jobs.packing import Rows
from beam_jobs.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary
from mlm_records import feature_arrays, mask_rows, row_keys
from pipeline_config.schema import MaskingConfig

# Bounds the memory of the arrays that masking needs; a row's bytes do not depend on it.
_TOKENS_AT_ONCE = 1 << 18


class Records(NamedTuple):
    """Serialised records with the real and the masked tokens in them."""

    examples: list[bytes]
    tokens: int
    masked_tokens: int


class RecordBuilder:
    """Masks rows and serialises them.

    ``[UNK]`` is never chosen for prediction: what an unknown word was cannot be learned.
    """

    def __init__(self, masking: MaskingConfig, vocabulary: Vocabulary) -> None:
        self._masking = masking
        self._mask_id = vocabulary.ids[MASK]
        self._special_ids = np.array([vocabulary.ids[name] for name in (PAD, CLS, SEP, UNK)])
        self._replacement_ids = np.array(vocabulary.ordinary_ids, np.int32)

    def build(
        self, rows: Rows, document_keys: npt.NDArray[np.uint64], copies: int
    ) -> Iterator[Records]:
        """Yield the records of the rows, in order; the copies of a row follow each other.

        :param document_keys: :func:`mlm_records.document_key` of each row's document, shape [R].
        :param copies: how often each row is written, each time with other masks.
        """
        step = max(1, _TOKENS_AT_ONCE // rows.tokens.shape[1])
        for start in range(0, len(rows.lengths), step):
            part = slice(start, start + step)
            yield self._part(rows.select(part), document_keys[part], copies)

    def _part(self, rows: Rows, keys: npt.NDArray[np.uint64], copies: int) -> Records:
        maskable = ~np.isin(rows.tokens, self._special_ids)
        by_copy: list[list[bytes]] = []
        masked_tokens = 0
        for copy in range(copies):
            masked = mask_rows(
                rows.tokens,
                rows.lengths,
                maskable,
                row_keys(keys, rows.numbers, copy),
                masked_lm_prob=self._masking.masked_lm_prob,
                max_predictions_per_seq=self._masking.max_predictions_per_seq,
                mask_token_id=self._mask_id,
                replacement_ids=self._replacement_ids,
                random_seed=self._masking.random_seed,
            )
            by_copy.append(serialize_examples(feature_arrays(masked, rows.lengths, keys)))
            masked_tokens += int(masked.weights.sum())
        examples = list(chain.from_iterable(zip(*by_copy, strict=True)))
        return Records(examples, int(rows.lengths.sum()) * copies, masked_tokens)
