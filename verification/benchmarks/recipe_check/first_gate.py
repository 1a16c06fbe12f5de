"""Checks the first update of a published model: a worse candidate, but better than frequencies."""

from __future__ import annotations

from pathlib import Path

from model_registry import gate
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import EvaluationReport, Verdict, VerdictKind
from verification.benchmarks.recipe_check.finding import Figures, Finding
from verification.benchmarks.recipe_check.memorizing import LENGTH
from verification.benchmarks.recipes.drift import PARTITIONS
from verification.benchmarks.recipes.lineages import Lineages

NAME = "first-gate"
_SUBJECT = PARTITIONS[0]
_STEPS = LENGTH.first_steps * 3 // 4


def check(state_dir: Path) -> Finding:
    """Judge a model that is worse than the one it would replace, in two ways.

    It was trained for fewer steps: better than token frequencies, worse than the other model.
    Before, a lineage that began with a published model had no model in production in its first run,
    so such a candidate was compared with frequencies. Now the published model is its first version.

    :param state_dir: trained models stay there, and are not trained again.
    """
    lab = Lineages(state_dir, LENGTH)
    published = lab.first()
    shorter = {
        f"training.{name}": _STEPS
        for name in ("train_steps", "checkpoint_interval", "steps_per_loop")
    }
    candidate = lab.train("shorter", shorter, _SUBJECT, parent=None)
    report = named(lab.evaluate([candidate, published], [_SUBJECT]))
    promotion = PromotionConfig()
    first = gate.judge(report, promotion, baseline_version=None)
    now = gate.judge(report, promotion, baseline_version=published.rpartition("/")[2])
    return Finding(
        NAME,
        before=_figures(first),
        after=_figures(now),
        holds=first.verdict is VerdictKind.PROMOTED and now.verdict is VerdictKind.WORSE,
    )


def named(report: EvaluationReport) -> EvaluationReport:
    """Return the report with the gate's names for the two models, the candidate first."""
    names = ("candidate", "baseline")
    models = [
        model.model_copy(update={"name": name})
        for name, model in zip(names, report.models, strict=True)
    ]
    return report.model_copy(update={"models": models})


def _figures(verdict: Verdict) -> Figures:
    return {
        "verdict": str(verdict.verdict),
        "candidate": round(verdict.candidate_loss, 4),
        "reference": round(verdict.reference_loss, 4),
    }
