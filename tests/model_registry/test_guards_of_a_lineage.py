"""What the guards against forgetting find in a lineage of a hundred partitions, by some sets.

Models are made up: what they lose on each document is drawn.
"""

from __future__ import annotations

import numpy as np
import pytest

from model_registry.best_scores import with_evaluation
from model_registry.gate import judge
from model_registry.panel import scored_sets
from pipeline_config import PipelineConfig
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import BestScores, EvaluationReport, ModelScore, VerdictKind
from tests.model_registry.test_gate import NEW, VERSION, Documents

MOST = PipelineConfig().evaluation.max_sets
LIMITS = PromotionConfig()
PARTITIONS, CANDIDATES, SOUND = 100, 100, 30
GAIN = 0.1
"""Of each candidate on new text, in nats per token."""


def compared(
    sets: dict[str, Documents], shifts: dict[str, tuple[float, float]], new: str
) -> EvaluationReport:
    """Return a report on a candidate and the model in use.

    :param sets: those that are scored.
    :param shifts: of both on a set, nats per token above what it first lost.
    :param new: the run's own set.
    """
    shifts = {new: (-GAIN, 0.0)} | shifts
    models = [
        ModelScore(
            name=name,
            model_uri=f"s/{VERSION}",
            files_sha256="1" * 64,
            sets=[documents.score(shifts[one][number]) for one, documents in sets.items()],
        )
        for number, name in enumerate(("candidate", "baseline"))
    ]
    return EvaluationReport(
        partition=new,
        current_set=new,
        evaluated=dict.fromkeys(sets, "0" * 64),
        models=models,
        unigram_losses={},
    )


def found(share: float, lost: float, most: int) -> int:
    """Return how many candidates are rejected as they forget.

    :param share: of the partitions that are forgotten; others are for each candidate.
    :param lost: on each of these, in nats per token.
    :param most: sets that are scored.
    """
    rejected = 0
    for seed in range(CANDIDATES):
        names = [f"{seed}-day-{number}" for number in range(PARTITIONS)]
        chosen = np.random.default_rng(seed).permutation(PARTITIONS)[: round(share * PARTITIONS)]
        scored = scored_sets(dict.fromkeys([*names, NEW]), {NEW}, most)
        shifts = dict.fromkeys(names, (0.0, 0.0))
        shifts |= {names[number]: (lost, 0.0) for number in chosen}
        sets = {name: Documents(name, 50, seed=number) for number, name in enumerate(scored)}
        verdict = judge(compared(sets, shifts, NEW), LIMITS, baseline_version=VERSION)
        assert verdict.verdict in (VerdictKind.PROMOTED, VerdictKind.FORGETTING)
        rejected += verdict.verdict is VerdictKind.FORGETTING
    return rejected


@pytest.mark.parametrize(
    ("share", "lost", "least", "most"),
    [(0, 0, 0, 0), (1, 0.05, 0, 0), (1, 0.15, 100, 100), (0.25, 0.3, 85, 100), (0.1, 0.3, 50, 75)],
)
def test_what_is_forgotten_is_found_on_some_of_the_sets(
    share: float, lost: float, least: int, most: int
) -> None:
    count = found(share, lost, MOST)
    print(f"{lost} nats on {share:.0%} of the partitions: {count} of {CANDIDATES} rejected")
    assert least <= count <= most


def test_small_losses_do_not_add_up_in_a_lineage_that_has_grown() -> None:
    """After thirty sound updates each loses 0.085 nats on all old text; two of these come in."""
    best = BestScores(sets={})
    lost, promoted = 0.0, []
    before: dict[str, float] = {}
    documents: dict[str, Documents] = {}
    for update in range(42):
        new, loses = f"day-{update}", 0.085 if update >= SOUND else 0.0
        documents[new] = Documents(new, 50, seed=update)
        scored = scored_sets(documents, {new}, MOST)
        # What a set loses since it was learned, by a model that was better on it by then.
        since = {name: lost - then - GAIN for name, then in before.items()}
        shifts = {name: (found + loses, found) for name, found in since.items()}
        report = compared(scored, shifts, new)
        verdict = judge(report, LIMITS, baseline_version=VERSION, best=best)
        if verdict.verdict is not VerdictKind.PROMOTED:
            # It has not been seen by the model that stays in use.
            del documents[new]
            continue
        promoted.append(update)
        lost += loses
        before[new] = lost
        best = with_evaluation(best, report, f"v-{update}", VERSION)
        kept = scored_sets(best.sets, {*report.evaluated}, MOST)
        best = BestScores(sets=kept)
        assert len(kept) <= MOST
    assert promoted == [*range(SOUND + 2)]
