"""Decoding token by token is what the model's forward pass of training says."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.training.text_to_text.models import random_model, random_rows
from trained_models.text_to_text.sizes import EOS, SOURCE, TARGET, Form
from training.architectures.t5.text_to_text import TextToText
from training.text_to_text.decoding import (
    beam_search,
    decode,
    empty_cache,
    greedy,
    next_logits,
    remember,
)

EACH = pytest.mark.parametrize("form", ["1.0", "1.1"])
CLOSE = 2e-5
LENGTH = 7


def forced(model: TextToText, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return log-probabilities of each token by the forward pass of training."""
    return tf.nn.log_softmax(model({SOURCE: source, TARGET: target}, training=False)).numpy()


@EACH
def test_cached_logits_equal_teacher_forced_ones(form: Form) -> None:
    model = random_model(form)
    source, target = random_rows(6, 9), np.maximum(random_rows(6, LENGTH), 3)
    wanted = model({SOURCE: source, TARGET: target}, training=False).numpy()
    memory, cache = remember(model, tf.constant(source), LENGTH), empty_cache(model, 6, LENGTH)
    last = np.zeros(6, np.int32)
    for position in range(LENGTH):
        logits, cache = next_logits(model, tf.constant(last), tf.constant(position), cache, memory)
        scale = np.abs(wanted[:, position]).max()
        assert np.abs(logits.numpy() - wanted[:, position]).max() / scale < CLOSE
        last = target[:, position]


@EACH
def test_greedy_takes_the_likeliest_token_each_time(form: Form) -> None:
    model, source = random_model(form), random_rows(12, 9)
    found = greedy(model, tf.constant(source), LENGTH).numpy()
    # Whatever follows cannot be seen by the tokens before.
    log_p = forced(model, source, np.where(found == 0, 3, found))
    for row, ids in enumerate(found):
        ends = np.flatnonzero(ids == EOS)
        used = ends[0] + 1 if len(ends) else LENGTH
        assert (ids[used:] == 0).all()
        np.testing.assert_array_equal(log_p[row].argmax(axis=1)[:used], ids[:used])


def slow_beams(
    model: TextToText, source: np.ndarray, beams: int, penalty: float
) -> tuple[list[int], float]:
    """Return the best text of one row and its score, by whole forward passes and Python's lists."""
    running: list[tuple[float, list[int]]] = [(0.0, [])]
    done: list[tuple[float, list[int]]] = []
    for length in range(1, LENGTH + 1):
        candidates = []
        for total, ids in running:
            target = np.array([[*ids, *[3] * (LENGTH - len(ids))]], np.int32)
            log_p = forced(model, source[None], target)[0, len(ids)]
            candidates += [(total + float(p), [*ids, t]) for t, p in enumerate(log_p)]
        candidates.sort(key=lambda one: -one[0])
        top = candidates[: 2 * beams]
        ended = [c[1][-1] == EOS or length == LENGTH for c in top]
        scored = [(c[0] / length**penalty, c[1]) for c in top]
        done += [c for c, end in zip(scored[:beams], ended[:beams], strict=True) if end]
        done = sorted(done, key=lambda one: -one[0])[:beams]
        running = [c for c, end in zip(top, ended, strict=True) if not end][:beams]
        if not running:
            break
        if len(done) == beams and running[0][0] / length**penalty <= done[-1][0]:
            break
    return done[0][1], done[0][0]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@EACH
def test_beam_search_finds_what_a_slow_one_finds(form: Form, penalty: float) -> None:
    model, source = random_model(form), random_rows(4, 9)
    found = beam_search(model, tf.constant(source), LENGTH, 3, penalty).numpy()
    for row, ids in zip(source, found, strict=True):
        wanted, _ = slow_beams(model, row, 3, penalty)
        assert ids.tolist() == [*wanted, *[0] * (LENGTH - len(wanted))]


def test_a_row_does_not_depend_on_the_others_nor_on_padding() -> None:
    model, source = random_model("1.1"), random_rows(6, 9)
    for beams in (1, 3):
        together = decode(model, tf.constant(source), LENGTH, beams=beams, length_penalty=1.0)
        for row, ids in zip(source, together.numpy(), strict=True):
            alone = tf.constant(row[row != 0][None])
            found = decode(model, alone, LENGTH, beams=beams, length_penalty=1.0)
            assert found.numpy()[0].tolist() == ids.tolist()
