"""Checks that small losses of old knowledge do not add up over many updates of a lineage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model_registry.best_scores import BASELINE, CANDIDATE, with_evaluation
from model_registry.gate import judge
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import (
    BestScore,
    BestScores,
    DocumentSetScore,
    EvaluationReport,
    ModelScore,
    VerdictKind,
)
from verification.benchmarks.recipe_check.finding import Figures, Finding

NAME = "ratchet"
UPDATES = 12
LOST = 0.085
"""Nats per token that an update loses on old text: less than ``promotion.max_forgetting``."""
GAINED = 0.1
_OLD = "general"
_NO_LIMIT = 1000.0
_SHA256 = "0" * 64


@dataclass(frozen=True)
class _Documents:
    """A held-out set: the loss of the lineage's first model on each of 100 documents."""

    name: str
    seed: int

    def score(self, shift: float, noise: np.random.Generator) -> DocumentSetScore:
        """Return the score of a model whose mean loss is ``shift`` nats per token higher."""
        random = np.random.default_rng(self.seed)
        tokens = np.round(random.lognormal(3, 0.7, 100)) + 1
        losses = tokens * (6 + random.normal(0, 0.5, 100) + shift + noise.normal(0, 0.02, 100))
        return DocumentSetScore(
            set_name=self.name,
            document_ids=[f"{number:016x}" for number in range(100)],
            loss_sums=losses.tolist(),
            correct_sums=(tokens / 3).tolist(),
            reciprocal_rank_sums=(tokens / 2).tolist(),
            token_counts=tokens.tolist(),
        )


def check(state_dir: Path) -> Finding:
    """Judge twelve updates with and without the limit on the total that is forgotten.

    Each is better on its own text and loses 0.085 nats on old text. The scores are drawn; the gate
    and the lineage's best scores are those of the product.

    :param state_dir: not used: nothing is trained.
    """
    limits = PromotionConfig()
    unlimited = limits.model_copy(update={"max_total_forgetting": _NO_LIMIT})
    before, after = _update(unlimited), _update(limits)
    return Finding(
        NAME,
        before=before,
        after=after,
        holds=before["promoted"] == UPDATES and after["lost"] <= limits.max_total_forgetting,
    )


def _update(limits: PromotionConfig) -> Figures:
    old, noise = _Documents(_OLD, seed=0), np.random.default_rng(0)
    first = BestScore(version_id=_version(0), manifest_sha256=_SHA256, scores=old.score(0, noise))
    best, lost, promoted = BestScores(sets={_OLD: first}), 0.0, 0
    for update in range(1, UPDATES + 1):
        report = _report(update, old, lost, noise)
        verdict = judge(report, limits, baseline_version=_version(update), best=best)
        if verdict.verdict is VerdictKind.PROMOTED:
            promoted += 1
            lost += LOST
            best = with_evaluation(best, report, _version(update + 1), _version(update))
    return {"promoted": promoted, "lost": round(lost, 4)}


def _report(
    update: int, old: _Documents, lost: float, noise: np.random.Generator
) -> EvaluationReport:
    new = _Documents(f"day-{update}", seed=update)
    sets = {
        CANDIDATE: [new.score(-GAINED, noise), old.score(lost + LOST, noise)],
        BASELINE: [new.score(0, noise), old.score(lost, noise)],
    }
    return EvaluationReport(
        partition=new.name,
        current_set=new.name,
        evaluated={new.name: _SHA256, old.name: _SHA256},
        models=[
            ModelScore(
                name=name,
                model_uri=f"versions/{_version(update)}",
                files_sha256=_SHA256,
                sets=scores,
            )
            for name, scores in sets.items()
        ],
        unigram_losses={},
    )


def _version(update: int) -> str:
    return f"v-{update:012d}"
