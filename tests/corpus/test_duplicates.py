"""Decisions on copies, against a plain model of the rules and as properties."""

from __future__ import annotations

import functools
import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.duplicates.decisions import Decided, decide
from corpus.duplicates.minhash import (
    PERMUTATIONS,
    SHORT_PERMUTATIONS,
    comparable,
    short_sketches_of,
)
from corpus.duplicates.signatures import (
    IndexedDocuments,
    Signatures,
    sign,
)
from corpus.text.content import is_held_out, split_of
from pipeline_config.data_schema import CorpusConfig
from pipeline_store.formats import Split
from tests.beam_jobs.workspace import document

NO_SHORT_SKETCH = np.empty((0, SHORT_PERMUTATIONS), np.uint8)
EXACT = CorpusConfig(validation_fraction=0.4)
NEAR = CorpusConfig(duplicates="near", validation_fraction=0.4)


@functools.cache
def hash_of(content: int) -> list[int]:
    draw = random.Random(content)
    # Some share their first half, as hashes could.
    return [draw.choice([7, 8, draw.getrandbits(64)]), draw.getrandbits(64)]


@functools.cache
def sketch_of_family(family: int, member: int) -> np.ndarray:
    """Return sketches that agree in 96 of 100 places within a family, and nowhere between."""
    sketch = np.random.default_rng(family).integers(0, 2**32, PERMUTATIONS, dtype=np.uint32)
    draw = np.random.default_rng([family, member])
    changed = draw.permutation(PERMUTATIONS)[:2]
    sketch[changed] += np.uint32(1 + member)
    return sketch


def signed(contents: list[int], *, near: bool = False) -> Signatures:
    """Return a file's signatures; content 305 is member 5 of family 3."""
    found = [sketch_of_family(*divmod(content, 100)) for content in contents]
    sketches = np.array(found, np.uint32).reshape(-1, PERMUTATIONS)
    return Signatures(
        # Documents in between could not be read.
        np.arange(len(contents), dtype=np.int64) * 2,
        np.array([hash_of(content) for content in contents], np.uint64).reshape(-1, 2),
        sketches if near else comparable(sketches, NO_SHORT_SKETCH)[0],
    )


def used(files: list[list[int]], decided: Decided) -> list[list[int]]:
    """Return the contents of each file that are used."""
    return [
        [
            content
            for number, content in enumerate(contents)
            if 2 * number not in {*decisions.duplicates, *decisions.near_duplicates}
        ]
        for contents, decisions in zip(files, decided.shards, strict=True)
    ]


def sides(files: list[list[int]], decided: Decided, corpus: CorpusConfig) -> dict[int, Split]:
    """Return the sides of the contents that are used."""
    found = {}
    for contents, decisions in zip(files, decided.shards, strict=True):
        for number, content in enumerate(contents):
            if 2 * number in {*decisions.duplicates, *decisions.near_duplicates}:
                continue
            draw = hash_of(content)[1] / 2.0**64
            own = Split.VALIDATION if draw < corpus.validation_fraction else Split.TRAIN
            forced = {
                **dict.fromkeys(decisions.validation, Split.VALIDATION),
                **dict.fromkeys(decisions.train, Split.TRAIN),
            }
            found[content] = forced.get(2 * number, own)
    return found


UNLIKE = st.integers(0, 12).map(lambda family: 100 * family)
FILES = st.lists(st.lists(UNLIKE, max_size=8), min_size=1, max_size=4)


@given(partitions=st.lists(FILES, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_every_content_is_used_once_where_it_comes_first(
    partitions: list[list[list[int]]],
) -> None:
    indexes: list[IndexedDocuments] = []
    seen: set[int] = set()
    for files in partitions:
        decided = decide([signed(file) for file in files], indexes, [], EXACT)
        for contents, decisions in zip(files, decided.shards, strict=True):
            copies = []
            for number, content in enumerate(contents):
                if content in seen:
                    copies.append(2 * number)
                seen.add(content)
            assert decisions.duplicates == copies
            assert decisions.near_duplicates == decisions.train == decisions.validation == []
        indexes.append(decided.owned)
    owned = [tuple(row) for index in indexes for row in index.hashes.tolist()]
    assert sorted(owned) == sorted(tuple(hash_of(content)) for content in seen)


FAMILIES = st.integers(0, 3)
MEMBERS = st.lists(
    st.lists(st.builds(lambda f, m: 100 * f + m, FAMILIES, st.integers(0, 5)), max_size=6),
    min_size=1,
    max_size=3,
)


@given(partitions=st.lists(MEMBERS, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_of_similar_contents_one_is_used_where_it_comes_first(
    partitions: list[list[list[int]]],
) -> None:
    indexes: list[IndexedDocuments] = []
    seen: set[int] = set()
    families: set[int] = set()
    for files in partitions:
        decided = decide([signed(file, near=True) for file in files], indexes, [], NEAR)
        for contents, decisions in zip(files, decided.shards, strict=True):
            expected: dict[str, list[int]] = {"copies": [], "near": []}
            for number, content in enumerate(contents):
                if content in seen and content // 100 in families:
                    # Equal to one that was used, or to one that was itself too similar.
                    expected["copies"].append(2 * number)
                elif content // 100 in families:
                    expected["near"].append(2 * number)
                seen.add(content)
                families.add(content // 100)
            left_out = sorted([*decisions.duplicates, *decisions.near_duplicates])
            assert left_out == sorted([*expected["copies"], *expected["near"]])
            assert not set(decisions.duplicates) & set(decisions.near_duplicates)
        indexes.append(decided.owned)
    owned = {tuple(row) for index in indexes for row in index.hashes.tolist()}
    assert len(owned) == len(families)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, list[list[int]]]]:
    """Return runs in any order over partitions, again and again, backfills and all."""
    runs = draw(st.lists(st.tuples(st.integers(0, 3), MEMBERS), min_size=1, max_size=6))
    return list(runs)


@pytest.mark.parametrize("corpus", [EXACT, NEAR])
@given(history=histories())
@settings(max_examples=100, deadline=None)
def test_copies_never_straddle_the_split(
    corpus: CorpusConfig, history: list[tuple[int, list[list[int]]]]
) -> None:
    near = corpus is NEAR
    manifests: list[tuple[int, IndexedDocuments]] = []
    side_of_family: dict[int, Split] = {}
    for partition, files in history:
        earlier = [index for other, index in manifests if other < partition]
        others = [index for other, index in manifests if other >= partition]
        decided = decide([signed(file, near=near) for file in files], earlier, others, corpus)
        for content, side in sides(files, decided, corpus).items():
            assert side_of_family.setdefault(content // 100, side) is side
        manifests.append((partition, decided.owned))


@pytest.mark.parametrize("corpus", [EXACT, NEAR])
@given(history=histories())
@settings(max_examples=60, deadline=None)
def test_deciding_again_changes_nothing(
    corpus: CorpusConfig, history: list[tuple[int, list[list[int]]]]
) -> None:
    near = corpus is NEAR
    manifests: list[tuple[int, IndexedDocuments]] = []
    for partition, files in history:
        results = []
        for _ in range(2):
            earlier = [index for other, index in manifests if other < partition]
            others = [index for other, index in manifests if other >= partition]
            decided = decide([signed(file, near=near) for file in files], earlier, others, corpus)
            manifests.append((partition, decided.owned))
            results.append(decided)
        assert results[0].shards == results[1].shards
        assert results[0].owned.to_bytes() == results[1].owned.to_bytes()


def index_of(held: dict[int, bool], *, near: bool = True) -> IndexedDocuments:
    """Return an index of contents and whether each is held out."""
    by_hash = sorted(held, key=hash_of)
    file = signed(by_hash, near=near)
    return IndexedDocuments(file.hashes, np.array([held[c] for c in by_hash]), file.sketches)


@pytest.mark.parametrize("held_out", [True, False])
def test_a_document_takes_the_side_of_a_similar_one_that_is_held(held_out: bool) -> None:
    files = [[101, 200]]
    decided = decide([signed(files[0], near=True)], [], [index_of({102: held_out})], NEAR)
    side = Split.VALIDATION if held_out else Split.TRAIN
    assert sides(files, decided, NEAR)[101] is side
    assert used(files, decided) == [[101, 200]]


REVISED = [101, 201, 301, 401, 501, 601]


@pytest.mark.parametrize("held_out", [True, False])
@pytest.mark.parametrize("is_earlier", [True, False])
@pytest.mark.parametrize("is_short", [True, False])
def test_a_revised_document_stays_on_its_side_and_is_used(
    held_out: bool, is_earlier: bool, is_short: bool
) -> None:
    index = index_of({content + 1: held_out for content in REVISED}, near=not is_short)
    earlier, others = ([index], []) if is_earlier else ([], [index])
    decided = decide([signed([*REVISED, 700])], earlier, others, EXACT)
    side = Split.VALIDATION if held_out else Split.TRAIN
    found = sides([[*REVISED, 700]], decided, EXACT)
    assert {found[content] for content in REVISED} == {side}
    drawn = sides([[700]], decide([signed([700])], [], [], EXACT), EXACT)
    assert found[700] is drawn[700]
    assert used([[*REVISED, 700]], decided) == [[*REVISED, 700]]
    own = sides([[content] for content in REVISED], decide_alone(REVISED), EXACT)
    assert decided.kept_sides == sum(one is not side for one in own.values()) > 0


def decide_alone(contents: list[int]) -> Decided:
    return decide([signed([content]) for content in contents], [], [], EXACT)


def test_what_is_revised_again_and_again_stays() -> None:
    indexes: list[IndexedDocuments] = []
    first: dict[int, Split] = {}
    for day in range(10):
        files = [[family + day] for family in range(0, 2000, 100)]
        decided = decide([signed(file) for file in files], indexes, [], EXACT)
        found = {content // 100: side for content, side in sides(files, decided, EXACT).items()}
        first = first or found
        assert found == first
        indexes.append(decided.owned)
    assert set(first.values()) == {Split.TRAIN, Split.VALIDATION}


def test_a_document_similar_to_both_sides_is_trained_on() -> None:
    indexes = [index_of({content + 1: True, content + 2: False}) for content in REVISED]
    for earlier, others in ((indexes, []), ([], indexes), (indexes[:3], indexes[3:])):
        decided = decide([signed(REVISED)], earlier, others, EXACT)
        assert set(sides([REVISED], decided, EXACT).values()) == {Split.TRAIN}
        assert used([REVISED], decided) == [REVISED]


def test_similar_documents_of_a_partition_are_on_one_side_whatever_the_order() -> None:
    files = [[100 * family + member for family in range(20)] for member in range(2)]
    found = sides(files, decide([signed(file) for file in files], [], [], EXACT), EXACT)
    assert all(found[100 * family] is found[100 * family + 1] for family in range(20))
    assert set(found.values()) == {Split.TRAIN, Split.VALIDATION}
    backwards = [file[::-1] for file in files[::-1]]
    again = decide([signed(file) for file in backwards], [], [], EXACT)
    assert sides(backwards, again, EXACT) == found


@pytest.mark.parametrize("family", range(5))
def test_texts_from_one_template_are_not_held_out_all_at_once(family: int) -> None:
    files = [[100 * family + member for member in range(20)], list(range(600, 1200, 100))]
    found = sides(files, decide([signed(file) for file in files], [], [], EXACT), EXACT)
    assert {found[content] for content in files[0]} == {Split.TRAIN}


def test_an_equal_document_tells_the_side_where_an_index_has_no_sketches() -> None:
    for held_out in (True, False):
        index = index_of({101: held_out})._replace(sketches=None)
        decided = decide([signed([101, 102, 200, 300, 400])], [index], [], EXACT)
        side = Split.VALIDATION if held_out else Split.TRAIN
        assert decided.shards[0].duplicates == [0]
        assert sides([[101, 102, 200, 300, 400]], decided, EXACT)[102] is side


def test_similar_documents_move_no_paragraph_out_of_its_file() -> None:
    files = [[101, 201, 301, 1000], [900, 901]]
    index = index_of({102: True, 202: True, 302: False}, near=False)
    decided = decide([signed(file) for file in files], [index], [], EXACT, "file")
    found = sides(files, decided, EXACT)
    assert used(files, decided) == files
    assert {found[content] for content in files[0]} == {Split.VALIDATION}


def test_a_document_keeps_its_side_whatever_the_fraction() -> None:
    files = [list(range(0, 4000, 100))]
    first = decide([signed(files[0])], [], [], EXACT)
    other = CorpusConfig(validation_fraction=0.01)
    second = decide([signed(files[0])], [], [first.owned], other)
    assert sides(files, second, other) == sides(files, first, EXACT)
    assert first.kept_sides == 0
    assert second.kept_sides == len(second.shards[0].validation) > 5


def test_a_document_similar_to_both_sides_is_left_out() -> None:
    indexes = [index_of({101: True}), index_of({102: False})]
    decided = decide([signed([103, 200], near=True)], [], indexes, NEAR)
    assert decided.shards[0].near_duplicates == [0]
    assert len(decided.owned.hashes) == 1


def test_its_own_side_counts_more_than_that_of_similar_ones() -> None:
    indexes = [index_of({101: True, 200: True}), index_of({102: False})]
    decided = decide([signed([101], near=True)], [], indexes, NEAR)
    assert sides([[101]], decided, NEAR) == {101: Split.VALIDATION}


def test_what_is_similar_by_way_of_another_is_one_group() -> None:
    chain = np.random.default_rng(0).integers(0, 2**32, (3, PERMUTATIONS), dtype=np.uint32)
    # Neighbours agree in 0.84, the ends in 0.69.
    chain[1, :108] = chain[0, :108]
    chain[2, 20:] = chain[1, 20:]
    hashes = np.array([hash_of(n) for n in range(3)], np.uint64)
    decided = decide([Signatures(np.arange(3), hashes, chain)], [], [], NEAR)
    assert decided.shards[0].near_duplicates == [1, 2]


def test_a_group_with_an_earlier_partitions_document_has_no_owner() -> None:
    decided = decide([signed([102, 103, 200], near=True)], [index_of({101: False})], [], NEAR)
    assert decided.shards[0].near_duplicates == [0, 2]
    assert decided.shards[0].duplicates == []


def test_indexes_without_sketches_are_looked_at_for_equal_documents() -> None:
    index = index_of({101: False})._replace(sketches=None)
    decided = decide([signed([101, 202], near=True)], [index], [], NEAR)
    assert decided.shards[0].duplicates == [0]
    assert decided.shards[0].near_duplicates == []


def test_whole_sketches_are_compared_with_short_ones() -> None:
    decided = decide(
        [signed([101, 202], near=True)], [index_of({102: False}, near=False)], [], NEAR
    )
    assert decided.shards[0].near_duplicates == [0]


def test_threshold_decides_what_is_similar() -> None:
    files = [signed([101, 102], near=True)]
    strict = NEAR.model_copy(update={"near_duplicate_threshold": 1.0})
    assert decide(files, [], [], strict).shards[0].near_duplicates == []
    assert decide(files, [], [], NEAR).shards[0].near_duplicates == [2]


@pytest.mark.parametrize("corpus", [EXACT, NEAR])
def test_nothing_has_no_copies(corpus: CorpusConfig) -> None:
    empty = signed([], near=True)
    decided = decide([empty, empty], [], [], corpus)
    assert [decisions.duplicates for decisions in decided.shards] == [[], []]
    assert len(decided.owned.hashes) == 0


def test_order_of_files_decides_and_nothing_else() -> None:
    files = [[5, 6, 7], [7, 6, 8], [8, 5]]
    decided = decide([signed(file) for file in files], [], [], EXACT)
    assert used(files, decided) == [[5, 6, 7], [8], []]
    places: dict[int, list[int]] = defaultdict(list)
    for number, contents in enumerate(used(files, decided)):
        for content in contents:
            places[content].append(number)
    assert all(len(found) == 1 for found in places.values())


def test_half_a_hash_in_common_is_no_copy() -> None:
    hashes = np.array([[1, 2], [1, 3], [1, 2], [4, 2]], np.uint64)
    sketches = signed([100, 200, 300, 400]).sketches
    decided = decide([Signatures(np.arange(4), hashes, sketches)], [], [], EXACT)
    assert decided.shards[0].duplicates == [2]
    index = IndexedDocuments(np.array([[1, 3], [1, 9]], np.uint64), np.zeros(2, bool), None)
    decided = decide([Signatures(np.arange(4), hashes, sketches)], [index], [], EXACT)
    assert decided.shards[0].duplicates == [1, 2]


def test_sides_of_many_are_those_of_each() -> None:
    from corpus.text.content import Content, ContentMaker

    maker = ContentMaker(EXACT, "text")
    contents = [maker.content_of(document(number), number) for number in range(200)]
    found = [content for content in contents if isinstance(content, Content)]
    signatures = sign(iter(found), sketch=short_sketches_of)
    held_out = is_held_out(signatures.hashes[:, 1], 0.4)
    expected = [split_of(content.sha256, 0.4) is Split.VALIDATION for content in found]
    assert held_out.tolist() == expected
    assert signatures.ordinals.tolist() == list(range(200))
