"""The fixed text is the same everywhere, and shaped like text."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from verification.benchmarks.data.blocks import Part
from verification.benchmarks.data.made_text import documents, make

# Of the first megabyte. Figures of different texts cannot be compared: raise VERSION with it.
SHA256 = "771328ebda764b4312edb9bef05a023cc7d46103843141cf88162d0e24c9e5b4"


@pytest.fixture(scope="module")
def found() -> list[tuple[Part, str]]:
    return list(documents(1_000_000))


def test_the_text_is_the_same_on_every_machine(found: list[tuple[Part, str]]) -> None:
    data = "\n\n".join(text for _, text in found).encode()
    assert hashlib.sha256(data).hexdigest() == SHA256


def test_the_text_has_frequent_words_new_ones_and_other_scripts(
    found: list[tuple[Part, str]],
) -> None:
    assert {part for part, _ in found} == set(Part)
    prose = [text for part, text in found if part is Part.ENGLISH]
    words = Counter(word for text in prose for word in text.lower().split())
    common = sum(count for _, count in words.most_common(100)) / words.total()
    assert 0.3 < common < 0.7
    once = sum(count == 1 for count in words.values()) / words.total()
    assert 0.03 < once < 0.2
    # No document is a copy, and none has a blank line, which would end it.
    assert len({text for _, text in found}) == len(found)
    assert not any("\n\n" in text or text.startswith("\n") for _, text in found)


def test_it_is_a_corpus_that_is_made_once(tmp_path: Path) -> None:
    corpus = make(tmp_path, 1, shard_bytes=300_000)
    assert len(corpus.shards) >= 3
    assert corpus.held_out.stat().st_size > 10_000
    assert 0.8e6 < corpus.bytes < 1.1e6
    written = [path.stat().st_mtime_ns for path in corpus.take(None)]
    again = make(tmp_path, 1, shard_bytes=300_000)
    assert [path.stat().st_mtime_ns for path in again.take(None)] == written
    assert again == corpus
