"""Rows to be masked, of a vocabulary in which every third token continues a word."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.mlm_records import MaskedRows, MaskingRecipe, mask_rows, row_keys, token_table

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_WORD, VOCABULARY = 5, 1000
TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *(("##" if n % 3 == 0 else "") + f"w{n}" for n in range(FIRST_WORD, VOCABULARY)),
]
TABLE = token_table(TOKENS, "wordpiece")


class Rows:
    """Rows of [CLS] words [SEP] padding.

    :param special: share of the words that are replaced by [SEP] or [UNK].
    """

    def __init__(self, lengths: list[int], width: int, seed: int = 0, special: float = 0.0) -> None:
        random = np.random.default_rng(seed)
        self.lengths = np.array(lengths, np.int32)
        count = len(lengths)
        self.tokens = random.integers(FIRST_WORD, VOCABULARY, (count, width), dtype=np.int32)
        within = random.random(self.tokens.shape) < special
        self.tokens[within] = random.choice([UNK, SEP], int(within.sum()))
        place = np.arange(width)
        self.tokens[place >= self.lengths[:, None]] = PAD
        self.tokens[:, 0] = CLS
        self.tokens[np.arange(count), self.lengths - 1] = SEP
        self.maskable = self.tokens >= FIRST_WORD
        documents = np.arange(count, dtype=np.uint64) // np.uint64(3) * np.uint64(2**40 + 7)
        self.keys = row_keys(documents, np.arange(count, dtype=np.uint64) % np.uint64(3), 0)

    def mask(self, take: Any = slice(None), **changes: Any) -> MaskedRows:
        """Mask some of the rows, by BERT's recipe with changes."""
        keys = changes.pop("keys", self.keys)
        table = changes.pop("table", TABLE)
        settings = {"masked_lm_prob": 0.15, "max_predictions_per_seq": 20, "random_seed": 12345}
        recipe = MaskingRecipe(**settings | changes)
        return mask_rows(self.tokens[take], self.lengths[take], keys[take], table, recipe)

    def words(self, row: int) -> list[range]:
        """Return the words of a row, as the positions of their pieces."""
        words: list[range] = []
        for position in np.flatnonzero(self.maskable[row]).tolist():
            continues = TABLE.continues_word[self.tokens[row, position]]
            if continues and words and words[-1].stop == position:
                words[-1] = range(words[-1].start, position + 1)
            else:
                words.append(range(position, position + 1))
        return words
