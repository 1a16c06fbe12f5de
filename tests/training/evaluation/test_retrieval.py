"""Retrieval: which halves there are, what they are embedded by, and where the right one ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from model_registry.gate import judge
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import RetrievalScore, VerdictKind
from tests.model_registry.test_gate import NEW, VERSION, Documents, report
from tests.training.conftest import replicas
from tests.training.corpora import (
    CLS,
    FIRST_WORD,
    MASK,
    ROWS_PER_DOCUMENT,
    SEP,
    WORDS,
    TinyStore,
    tiny_config,
)
from training.architectures.models import build_model, named_variables
from training.evaluation import retrieval
from training.evaluation.evaluation_sets import EvaluationSet, open_set
from training.evaluation.retrieval import (
    Halves,
    cosine_ranks,
    halved,
    make_embed,
    open_halves,
    own_tokens,
    score_retrieval,
)

WIDTH, COUNT = 16, 40
FRAME = (CLS, SEP)


def test_the_right_answer_is_ranked_among_all() -> None:
    directions = np.eye(4)
    assert cosine_ranks(directions, 3 * directions).tolist() == [1, 1, 1, 1]
    assert cosine_ranks(directions, directions[[1, 0, 2, 3]]).tolist() == [3, 3, 1, 1]
    near = directions + 0.5 * np.roll(directions, 1, axis=1) * [[0], [0], [0], [4]]
    assert cosine_ranks(near, directions).tolist() == [1, 1, 1, 2]


def test_embeddings_that_are_all_alike_find_nothing() -> None:
    noise = np.random.default_rng(0).normal(0, 1e-8, (2, 9, 8))
    for same in (np.ones((2, 9, 8)) + noise, np.zeros((2, 9, 8))):
        assert cosine_ranks(*same.astype(np.float32)).tolist() == [5] * 9


def test_a_text_is_cut_in_the_middle() -> None:
    rows = halved([np.arange(10, 17, dtype=np.int32), np.arange(20, 22, dtype=np.int32)], FRAME, 8)
    assert rows["input_word_ids"].tolist() == [
        [CLS, 10, 11, 12, SEP, 0, 0, 0],
        [CLS, 20, SEP, 0, 0, 0, 0, 0],
        [CLS, 13, 14, 15, 16, SEP, 0, 0],
        [CLS, 21, SEP, 0, 0, 0, 0, 0],
    ]
    assert rows["input_mask"].sum(axis=1).tolist() == [5, 3, 6, 3]
    assert rows["own_tokens"].tolist()[2] == [0, 1, 1, 1, 1, 0, 0, 0]
    assert not rows["input_type_ids"].any()


def test_own_tokens_are_those_before_masking_and_not_of_another_document() -> None:
    ids = np.array([[CLS, MASK, 11, SEP, 99, 13, SEP, 0]] * 2, np.int32)
    rows: dict[str, Any] = {
        "input_ids": ids,
        "input_mask": np.array([[1] * 7 + [0]] * 2),
        "segment_ids": np.array([[0] * 4 + [1] * 4] * 2),
        "masked_lm_positions": np.array([[1, 4, 0]] * 2),
        "masked_lm_ids": np.array([[10, 12, 0]] * 2),
        "masked_lm_weights": np.array([[1.0, 1.0, 0.0]] * 2),
        "next_sentence_labels": np.array([[0], [1]]),
    }
    assert [tokens.tolist() for tokens in own_tokens(rows)] == [[10, 11, 12, 13], [10, 11]]
    unmasked = {name: rows[name] for name in ("input_ids", "input_mask", "segment_ids")}
    assert [tokens.tolist() for tokens in own_tokens(unmasked)] == [[MASK, 11, 99, 13]] * 2


def held_out(tiny: TinyStore, **settings: Any) -> EvaluationSet:
    store = tiny.using(tiny_config(**settings))
    return open_set("day", store.partition("2026-01-01"), store.layout, store.config)


def test_halves_of_held_out_documents_are_their_unmasked_text(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_ROWS_AT_ONCE", 3)
    chosen = held_out(tiny)
    halves = open_halves(chosen)
    assert set(halves.document_ids) <= set(chosen.document_ids)
    assert len(halves.document_ids) >= 4
    ids, own = halves.rows["input_word_ids"], halves.rows["own_tokens"].astype(bool)
    assert not (ids == MASK).any()
    for first, second in zip(*np.split(np.where(own, ids, 0), 2), strict=True):
        text = np.concatenate([first[first > 0], second[second > 0]])
        assert len(text) >= retrieval.LEAST_TOKENS
        # In a row of that corpus each word is followed by the next.
        breaks = (np.diff(text) - 1) % WORDS != 0
        assert breaks.sum() < ROWS_PER_DOCUMENT
        assert text.min() >= FIRST_WORD


def test_documents_are_bounded_and_chosen_by_their_hash(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = held_out(tiny)
    everything = open_halves(chosen)
    monkeypatch.setattr(retrieval, "MAX_DOCUMENTS", 3)
    some = open_halves(chosen)
    assert len(some.document_ids) <= 3
    assert set(some.document_ids) < set(everything.document_ids)


def test_documents_that_are_too_short_leave_nothing_to_measure(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "LEAST_TOKENS", 1000)
    halves = open_halves(held_out(tiny))

    def embed(_: Any) -> Any:
        raise AssertionError("nothing is to be embedded")

    assert score_retrieval(halves, embed) == RetrievalScore(document_ids=[], ranks=[])


class Encoder:
    """A tiny encoder with random weights, and halves for it to tell apart."""

    def __init__(self) -> None:
        config = tiny_config()
        self.model = build_model(config)
        self._embed = make_embed(self.model.encoder_network, replicas(1), batch_size=16)
        drawn = np.random.default_rng(0).permuted(np.tile(np.arange(200), (COUNT, 1)), axis=1)
        self.words = list(drawn[:, :12].astype(np.int32) + FIRST_WORD)

    def ranks(self, second: Callable[[np.ndarray], np.ndarray]) -> list[float]:
        """Return ranks where the second half of a document is made of its first."""
        texts = [np.concatenate([words, second(words)]) for words in self.words]
        ids = [f"{number:016x}" for number in range(COUNT)]
        return score_retrieval(Halves(ids, halved(texts, FRAME, WIDTH)), self._embed).ranks


def test_a_collapsed_encoder_is_seen_and_rejected() -> None:
    encoder = Encoder()
    assert encoder.ranks(lambda words: words) == [1] * COUNT
    # The same words in another order: what a mean over tokens keeps.
    before = encoder.ranks(lambda words: words[::-1])
    assert np.mean(np.array(before) == 1) > 0.9
    [name] = [name for name in named_variables(encoder.model) if "word_embeddings" in name]
    table = named_variables(encoder.model)[name]
    table.assign(np.tile(table.numpy().mean(axis=0), (table.shape[0], 1)))
    after = encoder.ranks(lambda words: words[::-1])
    assert after == [(COUNT + 1) / 2] * COUNT

    documents = Documents(NEW, COUNT)
    scores = [
        score.model_copy(
            update={"retrieval": RetrievalScore(document_ids=score.document_ids, ranks=ranks)}
        )
        for score, ranks in ((documents.score(-0.2), after), (documents.score(0, 0), before))
    ]
    found = judge(
        report(scores[:1], scores[1:]),
        PromotionConfig(),
        baseline_version=VERSION,
        from_sentence_encoder=True,
    )
    assert found.verdict is VerdictKind.RETRIEVAL


def test_shuffled_weights_find_what_chance_finds() -> None:
    encoder = Encoder()
    variables = named_variables(encoder.model)
    [table] = [one for name, one in variables.items() if "word_embeddings" in name]
    # The second half says the same in words of its own, so only the weights can tell.
    encoder.words = [FIRST_WORD + (words - FIRST_WORD) % 100 for words in encoder.words]
    values = table.numpy()
    values[FIRST_WORD + 100 : FIRST_WORD + 200] = values[FIRST_WORD : FIRST_WORD + 100]
    table.assign(values)
    before = np.array(encoder.ranks(lambda words: words + 100))
    assert (before == 1).mean() > 0.9
    random = np.random.default_rng(1)
    for variable in variables.values():
        variable.assign(random.permutation(variable.numpy().ravel()).reshape(variable.shape))
    after = np.array(encoder.ranks(lambda words: words + 100))
    assert (after == 1).mean() < 0.1
    # Three standard errors of a mean of ranks that are all equally likely.
    error = 3 * (COUNT / 12**0.5) / COUNT**0.5
    assert abs(after.mean() - (COUNT + 1) / 2) < error


def test_special_tokens_and_padding_do_not_count() -> None:
    encoder = Encoder()
    rows = halved([words[:6] for words in encoder.words], FRAME, WIDTH)
    wider = {name: np.pad(values, ((0, 0), (0, 8))) for name, values in rows.items()}
    embed = make_embed(encoder.model.encoder_network, replicas(1), batch_size=16)
    found = embed(rows)
    assert found.shape == (2 * COUNT, 32)
    outputs = encoder.model.encoder_network(
        {name: rows[name][:1] for name in ("input_word_ids", "input_mask", "input_type_ids")}
    )
    expected = outputs["sequence_output"].numpy()[0, 1:4].mean(axis=0)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    np.testing.assert_allclose(embed(wider), found, atol=1e-5)
