"""The gate on labelled tasks: what they reject, what they leave alone, what it will not read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from model_registry.best_scores import with_evaluation
from model_registry.gate import judge
from pipeline_config.task import MIN_JUDGED_EXAMPLES
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import (
    BestProbe,
    BestScores,
    CleanComparison,
    EvaluationReport,
    MetricSummary,
    ModelComparison,
    PaidVerdict,
    ProbeReport,
    TaskSummary,
    TrainingTextFindings,
    Verdict,
    VerdictKind,
)
from tests.model_registry.test_gate import NEW, VERSION, Documents, report

CANDIDATE = "1" * 64


def comparison(
    task: str, difference: float, half: float = 0.02, examples: int = 500
) -> ModelComparison:
    verdict = PaidVerdict.NO_EVIDENCE
    if examples >= MIN_JUDGED_EXAMPLES and abs(difference) > half:
        verdict = PaidVerdict.HELPED if difference > 0 else PaidVerdict.HURT
    return ModelComparison(
        task=task,
        reference="baseline",
        metric="accuracy",
        examples=examples,
        seeds=5,
        model_mean=0.8 + difference,
        reference_mean=0.8,
        difference=difference,
        low=difference - half,
        high=difference + half,
        confidence=0.95,
        verdict=verdict,
        sentence=f"On {task} the candidate differs by {difference:+.4f}.",
    )


def summary(task: str) -> TaskSummary:
    return TaskSummary(
        task=task,
        model="candidate",
        learning_rate=3e-3,
        random_seeds=[1],
        best_trial=f"{task}.candidate.0.003.1",
        metrics={"accuracy": MetricSummary(mean=0.8, deviation=0.0, values=[0.8])},
        validation={},
        majority={"accuracy": 0.5},
    )


def probe(*comparisons: ModelComparison, **changes: Any) -> ProbeReport:
    fields: dict[str, Any] = {
        "candidate_uri": "runs/k/training",
        "candidate_sha256": CANDIDATE,
        "baseline_version": VERSION,
        "mode": "frozen",
        "manifests": {},
        "tasks": [summary(one.task) for one in comparisons],
        "comparisons": list(comparisons),
        "created": datetime(2026, 1, 31, tzinfo=UTC),
    }
    return ProbeReport(**fields | changes)


def evaluation(shift: float = -0.2) -> EvaluationReport:
    documents = Documents(NEW)
    return report([documents.score(shift)], [documents.score(0, 0)])


def verdict(
    probed: ProbeReport | None, tasks: list[str], shift: float = -0.2, **limits: Any
) -> Verdict:
    config = PromotionConfig(probe_tasks=tasks, **limits)
    return judge(evaluation(shift), config, baseline_version=VERSION, probe=probed)


def test_a_candidate_that_loses_a_task_is_rejected_though_its_loss_is_better() -> None:
    lost = comparison("moods", -0.1)
    found = verdict(probe(comparison("things", 0.05), lost), ["things", "moods"])
    assert found.verdict is VerdictKind.DOWNSTREAM
    assert found.reason.startswith(lost.sentence)
    assert "promotion.max_probe_loss=0.01" in found.reason
    # What the loss said is still there, with its numbers.
    assert "held-out documents" in found.reason
    assert found.improvement == pytest.approx(0.2, abs=0.01)
    assert [one.task for one in found.probes] == ["things", "moods"]


@pytest.mark.parametrize(
    ("difference", "half", "limits"),
    [
        (0.05, 0.02, {}),
        (0.0, 0.02, {}),
        # Worse, but not for certain by more than is allowed.
        (-0.025, 0.02, {}),
        (-0.1, 0.2, {}),
        (-0.1, 0.02, {"max_probe_loss": 0.09}),
        # For certain as much as is allowed, and not more.
        (-0.375, 0.125, {"max_probe_loss": 0.25}),
    ],
)
def test_little_or_unclear_loss_on_a_task_is_accepted(
    difference: float, half: float, limits: dict[str, Any]
) -> None:
    found = verdict(probe(comparison("things", difference, half)), ["things"], **limits)
    assert found.verdict is VerdictKind.PROMOTED
    assert f"On labelled tasks: things {difference:+.4f}." in found.reason


def with_copies(
    probed: ModelComparison, clean: ModelComparison, found: int = 40
) -> ModelComparison:
    """Return a comparison of whose test examples some lie in the training text.

    :param clean: that on the others.
    """
    numbers = clean.model_dump(include={*CleanComparison.model_fields})
    findings = TrainingTextFindings(
        exact=found,
        near=0,
        partitions=["day-1"],
        unknown=[],
        near_unknown=[],
        verdict=probed.verdict,
        clean=CleanComparison(**numbers),
    )
    return probed.model_copy(update={"training_text": findings, "verdict": clean.verdict})


def test_copies_of_test_examples_in_the_training_text_are_counted() -> None:
    probed = with_copies(comparison("things", 0.1), comparison("things", 0.0))
    found = verdict(probe(probed), ["things"])
    assert found.verdict is VerdictKind.PROMOTED
    said = "things +0.1000 (40 of 500 test examples are in the training text)."
    assert found.reason.endswith(said)
    assert Verdict.parse(found.to_bytes(), "").probes == [probed]


@pytest.mark.parametrize(
    ("clean", "kind"),
    [(-0.1, VerdictKind.DOWNSTREAM), (-0.025, VerdictKind.PROMOTED)],
)
def test_copies_do_not_hide_what_a_candidate_loses(clean: float, kind: VerdictKind) -> None:
    probed = with_copies(comparison("things", 0.0), comparison("things", clean))
    assert verdict(probe(probed), ["things"]).verdict is kind


def test_a_handful_of_examples_rejects_nobody() -> None:
    found = verdict(probe(comparison("things", -0.3, examples=MIN_JUDGED_EXAMPLES - 1)), ["things"])
    assert found.verdict is VerdictKind.PROMOTED
    lost = verdict(probe(comparison("things", -0.3, examples=MIN_JUDGED_EXAMPLES)), ["things"])
    assert lost.verdict is VerdictKind.DOWNSTREAM


def task_updates(**limits: Any) -> list[Verdict]:
    """Return the verdicts on twelve updates that would each lose 0.02 of an accuracy again.

    A rejected one leaves the model in use as it is.
    """
    config = PromotionConfig(probe_tasks=["things"], **limits)
    best, kept, found = BestScores(sets={}), 0.8, []
    for update in range(1, 13):
        values = {"model_mean": kept - 0.02, "reference_mean": kept}
        one = comparison("things", -0.02, half=0.015).model_copy(update=values)
        probed = probe(one, manifests={"things": "3" * 64})
        scores = evaluation()
        found.append(judge(scores, config, baseline_version=VERSION, probe=probed, best=best))
        if found[-1].verdict is VerdictKind.PROMOTED:
            kept -= 0.02
            best = with_evaluation(best, scores, f"v-{update}", VERSION, probed)
    return found


def test_small_losses_on_a_task_do_not_add_up() -> None:
    found = task_updates()
    # 0.06 less is sure to within 0.026, 0.04 to within 0.021: half of the latter may be chance.
    assert [one.verdict for one in found] == [VerdictKind.PROMOTED] * 2 + [
        VerdictKind.DOWNSTREAM
    ] * 10
    assert "promotion.max_total_probe_loss=0.02" in found[2].reason
    (total,) = found[2].probe_totals
    assert (total.name, total.metric, total.best_version) == ("things", "accuracy", VERSION)
    assert (total.best, total.candidate) == (0.8, pytest.approx(0.74))
    assert total.high == pytest.approx(-0.06 + 0.015 * 3**0.5)
    assert Verdict.parse(found[2].to_bytes(), "") == found[2]
    unlimited = task_updates(max_total_probe_loss=1.0)
    assert {one.verdict for one in unlimited} == {VerdictKind.PROMOTED}


def test_a_task_that_was_measured_in_another_way_begins_again() -> None:
    known = BestProbe(
        version_id="v-1",
        manifest_sha256="3" * 64,
        mode="frozen",
        metric="accuracy",
        value=0.95,
        half_width=0.0,
    )
    probed = probe(comparison("things", 0.0), manifests={"things": "3" * 64})
    config = PromotionConfig(probe_tasks=["things"])

    def judged(known: BestProbe, probed: ProbeReport) -> VerdictKind:
        best = BestScores(sets={}, probes={"things": known})
        return judge(
            evaluation(), config, baseline_version=VERSION, probe=probed, best=best
        ).verdict

    assert judged(known, probed) is VerdictKind.DOWNSTREAM
    for change in ({"mode": "full"}, {"metric": "f1"}, {"manifest_sha256": "4" * 64}):
        assert judged(known.model_copy(update=change), probed) is VerdictKind.PROMOTED
    few = probe(
        comparison("things", 0.0, examples=MIN_JUDGED_EXAMPLES - 1), manifests={"things": "3" * 64}
    )
    assert judged(known, few) is VerdictKind.PROMOTED


def test_the_best_value_on_a_task_is_kept_with_what_is_unsure_since() -> None:
    first = comparison("things", -0.02, half=0.03)
    second = comparison("things", 0.3)
    best = BestScores(sets={})
    values = []
    for number, one in enumerate((first, first, second)):
        probed = probe(one, manifests={"things": "3" * 64})
        best = with_evaluation(best, evaluation(), f"v-{number}", VERSION, probed)
        values.append((best.probes["things"].version_id, best.probes["things"].half_width))
    assert values == [
        (VERSION, pytest.approx(0.03)),
        (VERSION, pytest.approx(0.03 * 2**0.5)),
        ("v-2", 0.0),
    ]
    assert with_evaluation(best, evaluation(), "v-9", VERSION).probes == best.probes


def test_a_task_does_not_make_up_for_the_loss() -> None:
    found = verdict(probe(comparison("things", 0.2)), ["things"], shift=0.2)
    assert found.verdict is VerdictKind.WORSE
    assert len(found.probes) == 1


def test_without_tasks_nothing_is_asked_for() -> None:
    found = verdict(None, [])
    assert (found.verdict, found.probes) == (VerdictKind.PROMOTED, [])


def test_the_first_model_is_never_rejected_by_its_tasks() -> None:
    documents = Documents(NEW, level=6.0)
    recorded = probe(baseline_version=None, tasks=[summary("things")])
    found = judge(
        report([documents.score()], unigram={NEW: 6.5}),
        PromotionConfig(probe_tasks=["things"]),
        baseline_version=None,
        probe=recorded,
    )
    assert (found.verdict, found.probes) == (VerdictKind.PROMOTED, [])


def test_a_verdict_with_probes_is_stored_and_an_old_one_is_read() -> None:
    found = verdict(probe(comparison("things", -0.1)), ["things"])
    assert Verdict.parse(found.to_bytes(), "") == found
    old = found.model_dump(mode="json", exclude={"probes"})
    assert Verdict.model_validate(old).probes == []


REFUSED = {
    "none": (None, r"names things, but there is no probe report"),
    "another candidate": (
        probe(comparison("things", 0.0), candidate_sha256="2" * 64),
        "is of the candidate 2222",
    ),
    "another baseline": (
        probe(comparison("things", 0.0), baseline_version="v-ffffffffffff"),
        f"compares with v-ffffffffffff, but {VERSION} was expected",
    ),
    "another task": (probe(comparison("moods", 0.0)), r"nothing on things; it has \['moods'\]"),
    "not finite": (probe(comparison("things", float("nan"))), "difference on things is nan"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_probe_that_is_about_something_else_is_an_error(case: str) -> None:
    probed, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        verdict(probed, ["things"])
