from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.rows.segment_pairs import PairPacker
from tests.corpus.tokenized import CLS, FIRST, SEP, Row, batches_of, documents, pack

Lengths = Sequence[Sequence[int]]


class Pair(NamedTuple):
    """A row's segments as ranges of the text."""

    document: int
    number: int
    first: range
    second: range
    random_next: int


def rows_of(
    lengths: Lengths,
    width: int = 32,
    *,
    sizes: tuple[int, ...] = (1000,),
    block_tokens: int = 1 << 20,
    short: float = 0.0,
    seed: int = 1,
) -> list[Row]:
    packer = PairPacker(width, short_seq_prob=short, random_seed=seed, block_tokens=block_tokens)
    return pack(packer, batches_of(documents(lengths), sizes), width)


def pair(row: Row) -> Pair:
    """Read a row; its segments must be stretches of the text."""
    assert row.first_length is not None
    assert row.random_next is not None
    first, second = row.tokens[: row.first_length], row.tokens[row.first_length :]
    assert (first[0], first[-1], second[-1]) == (CLS, SEP, SEP)
    one, other = _place(first[1:-1]), _place(second[:-1])
    return Pair(row.document, row.number, one, other, row.random_next)


def _place(tokens: list[int]) -> range:
    assert tokens == list(range(tokens[0], tokens[0] + len(tokens)))
    return range(tokens[0] - FIRST, tokens[-1] + 1 - FIRST)


def pairs_of(lengths: Lengths, width: int = 32, **settings: float) -> list[Pair]:
    return [pair(row) for row in rows_of(lengths, width, **settings)]  # type: ignore[arg-type]


def document_borders(lengths: Lengths) -> np.ndarray:
    return np.cumsum([0, *(sum(document) for document in lengths)])


def many(count: int = 400, seed: int = 3) -> list[list[int]]:
    """Return documents of ordinary sentences."""
    random = np.random.default_rng(seed)
    return [random.integers(1, 12, random.integers(1, 40)).tolist() for _ in range(count)]


LENGTHS = st.lists(
    st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any), min_size=1, max_size=8
)


@settings(max_examples=200, deadline=None)
@given(LENGTHS, st.integers(16, 48), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_row_is_a_pair(lengths: list[list[int]], width: int, short: float) -> None:
    borders = document_borders(lengths)
    rows = rows_of(lengths, width, short=short)
    assert {row.document for row in rows} == set(range(len(lengths)))
    for row in rows:
        assert len(row.tokens) <= width
        found = pair(row)
        own = range(borders[found.document], borders[found.document + 1])
        assert found.first[0] in own
        assert found.first[-1] in own
        other = int(np.searchsorted(borders, found.second[0], side="right")) - 1
        assert found.second[-1] < borders[other + 1]
        if not found.random_next:
            assert other == found.document
            assert found.second[0] > found.first[-1]
        elif len(lengths) > 1:
            assert other != found.document
    keys = [(row.document, row.number) for row in rows]
    assert len(set(keys)) == len(keys)


@settings(max_examples=100, deadline=None)
@given(LENGTHS)
def test_what_follows_really_follows(lengths: list[list[int]]) -> None:
    # Rows that are wide enough lose nothing, so both segments are whole sentences.
    flat = [length for document in lengths for length in document]
    borders = {0, *np.cumsum(flat).tolist()}
    for found in pairs_of(lengths, 1500):
        single = len([n for n in lengths[found.document] if n]) == 1
        if not found.random_next:
            assert found.second[0] == found.first[-1] + 1
            assert single or found.second[0] in borders
        assert found.first[0] in borders
        assert found.second[-1] + 1 in borders


@settings(max_examples=100, deadline=None)
@given(LENGTHS)
def test_all_text_is_used(lengths: list[list[int]]) -> None:
    # Rows with room for every sentence twice: nothing is cut off, unused sentences come again.
    used = set(itertools.chain.from_iterable(found.first for found in pairs_of(lengths, 1500)))
    used |= set(
        itertools.chain.from_iterable(
            found.second for found in pairs_of(lengths, 1500) if not found.random_next
        )
    )
    assert used == set(range(sum(map(sum, lengths))))


def within(share: float, wanted: float, count: int) -> bool:
    """Return whether a share is within four standard errors of its expectation."""
    return abs(share - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / count)


@pytest.mark.parametrize("width", [16, 32, 128])
def test_half_of_the_rows_are_random(width: int) -> None:
    labels = [found.random_next for found in pairs_of(many(1000), width)]
    assert within(float(np.mean(labels)), 0.5, len(labels))


def test_half_of_the_rows_of_single_sentences_are_random() -> None:
    lengths = [[20]] * 3000
    labels = [found.random_next for found in pairs_of(lengths)]
    assert len(labels) == 3000
    assert within(float(np.mean(labels)), 0.5, 3000)


def test_random_segments_come_from_all_documents_alike() -> None:
    lengths = [[5] * 10] * 50
    pairs = [found for found in pairs_of(lengths * 20) if found.random_next]
    others = np.array([found.second[0] // 50 for found in pairs])
    own = np.array([found.document for found in pairs])
    assert (others != own).all()
    sentences = np.bincount([found.second[0] % 50 // 5 for found in pairs], minlength=10)
    expected = len(pairs) / 10
    # The first tokens of some are cut off, so they begin within a sentence; all are counted.
    assert ((sentences - expected) ** 2 / expected).sum() < 9 + 6 * np.sqrt(18)
    halves = others[own < 500] >= 500
    assert within(float(halves.mean()), 500 / 999, len(halves))


def test_the_share_of_short_rows() -> None:
    # Sentences of one token: a row that is not meant to be short has as many tokens as fit.
    lengths = [[1] * 2000] * 20
    for share in (0.0, 0.1, 1.0):
        rows = [row for row in rows_of(lengths, 64, short=share) if not row.random_next]
        # The last rows of a document may be short without being meant to be.
        ends = {row.document: row.number for row in rows}
        sizes = np.array([len(row.tokens) for row in rows if row.number < ends[row.document]])
        # A target is drawn from 2 to 61, so one in sixty of the short ones is full.
        assert within(float((sizes < 64).mean()), share * 59 / 60, len(sizes)) or share in (0, 1)
        assert sizes.min() >= 5
        if share == 0.0:
            assert (sizes == 64).all()
        if share == 1.0:
            assert abs(sizes.mean() - 3 - 31.5) < 1


def test_the_longer_segment_is_cut_at_both_ends() -> None:
    # Documents of two sentences of 29 tokens each: what is left of both together is as much.
    pairs = [found for found in pairs_of([[29, 29]] * 2000) if not found.random_next]
    assert len(pairs) > 800
    assert {len(found.first) for found in pairs} == {15}
    assert {len(found.second) for found in pairs} == {14}
    for begins, lost in (
        ([found.first[0] % 58 for found in pairs], 14),
        ([found.second[0] % 58 - 29 for found in pairs], 15),
    ):
        # A binomial distribution.
        assert abs(np.mean(begins) - lost / 2) < 4 * np.sqrt(lost / 4 / len(pairs))
        assert abs(np.var(begins) - lost / 4) < 0.2 * lost / 4


def test_the_longer_segment_is_cut_first() -> None:
    pairs = [f for f in pairs_of([[3, 29], [29, 3]] * 200) if not f.random_next]
    assert pairs
    assert {tuple(sorted([len(f.first), len(f.second)])) for f in pairs} == {(3, 26)}


def test_endless_sentences_are_not_lost() -> None:
    # Text without ends of sentences, such as tables or Thai.
    pairs = pairs_of([[1000]] * 20)
    used = {place for f in pairs for place in f.first}
    used |= {place for f in pairs if not f.random_next for place in f.second}
    assert len(used) > 0.9 * 20_000
    assert np.mean([len(f.first) + len(f.second) for f in pairs]) > 28
    # Two parts of a sentence fill a row: its segments are about equally long.
    assert np.mean([len(f.first) in (14, 15) for f in pairs]) > 0.95


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.integers(1, 7), min_size=1, max_size=5).map(tuple),
    st.sampled_from([1, 50, 400, 3000]),
)
def test_batches_make_no_difference(seed: int, sizes: tuple[int, ...], block_tokens: int) -> None:
    lengths = many(30, seed)
    together = rows_of(lengths, short=0.1, block_tokens=block_tokens)
    assert rows_of(lengths, short=0.1, block_tokens=block_tokens, sizes=sizes) == together


def test_random_segments_are_of_the_same_block() -> None:
    lengths = [[10] * 10] * 60
    apart = [
        abs(found.second[0] // 100 - found.document)
        for found in pairs_of(lengths, block_tokens=1000)
        if found.random_next
    ]
    assert max(apart) < 20
    assert max(abs(f.second[0] // 100 - f.document) for f in pairs_of(lengths)) > 40


def test_a_document_alone_gives_itself_segments() -> None:
    pairs = pairs_of([[10] * 300])
    labels = [found.random_next for found in pairs]
    assert within(float(np.mean(labels)), 0.5, len(labels))
    # Never what really follows.
    assert all(f.second[0] != f.first[-1] + 1 for f in pairs if f.random_next)


def test_a_block_has_two_documents_if_there_are_two() -> None:
    # The first is larger than a block.
    lengths = [[10] * 300, [10] * 3, [10] * 3]
    random = [found for found in pairs_of(lengths, block_tokens=100) if found.random_next]
    others = np.searchsorted(document_borders(lengths), [f.second[0] for f in random], "right") - 1
    assert 0 in {found.document for found in random}
    assert all(found.document != other for found, other in zip(random, others, strict=True))


def test_a_document_of_one_token() -> None:
    pairs = pairs_of([[1], [5, 5]])
    assert [found.random_next for found in pairs if found.document == 0] == [1]
    assert len(pairs_of([[1]])) == 1


def test_seeds_and_row_lengths_have_pairs_of_their_own() -> None:
    lengths = many(100)
    labels = {
        name: [row.random_next for row in rows[:300]]
        for name, rows in {
            "one": rows_of(lengths),
            "seed": rows_of(lengths, seed=2),
            "length": rows_of(lengths, 33),
        }.items()
    }
    for one, other in itertools.combinations(labels.values(), 2):
        assert within(float(np.mean(np.array(one) == np.array(other))), 0.5, 300)
