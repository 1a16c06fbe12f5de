"""A vocabulary for small T5 models, and their sizes. No TensorFlow."""

from __future__ import annotations

import io

import numpy as np
import sentencepiece

from trained_models.text_to_text.sizes import Form, Sizes

VOCABULARY = 96
WORDS = [
    *("red", "blue", "green", "black", "white", "small", "large", "old", "new", "house", "tree"),
    *("river", "stone", "bird", "horse", "apple", "street", "garden", "window", "winter"),
    *("summer", "morning", "evening", "paper", "letter", "engine", "signal", "market"),
]


def sizes(form: Form) -> Sizes:
    """Return the sizes of a tiny model, no two of which are equal."""
    return Sizes(
        form=form,
        vocab_size=VOCABULARY + 4,
        d_model=24,
        d_kv=5,
        d_ff=40,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
    )


def sentencepiece_model() -> bytes:
    """Return a vocabulary as T5 has it: pad 0, ``</s>`` 1, unknown 2."""
    random = np.random.default_rng(5)
    lines = [" ".join(random.choice(WORDS, 8)) + "." for _ in range(400)]
    found = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=found,
        vocab_size=VOCABULARY,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return found.getvalue()
