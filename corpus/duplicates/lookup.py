"""Looks up texts among a partition's training documents, in the partition's own index."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.duplicates.decisions import equal_positions
from corpus.duplicates.minhash import comparable, sketches_of
from corpus.duplicates.signatures import IndexedDocuments, Signatures, sign
from corpus.duplicates.similarity import have_similar
from corpus.text.cleaning import Cleaner
from corpus.text.content import Content
from pipeline_config.data_schema import CorpusConfig

Flags = npt.NDArray[np.bool_]


class Found(NamedTuple):
    """Flags of the texts that are training documents of the index, shape [T].

    ``near``: which are similar to one, equal ones included; None: the index has no sketches.
    """

    exact: Flags
    near: Flags | None


def sign_texts(texts: Sequence[str], corpus: CorpusConfig) -> Signatures:
    """Return the signatures that texts would have as documents of a corpus with these settings."""
    cleaner = Cleaner(corpus)
    cleaned = map(cleaner.clean, texts)
    return sign(
        (
            Content([text], hashlib.sha256(text.encode()).digest(), number)
            for number, text in enumerate(cleaned)
        ),
        sketch=sketches_of,
    )


def find_trained(signed: Signatures, index: IndexedDocuments, threshold: float) -> Found:
    """Look texts up among the documents of an index that are trained on.

    :param signed: signatures of T texts by :func:`sign_texts`.
    :param threshold: share of common five-word shingles from which texts count as similar.
    """
    is_trained = ~index.held_out
    hashes, number = np.unique(signed.hashes, axis=0, return_inverse=True)
    mine, theirs = equal_positions(hashes, index.hashes)
    is_known = np.zeros(len(hashes), bool)
    is_known[mine[is_trained[theirs]]] = True
    exact = is_known[number.reshape(-1)]
    if index.sketches is None or signed.sketches is None:
        return Found(exact, None)
    near = exact.copy()
    # All texts without a word have the same sketch, whatever signs they consist of.
    has_words = (signed.sketches != sketches_of([""])).any(axis=1)
    rows = np.flatnonzero(~exact & has_words)
    mine_there, trained = comparable(signed.sketches[rows], index.sketches[is_trained])
    near[rows] = have_similar(mine_there, trained, threshold)
    return Found(exact, near)
