"""Texts that are looked up among the documents that a partition trains on."""

from __future__ import annotations

import numpy as np
import pytest

from corpus.duplicates.lookup import Found, find_trained, sign_texts
from corpus.duplicates.signatures import IndexedDocuments
from pipeline_config.data_schema import CorpusConfig
from tests.beam_jobs.workspace import document

TRAINED, HELD_OUT, OTHER = (document(number) for number in range(3))


def index(*texts: str, held_out: int = 0, sketches: bool = True) -> IndexedDocuments:
    """Return the index of a partition with these documents; the last ones are held out."""
    signed = sign_texts(texts, CorpusConfig())
    order = np.lexsort((signed.hashes[:, 1], signed.hashes[:, 0]))
    is_held_out = np.arange(len(texts)) >= len(texts) - held_out
    assert signed.sketches is not None
    found = signed.sketches[order] if sketches else None
    return IndexedDocuments(signed.hashes[order], is_held_out[order], found)


def look_up(texts: list[str], where: IndexedDocuments) -> Found:
    return find_trained(sign_texts(texts, CorpusConfig()), where, 0.8)


def near(text: str) -> str:
    """Return a text with one word changed."""
    words = text.split(" ")
    words[len(words) // 2] = "changed"
    return " ".join(words)


def test_copies_are_found_and_near_copies_and_nothing_else() -> None:
    texts = [OTHER, TRAINED, near(TRAINED), TRAINED.upper(), TRAINED.replace("\n", "  ")]
    found = look_up(texts, index(TRAINED, document(7)))
    assert found.exact.tolist() == [False, True, False, False, True]
    assert found.near is not None
    assert found.near.tolist() == [False, True, True, True, True]


def test_equal_texts_are_all_found() -> None:
    found = look_up([TRAINED, OTHER, TRAINED], index(TRAINED))
    assert found.exact.tolist() == [True, False, True]


def test_what_is_held_out_is_not_trained_on() -> None:
    found = look_up([TRAINED, HELD_OUT, near(HELD_OUT)], index(TRAINED, HELD_OUT, held_out=1))
    assert found.near is not None
    assert (found.exact.tolist(), found.near.tolist()) == ([True, False, False],) * 2


def test_without_sketches_only_equal_texts_are_known() -> None:
    found = look_up([TRAINED, near(TRAINED)], index(TRAINED, sketches=False))
    assert (found.exact.tolist(), found.near) == ([True, False], None)


def test_texts_without_a_word_are_not_similar_to_each_other() -> None:
    found = look_up([":-)", "!!!"], index("...", "!!!"))
    assert found.near is not None
    assert found.near.tolist() == [False, True]


@pytest.mark.parametrize("documents", [(), (TRAINED,)])
def test_nothing_is_found_among_nothing(documents: tuple[str, ...]) -> None:
    assert not look_up([OTHER], index(*documents)).exact.any()


def test_a_short_text_inside_of_a_longer_document_is_not_found() -> None:
    """The limit that docs/guides/did-it-pay.md names."""
    found = look_up([TRAINED.split("\n")[0]], index(TRAINED))
    assert found.near is not None
    assert not found.near.any()
