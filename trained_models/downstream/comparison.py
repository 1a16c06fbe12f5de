"""Compares a fine-tuned model with a reference, with a verdict and its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pipeline_config.task import MIN_JUDGED_EXAMPLES, MetricName
from pipeline_store.formats import (
    CleanComparison,
    ModelComparison,
    PaidVerdict,
    TaskManifest,
    TaskSplit,
    TrainingTextFindings,
)
from trained_models.downstream.intervals import Difference, difference
from trained_models.downstream.sentences import sentence
from trained_models.downstream.training_text import InTrainingText
from trained_models.downstream.trials import FinishedTrial
from trained_models.errors import BadDataError


def compare(
    manifest: TaskManifest,
    model: Sequence[FinishedTrial],
    reference: Sequence[FinishedTrial],
    *,
    confidence: float = 0.95,
    in_training_text: InTrainingText | None = None,
) -> ModelComparison:
    """Return how much better a model is than its reference on a task's test split.

    The verdict is ``helped`` or ``hurt`` if the whole interval is on one side of zero; ``helped``
    only if this also holds without the examples that are in the training text.

    :param model: its trials, one for each seed.
    :param reference: trials of the other model, with the same seeds in the same order.
    :param in_training_text: test examples in the text that the models were trained on; None: there
        was no search for them.
    :raises BadDataError: the two were not trained from the same seeds, or not tested on the same
        examples.
    """
    _require_same_seeds(manifest, model, reference)
    labels, outputs = _tested(manifest, model)
    other_labels, other_outputs = _tested(manifest, reference)
    if not np.array_equal(labels, other_labels):
        raise _other_examples(manifest, model[0], reference[0])
    outcome = _Outcomes(manifest, labels, outputs, other_outputs, confidence)
    found = outcome.difference()
    findings = None
    if in_training_text is not None:
        findings = _findings(in_training_text, outcome, _verdict(found, len(labels)))
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
        verdict=_overall(_verdict(found, len(labels)), findings),
        sentence="",
        training_text=findings,
    )
    return comparison.model_copy(update={"sentence": sentence(comparison)})


class _Outcomes(NamedTuple):
    """The labels of N examples, [N] or [N, L], and the outputs of both models, by seed."""

    manifest: TaskManifest
    labels: npt.NDArray[Any]
    outputs: list[npt.NDArray[Any]]
    other_outputs: list[npt.NDArray[Any]]
    confidence: float

    def difference(self) -> Difference:
        """Return the difference between the models."""
        return difference(
            self.manifest.label_kind,
            cast(MetricName, self.manifest.compared_by),
            self.labels,
            self.outputs,
            self.other_outputs,
            confidence=self.confidence,
        )

    def of(self, rows: npt.NDArray[np.bool_]) -> _Outcomes:
        """Return the outcomes of some of the examples; ``rows`` are flags [N]."""
        return self._replace(
            labels=self.labels[rows],
            outputs=[one[rows] for one in self.outputs],
            other_outputs=[one[rows] for one in self.other_outputs],
        )


def _findings(
    known: InTrainingText, outcomes: _Outcomes, verdict: PaidVerdict
) -> TrainingTextFindings:
    is_clean = np.ones(len(outcomes.labels), bool)
    is_clean[sorted(known.exact | known.near)] = False
    others = int(is_clean.sum())
    clean = None
    if MIN_JUDGED_EXAMPLES <= others < len(is_clean):
        found = outcomes.of(is_clean).difference()
        clean = CleanComparison(
            model_mean=found.model_mean,
            reference_mean=found.reference_mean,
            difference=found.mean,
            low=found.low,
            high=found.high,
            verdict=_verdict(found, others),
        )
    return TrainingTextFindings(
        exact=len(known.exact),
        near=len(known.near),
        partitions=known.partitions,
        unknown=known.unknown,
        near_unknown=known.near_unknown,
        verdict=verdict,
        clean=clean,
    )


def _overall(verdict: PaidVerdict, findings: TrainingTextFindings | None) -> PaidVerdict:
    """Return the overall verdict: hurt if either verdict is, helped if both are."""
    if findings is None or not findings.found:
        return verdict
    clean = PaidVerdict.NO_EVIDENCE if findings.clean is None else findings.clean.verdict
    if PaidVerdict.HURT in (verdict, clean):
        return PaidVerdict.HURT
    return verdict if clean is PaidVerdict.HELPED else PaidVerdict.NO_EVIDENCE


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
    """Return the labels of the test examples, and the outputs for them by seed."""
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
