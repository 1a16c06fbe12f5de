"""Checks that the gate stops an update that lowers the loss but ruins the embeddings."""

from __future__ import annotations

from pathlib import Path

from model_registry import gate
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import Verdict, VerdictKind
from verification.benchmarks.recipe_check.finding import Figures, Finding
from verification.benchmarks.recipe_check.first_gate import named
from verification.benchmarks.recipe_check.memorizing import LENGTH
from verification.benchmarks.recipes.drift import PARTITIONS
from verification.benchmarks.recipes.lineages import Lineages

NAME = "retrieval-collapse"
RATE = 0.02
"""Learning rate: ten times that of the model that is updated."""
# The last partition: its text is furthest from what the model knows.
_SUBJECT = PARTITIONS[-1]


def check(state_dir: Path) -> Finding:
    """Judge an update at far too high a rate, with and without retrieval.

    Its encoder no longer tells texts apart. But its head has learned the token frequencies of the
    new text, and for a model that did not know this text, that gain is larger than the loss.

    :param state_dir: trained models stay there, and are not trained again.
    """
    lab = Lineages(state_dir, LENGTH)
    published = lab.first()
    update = lab.train("collapsed", {"optimizer.learning_rate": RATE}, _SUBJECT, parent=published)
    report = named(lab.evaluate([update, published], [_SUBJECT]))
    promotion = PromotionConfig()
    before, after = (
        gate.judge(
            report,
            limits,
            baseline_version=published.rpartition("/")[2],
            from_sentence_encoder=True,
        )
        for limits in (promotion.model_copy(update={"max_retrieval_loss": None}), promotion)
    )
    return Finding(
        NAME,
        before=_figures(before),
        after=_figures(after),
        holds=before.verdict is VerdictKind.PROMOTED and after.verdict is VerdictKind.RETRIEVAL,
    )


def _figures(verdict: Verdict) -> Figures:
    figures: Figures = {
        "verdict": str(verdict.verdict),
        "loss": [round(verdict.reference_loss, 4), round(verdict.candidate_loss, 4)],
    }
    if (found := verdict.retrieval) is not None:
        recalls = [round(found.reference_recall, 4), round(found.candidate_recall, 4)]
        figures |= {"recall_at_1": recalls, "documents": found.documents}
    return figures
