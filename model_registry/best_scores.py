"""The best scores of a lineage on every set of held-out documents, carried on by its versions.

Each update may lose a little on old text (``promotion.max_forgetting``). Compared with the model in
use alone, such losses add up unseen; compared with the best version so far they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model_registry.row_lengths import judged
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

CANDIDATE, BASELINE = "candidate", "baseline"
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
    best: Sets = {}
    without: list[ModelVersion] = []
    while version_id is not None:
        stored = BestScores.load_or_none(VersionLayout(lineage.version(version_id)).best_scores)
        if stored is not None:
            best = stored.sets
            break
        without.append(load_version(lineage, version_id))
        version_id = _parent(lineage, without[-1])
    # One at a time: an evaluation holds the scores of every document.
    for older in reversed(without):
        layout = VersionLayout(lineage.version(older.version_id))
        report = EvaluationReport.load(layout.evaluation)
        best = with_evaluation(best, report, older.version_id, older.parent)
    return best


def with_evaluation(
    best: Sets, report: EvaluationReport, version_id: str, parent: str | None
) -> Sets:
    """Return the best scores after a candidate has become a version.

    The model that it was compared with counts as well: a set may be new to the evaluations, or the
    parent be scored under a head for the first time. A set whose partition was prepared anew since
    has other documents: its best score begins again.

    :param best: before.
    :param report: the candidate's evaluation.
    :param parent: what it was compared with; None: with no model.
    """
    updated = dict(best)
    versions = {BASELINE: parent, CANDIDATE: version_id}
    # The parent first: an equal score of the candidate is no better one.
    for model in sorted(report.models, key=lambda model: model.name != BASELINE):
        version = versions.get(model.name)
        if version is None:
            continue
        for scores in model.sets:
            manifest = report.evaluated[scores.set_name]
            known = updated.get(scores.set_name)
            is_same = known is not None and known.manifest_sha256 == manifest
            if known is None or not is_same or _is_better(scores, known.scores):
                updated[scores.set_name] = BestScore(
                    version_id=version, manifest_sha256=manifest, scores=scores
                )
    return updated


class CommonDocuments(NamedTuple):
    """What two models lost on the same N documents, and where these are in the first one's scores.

    ``losses``, ``reference``: sums, [N]. ``tokens``: numbers of masked tokens, above 0, [N].
    ``places``: [N].
    """

    losses: Floats
    reference: Floats
    tokens: Floats
    places: npt.NDArray[np.int64]


def on_common_documents(scores: DocumentSetScore, reference: DocumentSetScore) -> CommonDocuments:
    """Return what two models lost on the documents that both were scored on with the same masks.

    These are not all where ``evaluation.max_records_per_set`` has changed in between. Losses are
    over the row lengths that both models were scored on.
    """
    scores, reference = judged(scores, reference)
    _, here, there = np.intersect1d(
        scores.document_ids, reference.document_ids, assume_unique=True, return_indices=True
    )
    tokens = np.array(scores.token_counts, float)[here]
    alike = (tokens == np.array(reference.token_counts, float)[there]) & (tokens > 0)
    losses = np.array(scores.loss_sums, float)[here[alike]]
    before = np.array(reference.loss_sums, float)[there[alike]]
    return CommonDocuments(losses, before, tokens[alike], here[alike])


def _is_better(scores: DocumentSetScore, best: DocumentSetScore) -> bool:
    common = on_common_documents(scores, best)
    return not len(common.tokens) or common.losses.sum() < common.reference.sum()


def loss_histories(
    lineage: LineageLayout, version_id: str | None, set_names: Sequence[str]
) -> dict[str, list[tuple[str, float]]]:
    """Return the losses on some sets of a version and its ancestors, oldest first.

    :returns: by set: version ids and losses in nats per token, of those that were scored on it.
    """
    models: list[ModelVersion] = []
    while version_id is not None:
        models.append(load_version(lineage, version_id))
        version_id = _parent(lineage, models[-1])
    metrics = {name: f"{CANDIDATE}/{name}/masked_lm_loss" for name in set_names}
    return {
        name: [
            (model.version_id, model.metrics[metric])
            for model in reversed(models)
            if metric in model.metrics
        ]
        for name, metric in metrics.items()
    }


def _parent(lineage: LineageLayout, model: ModelVersion) -> str | None:
    """Return a version's parent, unless retention has removed it."""
    is_left = model.parent is not None and uris.exists(lineage.model(model.parent))
    return model.parent if is_left else None
