"""Which layers and tokens a smaller model keeps, and rows in its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from trained_models.compression.layers import kept_layers, renamed
from trained_models.compression.trimming import TrimmedRows, kept_ids

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "ab", "##c", "##cd", "##d", "xyz"]
IDS = {token: number for number, token in enumerate(TOKENS)}


def row(*words: str, length: int = 8) -> dict[str, np.ndarray]:
    ids = [IDS[word] for word in words]
    padded = np.zeros((1, length), np.int32)
    padded[0, : len(ids)] = ids
    mask = (np.arange(length) < len(ids)).astype(np.int32)[None]
    return {"input_word_ids": padded, "input_mask": mask, "input_type_ids": np.zeros_like(padded)}


def words(trimmed: dict[str, np.ndarray], kept: np.ndarray) -> list[str]:
    real = trimmed["input_mask"][0] == 1
    return [TOKENS[kept[number]] for number in trimmed["input_word_ids"][0][real]]


def test_layers_are_evenly_spaced_with_the_first_and_the_last() -> None:
    assert [kept_layers(6, n) for n in (1, 2, 3, 6)] == [[5], [0, 5], [0, 2, 5], [0, 1, 2, 3, 4, 5]]
    assert kept_layers(12, 4) == [0, 4, 7, 11]
    with pytest.raises(ValueError, match="3 of 2"):
        kept_layers(2, 3)


def test_weights_of_kept_layers_get_the_names_of_their_new_places() -> None:
    names = [
        "e/word_embeddings",
        *(f"e/transformer/layer_{n}/output/kernel" for n in range(11, 14)),
    ]
    found = renamed({name: name for name in names}, [11, 13])
    assert found == {
        "e/word_embeddings": "e/word_embeddings",
        "e/transformer/layer_0/output/kernel": "e/transformer/layer_11/output/kernel",
        "e/transformer/layer_1/output/kernel": "e/transformer/layer_13/output/kernel",
    }


def test_special_tokens_single_characters_and_used_tokens_stay() -> None:
    kept = kept_ids(TOKENS, [np.array([[IDS["ab"]]])])
    assert [TOKENS[number] for number in kept] == [
        *TOKENS[:5], "a", "b", "ab", "##c", "##d",
    ]  # fmt: skip


def test_covered_rows_have_the_same_tokens_and_others_are_cut_anew() -> None:
    kept = kept_ids(TOKENS, [np.array([[IDS["ab"]]])])
    rows = TrimmedRows(TOKENS, kept)
    covered, other = row("[CLS]", "ab", "##c", "[SEP]"), row("[CLS]", "ab", "##cd", "[SEP]")
    assert rows.covered(covered).tolist() == [True]
    assert words(rows.rows(covered), kept) == ["[CLS]", "ab", "##c", "[SEP]"]
    assert rows.covered(other).tolist() == [False]
    assert words(rows.rows(other), kept) == ["[CLS]", "ab", "##c", "##d", "[SEP]"]
    # No piece of a word is there.
    assert words(rows.rows(row("[CLS]", "xyz", "a", "[SEP]")), kept) == [
        "[CLS]", "[UNK]", "a", "[SEP]",
    ]  # fmt: skip


def test_a_row_that_gets_too_long_keeps_its_last_separator_and_its_segments() -> None:
    kept = kept_ids(TOKENS, [np.array([[IDS["ab"]]])])
    found = row("[CLS]", "ab", "##cd", "[SEP]", "ab", "##cd", "[SEP]", length=7)
    found["input_type_ids"][0, 4:7] = 1
    trimmed = TrimmedRows(TOKENS, kept).rows(found)
    assert words(trimmed, kept) == ["[CLS]", "ab", "##c", "##d", "[SEP]", "ab", "[SEP]"]
    assert trimmed["input_type_ids"][0].tolist() == [0, 0, 0, 0, 0, 1, 1]
    # What was given is not changed.
    assert found["input_word_ids"][0, 2] == IDS["##cd"]
