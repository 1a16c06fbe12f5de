"""Did it pay? A fine-tuned model against another one, with a verdict and its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipeline_config.task import MIN_JUDGED_EXAMPLES, MetricName
from pipeline_store.formats import ModelComparison, PaidVerdict, TaskManifest, TaskSplit
from trained_models.downstream.intervals import Difference, difference
from trained_models.downstream.trials import FinishedTrial
from trained_models.errors import BadDataError


def compare(
    manifest: TaskManifest,
    model: Sequence[FinishedTrial],
    reference: Sequence[FinishedTrial],
    *,
    confidence: float = 0.95,
) -> ModelComparison:
    """Return how much better a model is than its reference on a task's test split.

    ``helped`` and ``hurt`` are said if the whole interval lies on one side of zero.

    :param model: its trials, one for each seed.
    :param reference: those of the other model, with the same seeds in the same order.
    :raises BadDataError: the two were not trained from the same seeds, or not tested on the same
        examples.
    """
    _require_same_seeds(manifest, model, reference)
    labels, outputs = _tested(manifest, model)
    other_labels, other_outputs = _tested(manifest, reference)
    if not np.array_equal(labels, other_labels):
        raise _other_examples(manifest, model[0], reference[0])
    found = difference(
        manifest.task_kind,
        cast(MetricName, manifest.compared_by),
        labels,
        outputs,
        other_outputs,
        confidence=confidence,
    )
    comparison = ModelComparison(
        task=manifest.name,
        reference=reference[0].result.trial.model,
        metric=manifest.compared_by,
        examples=len(labels),
        seeds=len(model),
        model_mean=found.model_mean,
        reference_mean=found.reference_mean,
        difference=found.mean,
        low=found.low,
        high=found.high,
        confidence=confidence,
        verdict=_verdict(found, len(labels)),
        sentence="",
    )
    return comparison.model_copy(update={"sentence": _sentence(comparison)})


def _require_same_seeds(
    manifest: TaskManifest, model: Sequence[FinishedTrial], reference: Sequence[FinishedTrial]
) -> None:
    seeds = [[one.result.trial.random_seed for one in side] for side in (model, reference)]
    if seeds[0] != seeds[1]:
        raise BadDataError(
            f"Task {manifest.name!r}: the models were trained from different seeds, {seeds[0]} and "
            f"{seeds[1]}, and cannot be compared pair by pair."
        )


def _tested(
    manifest: TaskManifest, trials: Sequence[FinishedTrial]
) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
    """Return the labels of the test examples, and what was put out for them by seed."""
    for one in trials:
        if TaskSplit.TEST not in one.result.scores:
            raise BadDataError(
                f"Task {manifest.name!r}: {one.result.trial.trial_id} has no test scores."
            )
    found = [one.predictions(TaskSplit.TEST) for one in trials]
    for one, (labels, _) in zip(trials, found, strict=True):
        if not np.array_equal(labels, found[0][0]):
            raise _other_examples(manifest, trials[0], one)
    return found[0][0], [outputs for _, outputs in found]


def _other_examples(
    manifest: TaskManifest, one: FinishedTrial, other: FinishedTrial
) -> BadDataError:
    return BadDataError(
        f"Task {manifest.name!r}: {other.result.trial.trial_id} was tested on other examples than "
        f"{one.result.trial.trial_id}."
    )


def _verdict(found: Difference, examples: int) -> PaidVerdict:
    if examples < MIN_JUDGED_EXAMPLES or found.low <= 0 <= found.high:
        return PaidVerdict.NO_EVIDENCE
    return PaidVerdict.HELPED if found.low > 0 else PaidVerdict.HURT


def _sentence(found: ModelComparison) -> str:
    return (
        f"On {found.task} the {found.metric} is {found.model_mean:.4f}, that of {found.reference} "
        f"{found.reference_mean:.4f} (mean of {found.seeds} seed{'s' if found.seeds > 1 else ''}, "
        f"{found.examples} test examples): a difference of {found.difference:+.4f} with a "
        f"{found.confidence:.0%} interval from {found.low:+.4f} to {found.high:+.4f}. "
        f"{_end(found)}"
    )


def _end(found: ModelComparison) -> str:
    caveat = " What another seed would change is not known from one." if found.seeds == 1 else ""
    if found.verdict is not PaidVerdict.NO_EVIDENCE:
        return f"It {found.verdict}.{caveat}"
    if found.examples < MIN_JUDGED_EXAMPLES:
        return f"No evidence: fewer than {MIN_JUDGED_EXAMPLES} test examples."
    half = (found.high - found.low) / 2
    return (
        "No evidence that it made a difference; one of less than "
        f"{half:.4f} would hardly be seen with so few examples and seeds.{caveat}"
    )
