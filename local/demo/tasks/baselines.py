"""Scores simple methods on a task: the most frequent label, and a linear model on words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from local.demo.tasks.examples import Example, Task
from local.demo.tasks.modules import Use
from local.demo.tasks.results import Result

STRENGTHS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Candidate inverse regularization strengths; the validation split chooses one."""
_MAX_ITERATIONS = 1000


def majority(task: Task) -> Result:
    """Return the result of always predicting the most frequent training label."""
    ((label, _),) = Counter(_labels(task.splits[Use.TRAIN])).most_common(1)
    return _result("majority", task, [label] * len(task.splits[Use.TEST]))


def linear(task: Task) -> dict[str, Result]:
    """Return the results of logistic regression on TF-IDF of words and word pairs, by key.

    ``tfidf``: for two texts the features are both, their product and their absolute difference.
    ``tfidf_cosine``, for two texts only: also their cosine, which measures their overlap.
    """
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2))
    words.fit([text for example in task.splits[Use.TRAIN] for text in example.texts])
    columns = {split: _columns(words, examples) for split, examples in task.splits.items()}
    if not task.is_pairs:
        return {"tfidf": _regression("TF-IDF", task, columns)}
    pairs = {split: _pair_features(*found) for split, found in columns.items()}
    with_cosine = {split: [*pairs[split], _cosine(*columns[split])] for split in pairs}
    return {
        "tfidf": _regression("TF-IDF", task, pairs),
        "tfidf_cosine": _regression("TF-IDF with the cosine", task, with_cosine),
    }


def _columns(words: TfidfVectorizer, examples: Sequence[Example]) -> list[sparse.csr_matrix]:
    texts = zip(*(example.texts for example in examples), strict=True)
    return [words.transform(column) for column in texts]


def _pair_features(first: sparse.csr_matrix, second: sparse.csr_matrix) -> list[sparse.csr_matrix]:
    return [first, second, first.multiply(second), abs(first - second)]


def _cosine(first: sparse.csr_matrix, second: sparse.csr_matrix) -> sparse.csr_matrix:
    return sparse.csr_matrix(np.asarray(first.multiply(second).sum(axis=1)))


def _regression(
    name: str, task: Task, columns: Mapping[Use, Sequence[sparse.csr_matrix]]
) -> Result:
    """Return the result of a linear model on the given features."""
    features = {split: sparse.hstack(parts, format="csr") for split, parts in columns.items()}
    labels = {split: _labels(examples) for split, examples in task.splits.items()}
    models = [
        LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS).fit(
            features[Use.TRAIN], labels[Use.TRAIN]
        )
        for strength in STRENGTHS
    ]
    best = max(
        models,
        key=lambda model: float(model.score(features[Use.VALIDATION], labels[Use.VALIDATION])),
    )
    predicted = list(best.predict(features[Use.TEST]))
    return _result(f"{name}, logistic regression (C = {best.C:g})", task, predicted)


def _labels(examples: Sequence[Example]) -> list[str]:
    return [example.label for example in examples]


def _result(name: str, task: Task, predicted: list[str]) -> Result:
    labels = _labels(task.splits[Use.TEST])
    right = np.array([a == b for a, b in zip(labels, predicted, strict=True)], np.float64)
    macro_f1 = float(f1_score(labels, predicted, average="macro", zero_division=0.0))
    return Result(name, [float(right.mean())], [macro_f1], right)
