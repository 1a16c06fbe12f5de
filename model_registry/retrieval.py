"""The gate on embeddings: whether a candidate still finds the other half of a document.

A masked-LM loss says nothing about sentence embeddings, which such training changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from model_registry.best_scores import Floats, comparable_retrieval
from model_registry.bootstrap import FEWEST_DRAWN, interval, units_of
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import (
    BestRetrieval,
    DocumentSetScore,
    EvaluationReport,
    ModelScore,
    RetrievalComparison,
    RetrievalScore,
    TotalLoss,
    VerdictKind,
)


def retrieval_limit(config: PromotionConfig, *, from_sentence_encoder: bool) -> float | None:
    """Return how much recall@1 a candidate may lose; None: it is not judged by recall@1.

    :param from_sentence_encoder: whether the lineage began with a model of sentence-transformers.
    """
    is_judged = from_sentence_encoder or config.judge_retrieval == "always"
    return config.max_retrieval_loss if is_judged else None


def compare_retrieval(
    set_name: str,
    candidate: ModelScore,
    baseline: ModelScore | None,
    *,
    limit: float | None,
    confidence: float,
    random_seed: int,
) -> RetrievalComparison | None:
    """Compare recall@1 on one set.

    :param baseline: the model in production; None: there is none to compare with.
    :param limit: as :func:`retrieval_limit` returns it.
    :returns: None if there is nothing to compare, which is an error where it is to be judged.
    :raises ValueError: it is to be judged and was not measured, the models were not measured on
        the same documents, or a rank is invalid.
    """
    if baseline is None:
        return None
    ours, theirs = (_of_set(model, set_name).retrieval for model in (candidate, baseline))
    if ours is None or theirs is None:
        if limit is None:
            return None
        raise ValueError(
            f"promotion.max_retrieval_loss={limit:g} is to be judged, but retrieval was not "
            f"measured on set {set_name!r}: the evaluation is older than that. Delete the run's "
            "evaluation, evaluations/<version in use>.json, and run the task `evaluate` again; or "
            "leave promotion.max_retrieval_loss empty."
        )
    if ours.document_ids != theirs.document_ids:
        differing = set(ours.document_ids) ^ set(theirs.document_ids)
        raise ValueError(
            f"Set {set_name!r}: retrieval of candidate and baseline was measured on different "
            f"documents ({len(differing)} by one model only). Evaluate both on the same records."
        )
    hits, reference = _hits(ours, candidate.name, set_name), _hits(theirs, baseline.name, set_name)
    if not len(hits):
        return None
    scores = _of_set(candidate, set_name)
    places = np.flatnonzero(np.isin(scores.document_ids, ours.document_ids))
    units = units_of(scores, places, FEWEST_DRAWN)
    # Misses serve as losses; every document has the same weight.
    found = interval(
        1 - hits, 1 - reference, np.ones(len(hits)), confidence, random_seed, units=units
    )
    return RetrievalComparison(
        documents=len(hits),
        candidate_recall=float(hits.mean()),
        reference_recall=float(reference.mean()),
        difference=found.mean,
        low=found.low,
        high=found.high,
        max_loss=limit,
    )


def decide_retrieval(
    retrieval: RetrievalComparison, config: PromotionConfig, better: str
) -> tuple[VerdictKind, str]:
    """Return the decision by embeddings on a candidate whose loss is better."""
    if retrieval.max_loss is None:
        return VerdictKind.PROMOTED, better
    sentence = (
        f"On {retrieval.documents} held-out documents recall@1 of the embeddings is "
        f"{retrieval.candidate_recall:.3f} and that of the model in use "
        f"{retrieval.reference_recall:.3f}: a difference of {retrieval.difference:+z.3f} with a "
        f"{config.confidence:.0%} interval from {retrieval.low:+z.3f} to {retrieval.high:+z.3f}"
    )
    if retrieval.documents < config.min_documents:
        return VerdictKind.PROMOTED, (
            f"{better} {sentence}; with fewer than promotion.min_documents="
            f"{config.min_documents} it is not judged."
        )
    if retrieval.high < -retrieval.max_loss:
        return VerdictKind.RETRIEVAL, (
            f"{sentence}. That is more than promotion.max_retrieval_loss="
            f"{retrieval.max_loss:g} allows. {better}"
        )
    return VerdictKind.PROMOTED, f"{better} {sentence}."


def retrieval_totals(
    report: EvaluationReport,
    candidate: ModelScore,
    best: Mapping[str, BestRetrieval],
    config: PromotionConfig,
    *,
    is_judged: bool,
    random_seed: int,
) -> Iterator[TotalLoss]:
    """Yield comparisons of recall@1 with the lineage's best version on all sets but the run's own.

    A set without a best version among the same documents is left out.

    :param is_judged: whether a candidate can be rejected by it.
    :raises ValueError: a rank is invalid.
    """
    for scores in candidate.sets:
        name = scores.set_name
        known = comparable_retrieval(best.get(name), scores, report.evaluated[name])
        if name == report.current_set or known is None or scores.retrieval is None:
            continue
        hits = _hits(scores.retrieval, candidate.name, name)
        reference = _hits(known.retrieval, known.version_id, name)
        if not len(hits):
            continue
        places = np.flatnonzero(np.isin(scores.document_ids, scores.retrieval.document_ids))
        found = interval(
            1 - hits,
            1 - reference,
            np.ones(len(hits)),
            config.confidence,
            random_seed,
            units=units_of(scores, places, FEWEST_DRAWN),
        )
        yield TotalLoss(
            name=name,
            metric="recall@1",
            count=len(hits),
            best_version=known.version_id,
            best=float(reference.mean()),
            candidate=float(hits.mean()),
            difference=found.mean,
            low=found.low,
            high=found.high,
            max_loss=config.max_total_retrieval_loss if is_judged else None,
        )


def decide_retrieval_totals(
    totals: list[TotalLoss], config: PromotionConfig, better: str
) -> tuple[VerdictKind, str]:
    """Return the decision by total losses of recall@1 on a candidate that passed so far."""
    for one in totals:
        if one.is_too_much(config.min_documents):
            return VerdictKind.RETRIEVAL, (
                f"On {one.count} held-out documents of {one.name} recall@1 of the embeddings is "
                f"{one.candidate:.3f} and that of {one.best_version}, the lineage's best on them, "
                f"{one.best:.3f}: a difference of {one.difference:+z.3f} with a "
                f"{config.confidence:.0%} interval from {one.low:+z.3f} to {one.high:+z.3f}, and "
                f"promotion.max_total_retrieval_loss={one.max_loss:g} allows less. {better}"
            )
    return VerdictKind.PROMOTED, better


def _of_set(model: ModelScore, set_name: str) -> DocumentSetScore:
    return next(scores for scores in model.sets if scores.set_name == set_name)


def _hits(score: RetrievalScore, model: str, set_name: str) -> Floats:
    """Return whether each document was found first, as 1 or 0, shape [N]."""
    ranks = np.array(score.ranks, float)
    if ranks.shape != (len(score.document_ids),) or not (ranks >= 1).all():
        raise ValueError(
            f"Set {set_name!r} of the {model} has {len(score.ranks)} ranks for "
            f"{len(score.document_ids)} documents, the smallest {min(score.ranks, default=None)}; "
            "each document needs one of 1 or more. The evaluation is damaged."
        )
    return (ranks <= 1).astype(float)
