"""Trains vocabularies of byte-level BPE (arXiv 1508.07909, GPT-2), by Hugging Face's tokenizers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from corpus.tokens.bpe_model import ROBERTA_NAMES, bpe_vocabulary
from corpus.tokens.byte_level import CHARACTERS
from corpus.tokens.vocabulary import MASK, Vocabulary

logger = logging.getLogger(__name__)

_MIN_PAIR_COUNT = 2


def train_bpe(pieces: Iterable[str], *, size: int) -> Vocabulary:
    """Return a vocabulary of at most ``size`` tokens; equal text gives an equal one.

    Special tokens have RoBERTa's ids: ``<mask>`` is the last token, the others are the first.
    The 256 bytes follow, so that every text has tokens, and then what is merged.
    """
    pipeline = Tokenizer(BPE())
    pipeline.pre_tokenizer = ByteLevel(add_prefix_space=False)
    first = [token for token in ROBERTA_NAMES if token != MASK]
    trainer = BpeTrainer(
        vocab_size=size - 1,
        min_frequency=_MIN_PAIR_COUNT,
        show_progress=False,
        special_tokens=first,
        # All bytes, in a fixed order: ties between merges go by number.
        initial_alphabet=list(CHARACTERS),
    )
    pipeline.train_from_iterator(pieces, trainer)
    logger.info("%d tokens", pipeline.get_vocab_size() + 1)
    model = json.loads(pipeline.to_str())["model"]
    ids = model["vocab"]
    tokens = [*sorted(ids, key=ids.__getitem__), MASK]
    return bpe_vocabulary(tokens, [(first, second) for first, second in model["merges"]])
