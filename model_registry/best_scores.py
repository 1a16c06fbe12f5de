"""The best scores of a lineage on every set of held-out documents, carried on by its versions.

Each update may lose a little on old text (``promotion.max_forgetting``). Compared with the model in
use alone, such losses add up unseen; compared with the best version so far they do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from model_registry.versions import load_version
from pipeline_store import uris
from pipeline_store.formats import (
    BestScore,
    BestScores,
    DocumentSetScore,
    EvaluationReport,
    ModelVersion,
)
from pipeline_store.layout import LineageLayout, VersionLayout

CANDIDATE = "candidate"
Floats = npt.NDArray[np.float64]
Sets = dict[str, BestScore]


def best_scores(lineage: LineageLayout, version_id: str | None) -> Sets:
    """Return the best scores of a version and its ancestors, by set.

    A version that was published before there were such records has its ancestors' evaluations read
    instead, as far as retention has left them.

    :param version_id: the model in use; None: there is none, and no score.
    :raises RegistryError: there is no such version.
    :raises FormatError: a record is damaged.
    """
    if version_id is None:
        return {}
    folder = VersionLayout(lineage.version(version_id))
    if (stored := BestScores.load_or_none(folder.best_scores)) is not None:
        return stored.sets
    parent = _parent(lineage, load_version(lineage, version_id))
    report = EvaluationReport.load(folder.evaluation)
    return with_candidate(best_scores(lineage, parent), report, version_id)


def with_candidate(best: Sets, report: EvaluationReport, version_id: str) -> Sets:
    """Return the best scores after a candidate has become a version.

    A set whose partition was prepared anew since has other documents: its best score begins again.

    :param best: before.
    :param report: the candidate's evaluation.
    """
    updated = dict(best)
    for scores in next(model for model in report.models if model.name == CANDIDATE).sets:
        name, manifest = scores.set_name, report.evaluated[scores.set_name]
        known = best.get(name)
        if known is None or known.manifest_sha256 != manifest or _is_better(scores, known.scores):
            updated[name] = BestScore(
                version_id=version_id, manifest_sha256=manifest, scores=scores
            )
    return updated


def on_common_documents(
    scores: DocumentSetScore, reference: DocumentSetScore
) -> tuple[Floats, Floats, Floats]:
    """Return what two models lost on the documents that both were scored on with the same masks.

    These are not all where ``evaluation.max_records_per_set`` has changed in between.

    :returns: loss sums of both, and numbers of masked tokens (above 0), by document, shape [N].
    """
    _, here, there = np.intersect1d(
        scores.document_ids, reference.document_ids, assume_unique=True, return_indices=True
    )
    tokens = np.array(scores.token_counts, float)[here]
    alike = (tokens == np.array(reference.token_counts, float)[there]) & (tokens > 0)
    losses = np.array(scores.loss_sums, float)[here[alike]]
    return losses, np.array(reference.loss_sums, float)[there[alike]], tokens[alike]


def _is_better(scores: DocumentSetScore, best: DocumentSetScore) -> bool:
    losses, reference, tokens = on_common_documents(scores, best)
    return not len(tokens) or losses.sum() < reference.sum()


def loss_history(
    lineage: LineageLayout, version_id: str | None, set_name: str
) -> list[tuple[str, float]]:
    """Return the loss on a set of a version and its ancestors, oldest first.

    :returns: version ids and losses in nats per token, of those that were scored on it.
    """
    metric = f"{CANDIDATE}/{set_name}/masked_lm_loss"
    return [
        (model.version_id, model.metrics[metric])
        for model in reversed(list(_ancestry(lineage, version_id)))
        if metric in model.metrics
    ]


def _ancestry(lineage: LineageLayout, version_id: str | None) -> Iterator[ModelVersion]:
    """Yield a version, its parent, and so on, as far as retention has left them."""
    while version_id is not None:
        model = load_version(lineage, version_id)
        yield model
        version_id = _parent(lineage, model)


def _parent(lineage: LineageLayout, model: ModelVersion) -> str | None:
    is_left = model.parent is not None and uris.exists(lineage.model(model.parent))
    return model.parent if is_left else None
