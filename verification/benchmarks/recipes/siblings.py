"""Computes how far models that differ only by seed are apart, and if the gate promotes them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import permutations

from model_registry.best_scores import BASELINE, CANDIDATE
from model_registry.gate import judge
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import EvaluationReport, ModelScore, VerdictKind

MARGINS = (0.0, 0.005, 0.01, 0.02)
_VERSION = "v-sibling"


@dataclass(frozen=True)
class Siblings:
    """Models that differ by seed, on the held-out documents of one partition.

    ``promoted``: share of the ordered pairs that the gate promotes, by ``min_improvement``.
    """

    set_name: str
    documents: int
    losses: list[float]
    standard_deviation: float
    largest_difference: float
    promoted: dict[str, float]


def compare(report: EvaluationReport) -> list[Siblings]:
    """Return how all models of a report compare with each other, by set."""
    return [_on_set(report, number) for number in range(len(report.models[0].sets))]


def _on_set(report: EvaluationReport, number: int) -> Siblings:
    scores = [model.sets[number] for model in report.models]
    losses = [score.loss for score in scores]
    pairs = list(permutations(report.models, 2))
    return Siblings(
        set_name=scores[0].set_name,
        documents=len(scores[0].document_ids),
        losses=[round(loss, 4) for loss in losses],
        standard_deviation=round(statistics.stdev(losses), 5),
        largest_difference=round(max(losses) - min(losses), 5),
        promoted={
            f"{margin:g}": sum(_is_promoted(report, pair, number, margin) for pair in pairs)
            / len(pairs)
            for margin in MARGINS
        },
    )


def _is_promoted(
    report: EvaluationReport, pair: tuple[ModelScore, ModelScore], number: int, margin: float
) -> bool:
    candidate, baseline = (
        model.model_copy(update={"sets": [model.sets[number]]}) for model in pair
    )
    models = [
        candidate.model_copy(update={"name": CANDIDATE}),
        baseline.model_copy(update={"name": BASELINE, "model_uri": f"/{_VERSION}"}),
    ]
    name = candidate.sets[0].set_name
    both = report.model_copy(update={"models": models, "current_set": name})
    verdict = judge(both, PromotionConfig(min_improvement=margin), baseline_version=_VERSION)
    return verdict.verdict is VerdictKind.PROMOTED
