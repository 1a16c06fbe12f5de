"""Decodes a T5 model, one token per step, greedily or by beam search.

tf-models' own cached decoding lets a step attend to cache positions that have not been written yet,
so that its logits are not those of training. Here the keys and values of the tokens so far are also
cached, and the other positions are masked.

Beam search is that of transformers with ``early_stopping=False``: a text's score is the sum of its
tokens' log-probabilities, ``</s>`` included, divided by ``tokens ** length_penalty``. The search of
a row ends when the current score of its best unfinished text is no better than the worst of the
``beams`` best finished ones.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import tensorflow as tf

from trained_models.text_to_text.sizes import EOS, PAD, Sizes

_MASKED = -1e9
"""Bias of positions that must not be attended to, and score of beams that hold no text."""


class Decodable(Protocol):
    """A :class:`training.architectures.t5.text_to_text.TextToText`, or an export of one."""

    sizes: Sizes
    transformer: tf.Module


class Memory(NamedTuple):
    """The encoded texts and attention biases that all decoding steps read.

    :param keys: keys of the encoded text by decoder layer, [R, S, N, H].
    :param values: values of the encoded text by decoder layer, [R, S, N, H].
    :param source_bias: added to attention scores on the encoded text, [R, 1, 1, S].
    :param position_bias: added to attention scores on the tokens so far, [1, N, L, L].
    """

    keys: list[tf.Tensor]
    values: list[tf.Tensor]
    source_bias: tf.Tensor
    position_bias: tf.Tensor


class Cache(NamedTuple):
    """Keys and values of the tokens so far, [layers, R, L, N, H]; zeros where there are none."""

    keys: tf.Tensor
    values: tf.Tensor


def remember(model: Decodable, source: tf.Tensor, length: int) -> Memory:
    """Encode texts.

    :param source: int32 [R, S], padded with 0.
    :param length: maximum number of decoded tokens.
    """
    transformer = model.transformer
    dtype = transformer.compute_dtype
    encoded = tf.cast(transformer.encode(encoder_input_tokens=source), dtype)
    blocks = [block.cross_attention.cross_attention for block in transformer.decoder.decoder_layers]
    is_pad = tf.cast(tf.equal(source, PAD), dtype)[:, None, None, :]
    return Memory(
        keys=[attention.k(encoded) for attention in blocks],
        values=[attention.v(encoded) for attention in blocks],
        source_bias=is_pad * _MASKED,
        position_bias=transformer.decoder.relative_embedding(length, length),
    )


def empty_cache(model: Decodable, rows: tf.Tensor, length: int) -> Cache:
    """Return the cache before the first step."""
    sizes = model.sizes
    shape = [sizes.num_decoder_layers, rows, length, sizes.num_heads, sizes.d_kv]
    zeros = tf.zeros(shape, model.transformer.compute_dtype)
    return Cache(zeros, zeros)


def next_logits(
    model: Decodable, tokens: tf.Tensor, position: tf.Tensor, cache: Cache, memory: Memory
) -> tuple[tf.Tensor, Cache]:
    """Return the logits of the next tokens, float32 [R, V], and the cache with these tokens.

    :param tokens: the newest tokens, int32 [R]; a pad at the first position.
    :param position: position of these tokens, from 0.
    """
    decoder = model.transformer.decoder
    length = memory.position_bias.shape[-1]
    places = tf.range(length)
    here = tf.cast(tf.equal(places, position), cache.keys.dtype)[None, :, None, None]
    unwritten = tf.cast(places > position, cache.keys.dtype) * _MASKED
    bias = memory.position_bias[:, :, position, :][:, :, None, :] + unwritten
    states = decoder.target_embed(tokens[:, None], one_hot=False)
    keys, values = [], []
    for number, block in enumerate(decoder.decoder_layers):
        attention = block.self_attention.self_attention
        normal = block.self_attention.layer_norm(states)
        keys.append(cache.keys[number] + attention.k(normal) * here)
        values.append(cache.values[number] + attention.v(normal) * here)
        states += _attend(attention, normal, keys[-1], values[-1], bias)
        attention = block.cross_attention.cross_attention
        normal = block.cross_attention.layer_norm(states)
        written = memory.keys[number], memory.values[number]
        states += _attend(attention, normal, *written, memory.source_bias)
        states += block.ffn(block.ffn_layer_norm(states))
    output = decoder.output_norm(states)
    if model.sizes.has_own_output:
        logits = decoder.logits_dense(output)
    else:
        logits = decoder.target_embed.attend(output) / model.sizes.d_model**0.5
    return tf.cast(logits[:, 0], tf.float32), Cache(tf.stack(keys), tf.stack(values))


def _attend(
    attention: tf.Module, states: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor
) -> tf.Tensor:
    """Return the attention outputs for one state per row, [R, 1, D]."""
    scores = tf.einsum("bqnd,bknd->bnqk", attention.q(states), keys) + bias
    # The softmax is in float32, as in tf-models.
    shares = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), scores.dtype)
    return attention.o(tf.einsum("bnqk,bknd->bqnd", shares, values))


def greedy(model: Decodable, source: tf.Tensor, length: int) -> tf.Tensor:
    """Return the most likely token after token, int32 [R, length]: up to ``</s>``, then pads.

    :param source: int32 [R, S], padded with 0.
    """
    rows = tf.shape(source)[0]
    memory = remember(model, source, length)

    def goes_on(position: tf.Tensor, ended: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return (position < length) & ~tf.reduce_all(ended)

    def step(
        position: tf.Tensor, ended: tf.Tensor, ids: tf.Tensor, last: tf.Tensor, *parts: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        logits, cache = next_logits(model, last, position, Cache(*parts), memory)
        tokens = tf.where(ended, PAD, tf.argmax(logits, axis=-1, output_type=tf.int32))
        ids = _written(ids, tokens, position)
        return position + 1, ended | tf.equal(tokens, EOS), ids, tokens, *cache

    first = tf.fill([rows], PAD)
    ids = tf.fill([rows, length], PAD)
    begin = tf.constant(0), tf.zeros([rows], tf.bool), ids, first, *empty_cache(model, rows, length)
    ids = tf.while_loop(goes_on, step, begin)[2]
    return tf.ensure_shape(ids, [None, length])


def _written(ids: tf.Tensor, tokens: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Return ids [..., L] with tokens [...] at a position."""
    return tf.where(tf.equal(tf.range(ids.shape[-1]), position), tokens[..., None], ids)


class _Beams(NamedTuple):
    """Texts of each row: ids int32 [R, B, L], scores float32 [R, B]."""

    ids: tf.Tensor
    scores: tf.Tensor

    def best(self, count: int) -> tuple[_Beams, tf.Tensor]:
        """Return the best texts, best first, and their indexes, int32 [R, count]."""
        top, which = tf.math.top_k(self.scores, count)
        return _Beams(tf.gather(self.ids, which, batch_dims=1), top), which

    def with_others(self, others: _Beams) -> _Beams:
        """Return these and the others."""
        return _Beams(*(tf.concat(both, axis=1) for both in zip(self, others, strict=True)))


class _Search(NamedTuple):
    """The state of a beam search before a step.

    :param improvable: whether a row may still find a better text, bool [R].
    :param last: the newest token of each running text, int32 [R, B].
    """

    position: tf.Tensor
    improvable: tf.Tensor
    running: _Beams
    done: _Beams
    last: tf.Tensor
    cache: Cache


def beam_search(
    model: Decodable, source: tf.Tensor, length: int, beams: int, length_penalty: float
) -> tf.Tensor:
    """Return the best text found for each row, int32 [R, length]: up to ``</s>``, then pads.

    :param source: int32 [R, S], padded with 0.
    :param beams: texts that are followed at a time, at least 2.
    :param length_penalty: above 0 favors long texts; 0 compares sums.
    """
    rows = tf.shape(source)[0]
    memory = remember(model, source, length)
    memory = Memory(
        [tf.repeat(keys, beams, axis=0) for keys in memory.keys],
        [tf.repeat(values, beams, axis=0) for values in memory.values],
        tf.repeat(memory.source_bias, beams, axis=0),
        memory.position_bias,
    )

    def goes_on(state: _Search) -> tf.Tensor:
        return (state.position < length) & tf.reduce_any(state.improvable)

    def step(state: _Search) -> list[_Search]:
        last = tf.reshape(state.last, [-1])
        logits, cache = next_logits(model, last, state.position, state.cache, memory)
        vocabulary = logits.shape[-1]
        log_p = tf.reshape(tf.nn.log_softmax(logits), [rows, beams, vocabulary])
        sums = tf.reshape(state.running.scores[:, :, None] + log_p, [rows, beams * vocabulary])
        # At most half of twice as many end here, so at least ``beams`` continue.
        scores, places = tf.math.top_k(sums, 2 * beams)
        parents, tokens = places // vocabulary, places % vocabulary
        ids = tf.gather(state.running.ids, parents, batch_dims=1)
        ids = _written(ids, tokens, state.position)
        ends = tf.equal(tokens, EOS) | tf.equal(state.position + 1, length)
        weight = tf.cast(state.position + 1, tf.float32) ** length_penalty

        # Only texts among the best ``beams`` may finish; others may still finish later, and better.
        counts = ends & (tf.range(2 * beams) < beams) & state.improvable[:, None]
        finished = _Beams(ids, tf.where(counts, scores / weight, _MASKED))
        done, _ = state.done.with_others(finished).best(beams)

        on, which = _Beams(ids, scores + tf.where(ends, _MASKED, 0.0)).best(beams)
        chosen = tf.gather(parents, which, batch_dims=1) + beams * tf.range(rows)[:, None]
        chosen = tf.reshape(chosen, [-1])
        return [
            _Search(
                position=state.position + 1,
                improvable=state.improvable
                & (on.scores[:, 0] / weight > tf.reduce_min(done.scores, axis=1)),
                running=on,
                done=done,
                last=tf.gather(tokens, which, batch_dims=1),
                cache=Cache(*(tf.gather(part, chosen, axis=1) for part in cache)),
            )
        ]

    ids = tf.fill([rows, beams, length], PAD)
    first = tf.repeat(tf.constant([[0.0, *[_MASKED] * (beams - 1)]]), rows, axis=0)
    begin = _Search(
        position=tf.constant(0),
        improvable=tf.ones([rows], tf.bool),
        running=_Beams(ids, first),
        done=_Beams(ids, tf.fill([rows, beams], _MASKED)),
        last=tf.fill([rows, beams], PAD),
        cache=empty_cache(model, rows * beams, length),
    )
    (end,) = tf.while_loop(goes_on, step, [begin])
    return tf.ensure_shape(end.done.ids[:, 0], [None, length])


# There is nothing here for AutoGraph to rewrite, which takes longer than tracing.
@tf.autograph.experimental.do_not_convert
def decode(
    model: Decodable, source: tf.Tensor, length: int, *, beams: int = 1, length_penalty: float
) -> tf.Tensor:
    """Return a text for each row, int32 [R, length]: greedy with one beam, else beam search."""
    if beams == 1:
        return greedy(model, source, length)
    return beam_search(model, source, length, beams, length_penalty)
