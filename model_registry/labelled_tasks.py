"""The gate on labeled tasks: whether a candidate is worse at the tasks the model is used for.

A loss can fall while they get worse. See ``docs/operate/promotion.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from model_registry.best_scores import CANDIDATE, comparable_probe, total_half_width
from pipeline_config.task import MIN_JUDGED_EXAMPLES
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import (
    BestProbe,
    ModelComparison,
    ModelScore,
    PaidVerdict,
    ProbeReport,
    TotalLoss,
    VerdictKind,
)


def probed(
    probe: ProbeReport | None,
    candidate: ModelScore,
    config: PromotionConfig,
    baseline_version: str | None,
) -> list[ModelComparison]:
    """Return the comparisons on labeled tasks, after checking that they are the right ones."""
    wanted = config.probe_tasks
    if probe is None:
        if wanted:
            raise ValueError(
                f"promotion.probe_tasks names {', '.join(wanted)}, but there is no probe report: "
                "run the task `probe`."
            )
        return []
    if probe.candidate_sha256 != candidate.files_sha256:
        raise ValueError(
            f"The probe report is of the candidate {probe.candidate_sha256}, but the evaluation is "
            f"of {candidate.files_sha256}: probe again."
        )
    if probe.baseline_version != baseline_version:
        raise ValueError(
            f"The probe report compares with {probe.baseline_version}, but {baseline_version} was "
            "expected: probe again with the model in use."
        )
    # Without a model in production there are summaries and no comparisons.
    summaries = {summary.task for summary in probe.tasks if summary.model == CANDIDATE}
    compared = {comparison.task for comparison in probe.comparisons}
    found = summaries if baseline_version is None else compared
    if missing := sorted(set(wanted) - found):
        raise ValueError(
            f"The probe report has nothing on {', '.join(missing)}; it has {sorted(found)}. "
            "promotion.probe_tasks asks for all of them: probe again."
        )
    return [one for one in probe.comparisons if one.task in wanted]


def decide_downstream(
    probes: list[ModelComparison], config: PromotionConfig, better: str
) -> tuple[VerdictKind, str]:
    """Return the decision by labeled tasks on a candidate whose loss is better."""
    for probe in probes:
        if not math.isfinite(probe.difference):
            raise ValueError(f"The probe's difference on {probe.task} is {probe.difference}.")
        if _has_lost(probe, config.max_probe_loss):
            return VerdictKind.DOWNSTREAM, (
                f"{probe.sentence} That is more than promotion.max_probe_loss="
                f"{config.max_probe_loss:g} allows. {better}"
            )
    differences = ", ".join(
        f"{one.task} {one.difference:+z.4f}{_in_training_text(one)}" for one in probes
    )
    return VerdictKind.PROMOTED, f"{better} On labelled tasks: {differences}."


def probe_totals(
    probe: ProbeReport | None,
    probes: list[ModelComparison],
    best: Mapping[str, BestProbe],
    config: PromotionConfig,
) -> Iterator[TotalLoss]:
    """Yield comparisons with the lineage's best version on each task that has one.

    :param probes: as :func:`probed` returns them.
    """
    for one in probes:
        known = None if probe is None else comparable_probe(best.get(one.task), one, probe)
        if known is None:
            continue
        half = total_half_width(known, one)
        difference = one.model_mean - known.value
        yield TotalLoss(
            name=one.task,
            metric=one.metric,
            count=one.examples,
            best_version=known.version_id,
            best=known.value,
            candidate=one.model_mean,
            difference=difference,
            low=difference - half,
            high=difference + half,
            max_loss=config.max_total_probe_loss,
        )


def decide_probe_totals(totals: list[TotalLoss], better: str) -> tuple[VerdictKind, str]:
    """Return the decision by total losses on a candidate that passed against the baseline."""
    for one in totals:
        if one.is_too_much(MIN_JUDGED_EXAMPLES):
            return VerdictKind.DOWNSTREAM, (
                f"On {one.name} the {one.metric} of the candidate is {one.candidate:.4f} and that "
                f"of {one.best_version}, the lineage's best on it, {one.best:.4f}: "
                f"{one.difference:+z.4f} in all, within {one.low:+z.4f} to {one.high:+z.4f}, and "
                f"promotion.max_total_probe_loss={one.max_loss:g} allows less. {better}"
            )
    return VerdictKind.PROMOTED, better


def _has_lost(probe: ModelComparison, allowed: float) -> bool:
    """Return whether a candidate is worse by more than the allowed loss.

    On all test examples, or on those that are not in its training text: the others may hide it.
    """
    findings = probe.training_text
    # An interval over too few examples is no evidence; the verdict says so then.
    sides = [(probe.verdict if findings is None else findings.verdict, probe.high)]
    if findings is not None and findings.clean is not None:
        sides.append((findings.clean.verdict, findings.clean.high))
    return any(verdict is PaidVerdict.HURT and high < -allowed for verdict, high in sides)


def _in_training_text(probe: ModelComparison) -> str:
    findings = probe.training_text
    if findings is None or not findings.found:
        return ""
    return f" ({findings.found} of {probe.examples} test examples are in the training text)"
