"""MinHash sketches, and pairs of similar ones against a comparison of all with all."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.duplicates.minhash import (
    PERMUTATIONS,
    SHORT_PERMUTATIONS,
    Sketches,
    comparable,
    short_sketches_of,
    sketches_of,
)
from corpus.duplicates.similarity import band_rows, have_similar, similar_pairs


def sketch_of(text: str) -> Sketches:
    return sketches_of([text])[0]


def words(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [f"word{draw.randint(0, 10**6)}" for _ in range(count)]


def jaccard(first: list[str], second: list[str]) -> float:
    shingles = [{tuple(text[n : n + 5]) for n in range(len(text) - 4)} for text in (first, second)]
    return len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])


@pytest.mark.parametrize("changed", [0, 2, 10, 40, 400])
def test_sketches_estimate_the_share_of_shingles_in_common(changed: int) -> None:
    text = words(2000, seed=1)
    other = list(text)
    for place in random.Random(2).sample(range(len(text)), changed):
        other[place] = f"changed{place}"
    equal = (sketch_of(" ".join(text)) == sketch_of(" ".join(other))).mean()
    # Four standard deviations of a share estimated from so many hashes.
    assert abs(equal - jaccard(text, other)) <= 4 * np.sqrt(0.25 / PERMUTATIONS)
    assert equal == 1 or changed > 0
    assert equal < 0.9 or changed < 40


def test_sketch_is_datasketchs_and_always_the_same() -> None:
    sketch = sketch_of("the quick brown fox jumps over the lazy dog " * 3000)
    assert sketch.dtype == np.uint32
    assert sketch.shape == (PERMUTATIONS,)
    # Stored sketches are compared with those of later runs, so these numbers may never change.
    # They are those of datasketch 2.0.0: MinHash(seed=1, scheme="affine32") of the shingles.
    assert sketch[:4].tolist() == [572049383, 583380335, 920500320, 1337654489]


def test_case_punctuation_and_spaces_make_no_difference() -> None:
    one = sketch_of("One two, three; four five six seven.")
    assert (one == sketch_of("one TWO three  four five (six) seven")).all()
    assert (one != sketch_of("one two three four five six eight")).any()


def test_short_texts_and_scripts_without_spaces_have_shingles() -> None:
    assert (sketch_of("two words") != sketch_of("two others")).any()
    assert (sketch_of("") == sketch_of("...")).all()
    chinese = "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u6211\u4eec\u53bb\u516c\u56ed"
    assert (sketch_of(chinese) == sketch_of(chinese + "\u5427")).mean() > 0.5


def test_a_sketch_does_not_depend_on_what_comes_before_or_after() -> None:
    draw = random.Random(7)
    texts = [" ".join(words(draw.choice([0, 1, 4, 5, 6, 40, 3000]), n)) for n in range(60)]
    assert (sketches_of(texts) == np.stack([sketch_of(text) for text in texts])).all()
    assert sketches_of([]).shape == (0, PERMUTATIONS)
    assert short_sketches_of([]).shape == (0, SHORT_PERMUTATIONS)


def test_words_are_the_same_in_ascii_and_in_other_scripts() -> None:
    text = " ".join(words(200, seed=3)) + " under_score 4x4 it's a-b"
    assert (sketch_of(text) == sketch_of(text + " \u2014")).all()
    assert (sketch_of("one two three four \u00e9") != sketch_of("one two three four")).any()


def test_short_texts_are_not_alike_in_short_sketches() -> None:
    sketches = short_sketches_of([f"text {number}" for number in range(2000)])
    assert not len(similar_pairs(sketches, 0.5).first)


@pytest.mark.parametrize("text", ["", "one", " ".join(words(300, seed=5)), "long " * 9000])
def test_a_short_sketch_is_part_of_a_whole_one(text: str) -> None:
    whole, short = sketches_of([text]), short_sketches_of([text])
    assert (short.dtype, short.shape) == (np.uint8, (1, SHORT_PERMUTATIONS))
    for first, second in ((whole, short), (short, whole), (short, short)):
        mine, theirs = comparable(first, second)
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype == np.uint8
    assert comparable(whole, whole)[0].dtype == np.uint32


def family(seed: int, size: int, share: float) -> np.ndarray:
    """Return sketches that agree with the first one in about so many places."""
    draw = np.random.default_rng(seed)
    sketches = draw.integers(0, 2**32, (size, PERMUTATIONS), dtype=np.uint32)
    same = draw.random((size, PERMUTATIONS)) < share
    return np.where(same, sketches[0], sketches)


def groups(count: int, pairs: list[tuple[int, int]]) -> set[frozenset[int]]:
    """Return what the pairs connect."""
    group = {number: {number} for number in range(count)}
    for first, second in pairs:
        joined = group[first] | group[second]
        for member in joined:
            group[member] = joined
    return {frozenset(members) for members in group.values()}


def all_similar(sketches: np.ndarray, threshold: float) -> list[tuple[int, int]]:
    return [
        (first, second)
        for first, second in itertools.combinations(range(len(sketches)), 2)
        if (sketches[first] == sketches[second]).mean() >= threshold
    ]


@settings(max_examples=30, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True),
    size=st.integers(1, 12),
    order=st.randoms(use_true_random=False),
)
def test_what_is_clearly_similar_is_connected_and_nothing_else(
    seeds: list[int], size: int, order: random.Random
) -> None:
    # Members agree in 0.94 or more with the first, so that no pair is near the threshold.
    sketches = np.concatenate([family(seed, size, share=0.97) for seed in seeds])
    sketches = sketches[order.sample(range(len(sketches)), len(sketches))]
    found = similar_pairs(sketches, 0.8)
    pairs = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
    expected = all_similar(sketches, 0.8)
    assert set(pairs) <= set(expected)
    assert groups(len(sketches), pairs) == groups(len(sketches), expected)


def test_pairs_at_the_threshold_are_mostly_found() -> None:
    draw = np.random.default_rng(0)
    count = 400
    first = draw.integers(0, 2**32, (count, PERMUTATIONS), dtype=np.uint32)
    second = first.copy()
    for row in second:
        changed = draw.permutation(PERMUTATIONS)[: int(0.2 * PERMUTATIONS)]
        row[changed] += 1
    found = similar_pairs(np.concatenate([first, second]), 0.8)
    assert (found.second == found.first + count).all()
    assert len(set(found.first.tolist())) > 0.95 * count
    between = have_similar(first, second, 0.8)
    assert set(np.flatnonzero(between)) == set(found.first.tolist())
    others = draw.integers(0, 2**32, second.shape, dtype=np.uint32)
    assert not have_similar(first, others, 0.8).any()
    assert (have_similar(first, np.concatenate([others, second]), 0.8) == between).all()


def test_one_of_many_similar_ones_is_enough() -> None:
    sketches = np.repeat(family(3, 1, share=1.0), 20_000, axis=0)
    assert have_similar(sketches, sketches, 0.8).all()


def test_many_equal_sketches_are_compared_with_one() -> None:
    sketches = np.repeat(family(3, 1, share=1.0), 20_000, axis=0)
    found = similar_pairs(sketches, 0.8)
    assert set(found.first.tolist()) == {0}
    assert set(found.second.tolist()) == set(range(1, 20_000))


def test_no_sketches_have_no_pairs() -> None:
    nothing = np.empty((0, PERMUTATIONS), np.uint32)
    assert len(similar_pairs(nothing, 0.8).first) == 0
    assert have_similar(nothing, family(1, 3, 0.9), 0.8).shape == (0,)
    assert not have_similar(family(1, 3, 0.9), nothing, 0.8).any()


def test_bands_get_longer_with_the_threshold() -> None:
    rows = [band_rows(threshold / 20, PERMUTATIONS) for threshold in range(10, 21)]
    assert rows == sorted(rows)
    assert rows[0] >= 2
    assert rows[-1] == 16
