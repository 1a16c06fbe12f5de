"""The best scores of a lineage on every held-out set and labeled task, handed on by its versions.

Each update may lose a little on old text (``promotion.max_forgetting``), in retrieval and on
labeled tasks. Compared with the model in production alone, such losses add up unnoticed; compared
with the best version so far they do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model_registry.panel import judged
from model_registry.versions import load_version
from pipeline_store import uris
from pipeline_store.formats import (
    BestProbe,
    BestRetrieval,
    BestScore,
    BestScores,
    DocumentSetScore,
    EvaluationReport,
    ModelComparison,
    ModelVersion,
    ProbeReport,
)
from pipeline_store.layout import LineageLayout, VersionLayout

CANDIDATE, BASELINE = "candidate", "baseline"
Floats = npt.NDArray[np.float64]


def best_scores(lineage: LineageLayout, version_id: str | None) -> BestScores:
    """Return the best scores of a version and its ancestors.

    For a version that was published before such records existed, its own and its ancestors'
    evaluations are read instead, as far as retention has left them; labeled tasks then start over.

    :param version_id: the model in production; None: there is none, and no score.
    :raises RegistryError: there is no such version.
    :raises FormatError: a record is damaged.
    """
    best = BestScores(sets={})
    without: list[ModelVersion] = []
    while version_id is not None:
        stored = BestScores.load_or_none(VersionLayout(lineage.version(version_id)).best_scores)
        if stored is not None:
            best = stored
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
    best: BestScores,
    report: EvaluationReport,
    version_id: str,
    parent: str | None,
    probe: ProbeReport | None = None,
) -> BestScores:
    """Return the best scores after a candidate has become a version.

    The model that it was compared with counts as well: a set or task may be new, or the parent may
    be scored under a head for the first time. A set or task with other documents or examples than
    before starts over, such as a set whose partition was prepared again.

    :param best: scores before the candidate.
    :param report: the candidate's evaluation.
    :param parent: version that it was compared with; None: no model.
    :param probe: both models on labeled tasks; None: there are none.
    """
    sets, retrieval = dict(best.sets), dict(best.retrieval)
    versions = {BASELINE: parent, CANDIDATE: version_id}
    # The parent first: an equal score of the candidate is not better.
    for model in sorted(report.models, key=lambda model: model.name != BASELINE):
        version = versions.get(model.name)
        if version is None:
            continue
        for scores in model.sets:
            manifest = report.evaluated[scores.set_name]
            known = sets.get(scores.set_name)
            is_same = known is not None and known.manifest_sha256 == manifest
            if known is None or not is_same or _is_better(scores, known.scores):
                sets[scores.set_name] = BestScore(
                    version_id=version, manifest_sha256=manifest, scores=scores
                )
            _note_retrieval(retrieval, scores, manifest, version)
    probes = _with_probe(best, probe, versions)
    return best.model_copy(update={"sets": sets, "retrieval": retrieval, "probes": probes})


def _note_retrieval(
    best: dict[str, BestRetrieval], scores: DocumentSetScore, manifest: str, version: str
) -> None:
    recall, found = scores.recall_at_1, scores.retrieval
    if found is None or recall is None:
        return
    known = comparable_retrieval(best.get(scores.set_name), scores, manifest)
    if known is None or recall > (known.retrieval.recall(1) or 0):
        best[scores.set_name] = BestRetrieval(
            version_id=version, manifest_sha256=manifest, retrieval=found
        )


def comparable_retrieval(
    best: BestRetrieval | None, scores: DocumentSetScore, manifest: str
) -> BestRetrieval | None:
    """Return a set's best retrieval if it was among the same documents as these scores', else None.

    A rank is relative to all of them, so ranks among other documents cannot be compared.
    """
    if best is None or scores.retrieval is None or best.manifest_sha256 != manifest:
        return None
    return best if best.retrieval.document_ids == scores.retrieval.document_ids else None


def _with_probe(
    best: BestScores, probe: ProbeReport | None, versions: Mapping[str, str | None]
) -> dict[str, BestProbe]:
    """Return the best values on tasks after a probed candidate has become a version.

    :param versions: version ids by model.
    """
    updated = dict(best.probes)
    parent, version = versions[BASELINE], versions[CANDIDATE]
    if probe is None or parent is None or version is None:
        return updated
    for one in probe.comparisons:
        known = comparable_probe(best.probes.get(one.task), one, probe)
        if known is None:
            known = _best_probe(one, probe, parent, one.reference_mean, 0.0)
        if one.model_mean >= known.value:
            known = _best_probe(one, probe, version, one.model_mean, 0.0)
        else:
            known = known.model_copy(update={"half_width": total_half_width(known, one)})
        updated[one.task] = known
    return updated


def comparable_probe(
    best: BestProbe | None, comparison: ModelComparison, probe: ProbeReport
) -> BestProbe | None:
    """Return a task's best value if it was measured as this comparison was, else None."""
    if best is None or best.manifest_sha256 != probe.manifests.get(comparison.task):
        return None
    return best if (best.mode, best.metric) == (probe.mode, comparison.metric) else None


def total_half_width(best: BestProbe, comparison: ModelComparison) -> float:
    """Return half of the width of the interval between the best version and a candidate.

    The best version's predictions per example are not kept. The intervals between each version
    since and the next are known; their squares are added, as if each update changed other examples.
    """
    return math.hypot(best.half_width, (comparison.high - comparison.low) / 2)


def _best_probe(
    comparison: ModelComparison, probe: ProbeReport, version: str, value: float, half_width: float
) -> BestProbe:
    return BestProbe(
        version_id=version,
        manifest_sha256=probe.manifests.get(comparison.task, ""),
        mode=probe.mode,
        metric=comparison.metric,
        value=value,
        half_width=half_width,
    )


class CommonDocuments(NamedTuple):
    """The losses of two models on the same N documents.

    ``losses``, ``reference``: sums, [N]. ``tokens``: numbers of masked tokens, above 0, [N].
    ``places``: indices of the documents in the first model's scores, [N].
    """

    losses: Floats
    reference: Floats
    tokens: Floats
    places: npt.NDArray[np.int64]


def on_common_documents(scores: DocumentSetScore, reference: DocumentSetScore) -> CommonDocuments:
    """Return the losses of two models on the documents that both were scored on with equal masks.

    These are not all documents if ``evaluation.max_records_per_set`` has changed in between. Losses
    are over the row lengths that both models were scored on.
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


LOSS, RECALL = "masked_lm_loss", "retrieval_recall_at_1"


def histories(
    lineage: LineageLayout, version_id: str | None, set_names: Sequence[str], metric: str
) -> dict[str, list[tuple[str, float]]]:
    """Return a metric of a version and its ancestors on some sets, oldest first.

    :param metric: ``LOSS``, in nats per token, or ``RECALL``.
    :returns: by set: version ids and values of the versions that were scored on it.
    """
    models: list[ModelVersion] = []
    while version_id is not None:
        models.append(load_version(lineage, version_id))
        version_id = _parent(lineage, models[-1])
    metrics = {name: f"{CANDIDATE}/{name}/{metric}" for name in set_names}
    return {
        name: [
            (model.version_id, model.metrics[key])
            for model in reversed(models)
            if key in model.metrics
        ]
        for name, key in metrics.items()
    }


def _parent(lineage: LineageLayout, model: ModelVersion) -> str | None:
    """Return a version's parent, unless retention has removed it."""
    is_left = model.parent is not None and uris.exists(lineage.model(model.parent))
    return model.parent if is_left else None
