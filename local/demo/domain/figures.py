"""Computes the figures of `make demo-domain`."""

from __future__ import annotations

from typing import Any

import numpy as np

from model_registry import bootstrap, gate, retrieval
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import (
    DocumentSetScore,
    EvaluationReport,
    ModelScore,
    ProbeReport,
    Verdict,
    VerdictKind,
)

_SEED = 1


def figures(
    report: EvaluationReport,
    promotion: PromotionConfig,
    *,
    general: str,
    verdict: Verdict,
    probe: ProbeReport,
) -> dict[str, Any]:
    """Return the model's losses and other metrics, before and after, with intervals.

    The verdict is ``promoted`` only if the DAG's gate promotes and the continued model is also
    better, by paired intervals, than the imported encoder and than the unigram loss.

    :param report: scores of the continued model, ``candidate``, and of the frozen encoder under a
        head with as many steps, ``baseline``.
    :param general: name of the set of general text, on which nothing was trained.
    :param verdict: verdict of the DAG.
    :param probe: probe report of the DAG: classifiers of the continued and the imported encoder.
    """
    # Labeled tasks and retrieval are judged by the DAG; here only losses count.
    promotion = promotion.model_copy(update={"probe_tasks": []})
    by_name = {model.name: model for model in report.models}
    imported = by_name["baseline"]
    place = imported.model_uri.rstrip("/").rpartition("/")[2]
    against_imported = gate.judge(report, promotion, baseline_version=place)
    alone = report.model_copy(update={"models": [by_name["candidate"]]})
    against_unigram = gate.judge(alone, promotion, baseline_version=None)
    found = retrieval.compare_retrieval(
        report.current_set,
        by_name["candidate"],
        imported,
        limit=None,
        confidence=promotion.confidence,
        random_seed=_SEED,
    )
    verdicts = [verdict.verdict, against_imported.verdict, against_unigram.verdict]
    failed = [kind for kind in verdicts if kind is not VerdictKind.PROMOTED]
    return {
        "imported_loss": against_imported.reference_loss,
        "continued_loss": against_imported.candidate_loss,
        "unigram_loss": against_unigram.reference_loss,
        "better_than_imported": _improvement(against_imported),
        "better_than_unigram": _improvement(against_unigram),
        "old_text_loss": _old_text(by_name["candidate"], imported, general, promotion.confidence),
        "retrieval": None
        if found is None
        else {
            "documents": found.documents,
            "before": found.reference_recall,
            "after": found.candidate_recall,
            "difference": [found.difference, found.low, found.high],
        },
        "downstream": [
            {
                "task": one.task,
                "metric": one.metric,
                "seeds": one.seeds,
                "examples": one.examples,
                "before": one.reference_mean,
                "after": one.model_mean,
                "difference": [one.difference, one.low, one.high],
                "says": one.sentence,
            }
            for one in probe.comparisons
        ],
        "verdict": str(failed[0] if failed else VerdictKind.PROMOTED),
        "reason": verdict.reason,
    }


def _improvement(verdict: Verdict) -> list[float]:
    return [verdict.improvement, verdict.improvement_low, verdict.improvement_high]


def _old_text(
    candidate: ModelScore, imported: ModelScore, general: str, confidence: float
) -> dict[str, Any]:
    after, before = _of_set(candidate, general), _of_set(imported, general)
    ours, theirs, tokens = (
        np.array(sums) for sums in (after.loss_sums, before.loss_sums, after.token_counts)
    )
    found = bootstrap.interval(theirs, ours, tokens, confidence, _SEED)
    return {
        "documents": len(after.document_ids),
        "before": float(theirs.sum() / tokens.sum()),
        "after": float(ours.sum() / tokens.sum()),
        "difference": [found.mean, found.low, found.high],
    }


def _of_set(model: ModelScore, name: str) -> DocumentSetScore:
    [scores] = [scores for scores in model.sets if scores.set_name == name]
    return scores
