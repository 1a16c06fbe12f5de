"""Masked words of held-out text, and what models put there."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.training.conftest import TwoDays
from tests.training.jobs import BAD_DATA
from training import fill_masks

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "statute", "##s", "is", "appeal"]


def row(*words: str) -> list[int]:
    """Return a row with enough common words around some."""
    around = ["the", "is"] * 5
    return [TOKENS.index(word) for word in ["[CLS]", *around, *words, *around, "[SEP]"]]


def places(*rows: list[int]) -> list[tuple[int, str]]:
    ids = np.array(rows, np.int32)
    return [(place.row, place.word) for place in fill_masks.choose_places(ids, TOKENS, 5)]


def test_words_are_whole_neither_rare_nor_common_and_different(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fill_masks, "_COMMONEST", 2)
    both = row("statute", "appeal")
    assert places(both, both) == [(0, "statute"), (1, "appeal")]
    # A word that goes on in the next piece; one that stands once; too near to the end of the text.
    assert places(row("statute", "##s"), row("statute", "##s")) == []
    assert places(row("statute", "is")) == []
    cut = both[:14] + [0] * (len(both) - 14)
    assert places(cut, cut) == []
    monkeypatch.setattr(fill_masks, "_COMMONEST", len(TOKENS))
    assert places(both, both) == []


def test_a_hit_is_marked() -> None:
    predictions = {"before": ["law", "act"], "after": ["statute", "law"]}
    one = fill_masks.Sentence("the [MASK] says", "statute", predictions)
    assert list(fill_masks.table([one])) == [
        "… the [MASK] says …",
        "    before  law, act",
        "    after   *statute*, law",
        "    was     statute",
    ]


def test_models_are_asked_for_the_same_words(
    two_days: TwoDays, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fill_masks, "_CONTEXT", 3)
    monkeypatch.setattr(fill_masks, "_COMMONEST", 0)
    monkeypatch.setattr(fill_masks, "_is_word", lambda token, following: token.startswith("w"))
    words = ["--store", two_days.store.layout.root, "--config", two_days.second.config]
    words += ["--set", f"2026-01-02={two_days.manifests['2026-01-02']}"]
    words += ["--model", f"before={two_days.first.training.root}"]
    words += ["--model", f"after={two_days.second.training.root}"]
    assert fill_masks.main([*words, "--json", "--sentences", "3"]) == 0
    found = json.loads(capsys.readouterr().out)["sentences"]
    assert len(found) == 3
    for sentence in found:
        assert "[MASK]" in sentence["text"]
        assert sentence["word"].startswith("w")
        assert {len(tokens) for tokens in sentence["predictions"].values()} == {fill_masks.SHOWN}
    assert fill_masks.main([*words, "--sentences", "1"]) == 0
    assert "    was     w" in capsys.readouterr().out
    monkeypatch.setattr(fill_masks, "_is_word", lambda token, following: False)
    assert fill_masks.main(words) == BAD_DATA
    assert "has no word to mask" in capsys.readouterr().err
