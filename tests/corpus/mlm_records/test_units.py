"""Whole words and spans: against slow programs that follow the definitions, and in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.mlm_records import MaskedRows
from corpus.mlm_records.hashing import draw, splitmix64, unit_interval
from corpus.mlm_records.units import _SPAN_LENGTH, _span_lengths
from tests.corpus.mlm_records.rows import MASK, TABLE, Rows

Draws = np.ndarray


def draws_of(rows: Rows, seed: int = 12345) -> Draws:
    return draw(rows.keys, np.arange(rows.tokens.shape[1], dtype=np.uint64), seed)


def budget_of(length: int, prob: float, cap: int) -> int:
    return min(cap, max(1, round(length * prob)))


def chosen(masked: MaskedRows, row: int) -> list[int]:
    return masked.positions[row][masked.weights[row] > 0].tolist()


def in_order(words: list[range], draws: Draws) -> list[int]:
    return sorted(range(len(words)), key=lambda n: int(draws[words[n].start]) >> 16)


def words_by_definition(words: list[range], draws: Draws, budget: int) -> list[int]:
    """google-research/bert: shuffled words, each taken if it fits what is left."""
    positions: list[int] = []
    for number in in_order(words, draws):
        if len(positions) + len(words[number]) <= budget:
            positions += words[number]
    return sorted(positions)


def spans_by_definition(
    words: list[range], draws: Draws, budget: int, longest: int
) -> list[list[int]]:
    """SpanBERT: random begin and length, as far as words follow each other and the budget goes."""
    shares = 0.8 ** np.arange(longest)
    borders = np.cumsum(shares)[:-1] / shares.sum()
    taken: set[int] = set()
    spans: list[list[int]] = []
    for begin in in_order(words, draws):
        bits = splitmix64(np.array([draws[words[begin].start]]) ^ _SPAN_LENGTH)
        length = 1 + int((borders <= unit_interval(bits)[0]).sum())
        span: list[int] = []
        for number in range(begin, min(begin + length, len(words))):
            follows = not span or words[number].start == span[-1] + 1
            left = budget - sum(map(len, spans)) - len(span)
            if number in taken or not follows or len(words[number]) > left:
                break
            taken.add(number)
            span += words[number]
        if span:
            spans.append(span)
    return sorted(spans)


@st.composite
def cases(draw_one: st.DrawFn) -> tuple[Rows, dict[str, Any], list[int]]:
    """Draw rows, settings, and each row's budget."""
    width = draw_one(st.integers(16, 60))
    lengths = draw_one(st.lists(st.integers(2, width), min_size=1, max_size=6))
    special = draw_one(st.sampled_from([0.0, 0.05, 0.4]))
    rows = Rows(lengths, width, draw_one(st.integers(0, 1000)), special)
    prob, cap = draw_one(st.floats(0.01, 0.99)), draw_one(st.integers(1, 70))
    recipe = {"masked_lm_prob": prob, "max_predictions_per_seq": cap}
    return rows, recipe, [budget_of(length, prob, cap) for length in lengths]


@settings(max_examples=150, deadline=None)
@given(cases())
def test_words_are_those_of_the_definition(case: tuple[Rows, dict[str, Any], list[int]]) -> None:
    rows, recipe, budgets = case
    masked = rows.mask(unit="word", **recipe)
    draws = draws_of(rows)
    for row, budget in enumerate(budgets):
        assert chosen(masked, row) == words_by_definition(rows.words(row), draws[row], budget)


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 12))
def test_spans_are_those_of_the_definition(
    case: tuple[Rows, dict[str, Any], list[int]], longest: int
) -> None:
    rows, recipe, budgets = case
    masked = rows.mask(unit="span", max_span_words=longest, **recipe)
    draws = draws_of(rows)
    for row, budget in enumerate(budgets):
        spans = spans_by_definition(rows.words(row), draws[row], budget, longest)
        assert chosen(masked, row) == [position for span in spans for position in span]
        for span in spans:
            # What is drawn for its first token decides on all of a span.
            fate = unit_interval(splitmix64(draws[row, span[:1]]))[0]
            shown, before = masked.input_ids[row, span], rows.tokens[row, span]
            if fate < 0.8:
                assert (shown == MASK).all()
            elif fate < 0.9:
                assert (shown == before).all()
            else:
                assert TABLE.maskable[shown].all()
                assert len(span) < 4 or (shown != before).any()


@pytest.fixture(scope="module")
def many() -> Rows:
    return Rows([128] * 2000, 128)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_the_budget_is_used(many: Rows, unit: str) -> None:
    counts = many.mask(unit=unit).weights.sum(axis=1)
    assert counts.max() == 19
    assert counts.mean() > 18.95


@pytest.mark.parametrize("unit", ["word", "span"])
def test_eighty_ten_ten(many: Rows, unit: str) -> None:
    masked = many.mask(unit=unit)
    used = masked.weights > 0
    shown = np.take_along_axis(masked.input_ids, masked.positions, axis=1)[used]
    hidden, kept = (shown == MASK).mean(), (shown == masked.ids[used]).mean()
    # Tokens of a span share their fate, so there are fewer draws than tokens.
    draws = used.sum() / (1 if unit == "word" else 6)
    assert abs(hidden - 0.8) < 4 * np.sqrt(0.8 * 0.2 / draws)
    assert abs(kept - 0.1) < 4 * np.sqrt(0.1 * 0.9 / draws)


def test_span_lengths_are_geometric(many: Rows) -> None:
    lengths = np.bincount(_span_lengths(draws_of(many)[:, 1], 10))[1:]
    shares = 0.2 * 0.8 ** np.arange(10)
    expected = shares / shares.sum() * 2000
    assert len(lengths) == 10
    # Chi-squared with 9 degrees of freedom has mean 9 and standard deviation 4.2.
    assert ((lengths - expected) ** 2 / expected).sum() < 9 + 5 * 4.2


def test_spans_are_longer_than_words(many: Rows) -> None:
    def mean_run(unit: str) -> float:
        masked = many.mask(unit=unit)
        flags = np.zeros(many.tokens.shape, bool)
        row, slot = np.nonzero(masked.weights)
        flags[row, masked.positions[row, slot]] = True
        begins = flags & ~np.pad(flags, ((0, 0), (1, 0)))[:, :-1]
        return float(flags.sum() / begins.sum())

    assert mean_run("word") < 2.5
    assert mean_run("span") > 4


def test_a_word_of_the_row_before_is_not_continued() -> None:
    # Rows are looked at as one flat array; a continuing piece that begins a row begins a word.
    rows = Rows([16] * 3, 16)
    rows.tokens[:] = 6
    rows.tokens[:, 1:] = 7
    assert TABLE.continues_word[6]
    assert not TABLE.continues_word[7]
    masked = rows.mask(unit="word", masked_lm_prob=0.99, max_predictions_per_seq=16)
    np.testing.assert_array_equal(masked.weights.sum(axis=1), 16)


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_a_row_is_masked_alone_as_in_any_batch(unit: str) -> None:
    rows = Rows([5, 128, 64, 17, 100, 3, 128, 128] * 40, 128, special=0.05)
    together = rows.mask(unit=unit)
    order = np.random.default_rng(2).permutation(320)
    for left, right in zip(together, rows.mask(order, unit=unit), strict=True):
        np.testing.assert_array_equal(left[order], right)
    for number in range(0, 320, 37):
        for left, right in zip(together, rows.mask([number], unit=unit), strict=True):
            np.testing.assert_array_equal(left[[number]], right)
