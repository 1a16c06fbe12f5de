"""The gate: every verdict, its limits, and what it does with noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.bootstrap import _tail
from model_registry.gate import judge
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import (
    BestScore,
    BestScores,
    DocumentSetScore,
    EvaluationReport,
    ExtraRowScores,
    ModelScore,
    Verdict,
    VerdictKind,
)

CONFIG = PromotionConfig()
VERSION = "v-0123456789ab"
NEW, OLD = "2026-01-02", "2026-01-01"


class Documents:
    """One held-out set: token counts and what a reference model loses on each document."""

    def __init__(self, name: str, count: int = 100, seed: int = 0, level: float = 6.0) -> None:
        self.name, self.count = name, count
        self.random = np.random.default_rng(seed)
        self.tokens = np.round(self.random.lognormal(3, 0.7, count)) + 1
        self.losses = self.tokens * (level + self.random.normal(0, 0.5, count))

    def score(self, shift: float = 0.0, noise: float = 0.02) -> DocumentSetScore:
        """Return the score of a model whose loss is ``shift`` above the reference's."""
        random = self.random.normal(0, noise, self.count) if noise else 0.0
        losses = self.losses + self.tokens * (shift + random)
        return DocumentSetScore(
            set_name=self.name,
            document_ids=[f"{number:016x}" for number in range(self.count)],
            loss_sums=losses.tolist(),
            correct_sums=(self.tokens / 3).tolist(),
            reciprocal_rank_sums=(self.tokens / 2).tolist(),
            token_counts=self.tokens.tolist(),
        )


def report(
    candidate: list[DocumentSetScore],
    baseline: list[DocumentSetScore] | None = None,
    unigram: dict[str, float] | None = None,
) -> EvaluationReport:
    uri, sha256 = "/store/runs/k/training", "1" * 64
    models = [ModelScore(name="candidate", model_uri=uri, files_sha256=sha256, sets=candidate)]
    if baseline is not None:
        uri = f"/store/lineages/l/versions/{VERSION}"
        models.append(
            ModelScore(name="baseline", model_uri=uri, files_sha256=sha256, sets=baseline)
        )
    return EvaluationReport(
        partition=NEW,
        current_set=NEW,
        evaluated={score.set_name: "0" * 64 for score in candidate},
        models=models,
        unigram_losses=unigram or {NEW: 6.5},
    )


def compare(shift: float, *, count: int = 100, noise: float = 0.02, **limits: Any) -> Verdict:
    documents = Documents(NEW, count)
    return judge(
        report([documents.score(shift, noise)], [documents.score(0, 0)]),
        PromotionConfig(**limits),
        baseline_version=VERSION,
    )


def test_a_better_candidate_is_promoted() -> None:
    verdict = compare(-0.2)
    assert verdict.verdict is VerdictKind.PROMOTED
    assert verdict.improvement == pytest.approx(0.2, abs=0.01)
    assert verdict.improvement_low < verdict.improvement < verdict.improvement_high
    assert verdict.reference == VERSION
    assert verdict.documents == 100
    assert verdict.candidate_loss == pytest.approx(verdict.reference_loss - verdict.improvement)


def test_a_worse_candidate_is_rejected() -> None:
    verdict = compare(0.2)
    assert verdict.verdict is VerdictKind.WORSE
    assert verdict.improvement_high < 0


def test_an_unclear_difference_is_not_enough() -> None:
    verdict = compare(-0.001, noise=0.5)
    assert verdict.verdict is VerdictKind.NOT_ENOUGH_EVIDENCE
    assert verdict.improvement_low < 0 < verdict.improvement_high


def test_a_small_improvement_is_not_enough_however_sure() -> None:
    verdict = compare(-0.9 * CONFIG.min_improvement, noise=0.0)
    assert verdict.verdict is VerdictKind.NOT_ENOUGH_EVIDENCE
    assert f"not entirely above the required {CONFIG.min_improvement:.4f}" in verdict.reason
    assert compare(-1.1 * CONFIG.min_improvement, noise=0.0).verdict is VerdictKind.PROMOTED


def test_the_same_model_is_not_enough() -> None:
    verdict = compare(0.0, noise=0.0)
    assert verdict.verdict is VerdictKind.NOT_ENOUGH_EVIDENCE
    assert verdict.improvement == verdict.improvement_low == verdict.improvement_high == 0


def test_too_few_documents_are_not_enough() -> None:
    assert compare(-1.0, count=20).verdict is VerdictKind.PROMOTED
    verdict = compare(-1.0, count=19)
    assert verdict.verdict is VerdictKind.NOT_ENOUGH_EVIDENCE
    assert "19 held-out documents" in verdict.reason
    assert "min_documents asks for 20" in verdict.reason


def test_documents_without_masked_tokens_do_not_count() -> None:
    documents = Documents(NEW, 25)
    documents.tokens[:10] = documents.losses[:10] = 0
    verdict = judge(
        report([documents.score(-1.0)], [documents.score(0, 0)]), CONFIG, baseline_version=VERSION
    )
    assert verdict.verdict is VerdictKind.NOT_ENOUGH_EVIDENCE
    assert verdict.documents == 15


def in_units(count: int, shifts: list[float], **limits: Any) -> Verdict:
    """Return the verdict on documents in as many units, each shifted as a whole."""
    documents = Documents(NEW, count)
    documents.tokens[:] = 100.0
    units = np.arange(count) % len(shifts)
    candidate, baseline = documents.score(0, 0), documents.score(0, 0)
    losses = np.array(candidate.loss_sums) + 100.0 * np.array(shifts)[units]
    changed = {"loss_sums": losses.tolist(), "units": (3 * units).tolist()}
    scores = report([candidate.model_copy(update=changed)], [baseline])
    return judge(scores, PromotionConfig(**limits), baseline_version=VERSION)


def test_units_of_the_split_are_drawn_as_a_whole() -> None:
    shifts = [-0.3, 0.1] * 6
    verdict = in_units(1200, shifts)
    assert verdict.verdict is VerdictKind.NOT_ENOUGH_EVIDENCE
    assert "1200 held-out documents of 2026-01-02 (12 files or groups held out as" in verdict.reason
    # By document it would have been sure: the standard error is 0.2 / sqrt(1200).
    error = 0.2 / math.sqrt(12)
    assert verdict.improvement == pytest.approx(0.1)
    assert verdict.improvement_high - verdict.improvement_low == pytest.approx(4.4 * error, rel=0.2)
    assert in_units(1200, [-0.3, -0.1] * 6).verdict is VerdictKind.PROMOTED


def test_few_units_have_students_interval() -> None:
    shifts = [-0.20, -0.24, -0.28]
    verdict = in_units(30, shifts)
    # The quantile for two degrees of freedom, from a table.
    margin = 4.3027 * np.std(shifts, ddof=1) / math.sqrt(3)
    assert verdict.improvement_low == pytest.approx(0.24 - margin, rel=1e-4)
    assert verdict.improvement_high == pytest.approx(0.24 + margin, rel=1e-4)
    assert verdict.verdict is VerdictKind.PROMOTED
    assert in_units(30, [-0.2, -0.7]).verdict is VerdictKind.NOT_ENOUGH_EVIDENCE


def test_nine_units_are_few() -> None:
    shifts = [-0.20 - 0.01 * unit for unit in range(9)]
    verdict = in_units(90, shifts)
    # The quantile for eight degrees of freedom, from a table.
    margin = 2.3060 * np.std(shifts, ddof=1) / math.sqrt(9)
    assert verdict.improvement_low == pytest.approx(0.24 - margin, rel=1e-4)


@pytest.mark.parametrize(
    ("unigram", "expected"),
    [
        (6.5, VerdictKind.PROMOTED),
        (5.0, VerdictKind.WORSE),
        (None, VerdictKind.NOT_ENOUGH_EVIDENCE),
    ],
)
def test_under_a_new_head_token_frequencies_are_to_be_beaten_too(
    unigram: float | None, expected: VerdictKind
) -> None:
    documents = Documents(NEW)
    candidate, baseline = documents.score(-0.3), documents.score(0, 0)
    own = sum(candidate.loss_sums) / sum(candidate.token_counts)
    scores = report([candidate], [baseline], {NEW: own if unigram is None else unigram})
    under_head = f"/store/runs/k/head/{VERSION}"
    scores.models[1] = scores.models[1].model_copy(update={"model_uri": under_head})
    verdict = judge(scores, PromotionConfig(), baseline_version=VERSION)
    assert verdict.verdict is expected
    if expected is not VerdictKind.PROMOTED:
        assert "better than token frequencies" in verdict.reason
        # Where the model had its own head, it is what counts.
        scores.models[1] = scores.models[1].model_copy(update={"model_uri": f"/v/{VERSION}"})
        assert judge(scores, PromotionConfig(), baseline_version=VERSION).verdict is (
            VerdictKind.PROMOTED
        )


def test_one_unit_is_no_evidence() -> None:
    verdict = in_units(30, [-0.2])
    assert verdict.verdict is VerdictKind.NOT_ENOUGH_EVIDENCE
    assert "All 30 held-out documents of 2026-01-02 are of one file or group" in verdict.reason


def in_two_lengths(main: float, longer: float, old: float = 0.0, **limits: Any) -> Verdict:
    """Return the verdict on a candidate whose losses are shifted by so much in rows of a length."""
    sets = [Documents(NEW), Documents(OLD, seed=1)]
    shifts = [(main, longer), (0.0, old)]
    candidate = [
        with_extra(documents.score(one, 0), documents.score(two, 0))
        for documents, (one, two) in zip(sets, shifts, strict=True)
    ]
    baseline = [with_extra(*[documents.score(0, 0)] * 2) for documents in sets]
    known = BestScore(version_id="v-1", manifest_sha256="0" * 64, scores=baseline[1])
    return judge(
        report(candidate, baseline),
        PromotionConfig(**limits),
        baseline_version=VERSION,
        best=BestScores(sets={OLD: known}),
    )


def with_extra(scores: DocumentSetScore, extra: DocumentSetScore) -> DocumentSetScore:
    """Return scores with those of other ones as the scores of longer rows."""
    names = ("loss_sums", "correct_sums", "reciprocal_rank_sums", "token_counts")
    sums = {name: getattr(extra, name) for name in names}
    return scores.model_copy(update={"extra": ExtraRowScores(max_seq_length=512, **sums)})


def test_rows_of_both_lengths_are_judged_together() -> None:
    verdict = in_two_lengths(-0.2, -0.1)
    assert verdict.verdict is VerdictKind.PROMOTED
    assert verdict.improvement == pytest.approx(0.15)
    assert verdict.candidate_loss == pytest.approx(verdict.reference_loss - 0.15)
    assert in_two_lengths(-0.2, 0.3).verdict is VerdictKind.WORSE


def test_neither_length_may_lose_on_the_own_set() -> None:
    verdict = in_two_lengths(-0.5, 0.2)
    assert verdict.verdict is VerdictKind.FORGETTING
    assert "held-out documents of 2026-01-02 in rows of 512 the candidate's" in verdict.reason
    verdict = in_two_lengths(0.2, -0.5)
    assert verdict.verdict is VerdictKind.FORGETTING
    assert "in rows of the main length" in verdict.reason
    assert in_two_lengths(-0.5, 0.05).verdict is VerdictKind.PROMOTED


def test_what_is_forgotten_in_longer_rows_counts() -> None:
    # Half of it, as the main length has lost nothing.
    verdict = in_two_lengths(-0.2, -0.2, old=0.3)
    assert verdict.verdict is VerdictKind.FORGETTING
    assert verdict.forgetting[0].forgotten == pytest.approx(0.15)
    assert in_two_lengths(-0.2, -0.2, old=0.15).verdict is VerdictKind.PROMOTED
    verdict = in_two_lengths(-0.2, -0.2, old=0.5, max_forgetting=1.0)
    assert "nats per token are forgotten in all" in verdict.reason


def test_a_length_that_only_one_model_has_is_not_judged() -> None:
    documents = Documents(NEW)
    candidate = with_extra(documents.score(-0.2, 0), documents.score(5.0, 0))
    baseline = documents.score(0, 0)
    longer = with_extra(baseline, baseline).extra
    assert longer is not None
    shorter = longer.model_copy(update={"max_seq_length": 256})
    for other in (baseline, baseline.model_copy(update={"extra": shorter})):
        verdict = judge(report([candidate], [other]), CONFIG, baseline_version=VERSION)
        assert verdict.verdict is VerdictKind.PROMOTED
        assert verdict.improvement == pytest.approx(0.2)
    first = judge(report([candidate]), CONFIG, baseline_version=None)
    assert first.candidate_loss == pytest.approx(candidate.loss)


@pytest.mark.parametrize("units", [2, 10])
def test_a_guard_goes_by_documents_where_units_are_few(units: int) -> None:
    new, old = Documents(NEW), Documents(OLD, 100)
    numbers = np.arange(100) % units
    worse = old.score(0, 0)
    # Half of the units have lost a lot, the others nothing.
    losses = np.array(worse.loss_sums) + old.tokens * 0.4 * (numbers % 2)
    worse = worse.model_copy(update={"loss_sums": losses.tolist(), "units": numbers.tolist()})
    scores = report([new.score(-0.2), worse], [new.score(0, 0), old.score(0, 0)])
    verdict = judge(scores, PromotionConfig(max_forgetting=0.1), baseline_version=VERSION)
    # The mean is 0.2; ten units leave it open whether more than 0.1 is lost, documents do not.
    expected = VerdictKind.FORGETTING if units == 2 else VerdictKind.PROMOTED
    assert verdict.verdict is expected
    known = BestScore(version_id="v-1", manifest_sha256="0" * 64, scores=old.score(0, 0))
    best = BestScores(sets={OLD: known})
    limits = PromotionConfig(max_forgetting=1.0, max_total_forgetting=0.1)
    verdict = judge(scores, limits, baseline_version=VERSION, best=best)
    assert verdict.verdict is expected


@pytest.mark.parametrize(
    ("shift", "kind"),
    [
        (-0.2, VerdictKind.PROMOTED),
        (-0.1, VerdictKind.NOT_ENOUGH_EVIDENCE),
        # For sure too little, but not worse.
        (-0.05, VerdictKind.NOT_ENOUGH_EVIDENCE),
        (0.05, VerdictKind.WORSE),
    ],
)
def test_the_improvement_that_is_asked_for(shift: float, kind: VerdictKind) -> None:
    assert compare(shift, min_improvement=0.1).verdict is kind


def forgetting(rise: float, noise: float = 0.02, **limits: Any) -> Verdict:
    new, old = Documents(NEW), Documents(OLD, seed=5)
    return judge(
        report([new.score(-0.3), old.score(rise, noise)], [old.score(0, 0), new.score(0, 0)]),
        PromotionConfig(**limits),
        baseline_version=VERSION,
    )


def test_forgetting_is_rejected() -> None:
    verdict = forgetting(0.2)
    assert verdict.verdict is VerdictKind.FORGETTING
    assert OLD in verdict.reason
    assert "promotion.max_forgetting=0.1" in verdict.reason
    # The numbers are still those of the run's own documents.
    assert verdict.improvement == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(
    ("rise", "noise", "limits"),
    [
        (0.05, 0.02, {}),
        (0.2, 0.02, {"max_forgetting": 0.3}),
        (-0.2, 0.02, {}),
        # More on average, but not for certain.
        (0.12, 1.0, {}),
    ],
)
def test_little_or_unclear_forgetting_is_accepted(
    rise: float, noise: float, limits: dict[str, Any]
) -> None:
    assert forgetting(rise, noise, **limits).verdict is VerdictKind.PROMOTED


def test_a_worse_candidate_is_worse_even_if_it_forgets() -> None:
    new, old = Documents(NEW), Documents(OLD)
    verdict = judge(
        report([new.score(1), old.score(1)], [new.score(0, 0), old.score(0, 0)]),
        CONFIG,
        baseline_version=VERSION,
    )
    assert verdict.verdict is VerdictKind.WORSE


def first(level: float, count: int = 100) -> Verdict:
    documents = Documents(NEW, count, level=level)
    return judge(
        report([documents.score()], unigram={NEW: 6.5}),
        PromotionConfig(min_improvement=5.0),
        baseline_version=None,
    )


def test_the_first_model_has_to_beat_the_unigram_loss() -> None:
    verdict = first(6.0)
    assert verdict.verdict is VerdictKind.PROMOTED
    assert (verdict.reference, verdict.reference_loss) == ("unigram", pytest.approx(6.5))
    assert verdict.improvement == pytest.approx(0.5, abs=0.2)
    assert first(7.0).verdict is VerdictKind.WORSE
    assert first(6.5).verdict is VerdictKind.NOT_ENOUGH_EVIDENCE
    assert first(6.0, count=10).verdict is VerdictKind.NOT_ENOUGH_EVIDENCE


def test_reasons_have_the_numbers() -> None:
    verdict = compare(-0.2)
    for number in (verdict.candidate_loss, verdict.reference_loss, verdict.improvement_low):
        assert f"{number:.4f}" in verdict.reason
    assert "100 held-out documents" in verdict.reason
    assert "95% interval" in verdict.reason
    assert VERSION in verdict.reason
    assert "\n" not in verdict.reason


def test_losses_are_weighted_by_token() -> None:
    # Better on one long document, worse on many short ones: the tokens decide.
    score = {
        "set_name": NEW,
        "document_ids": [f"{n:016x}" for n in range(21)],
        "correct_sums": [0.0] * 21,
        "reciprocal_rank_sums": [0.1] * 21,
        "token_counts": [10_000.0] + [1.0] * 20,
    }
    candidate = DocumentSetScore(loss_sums=[50_000.0] + [7.0] * 20, **score)
    baseline = DocumentSetScore(loss_sums=[60_000.0] + [6.0] * 20, **score)
    verdict = judge(report([candidate], [baseline]), CONFIG, baseline_version=VERSION)
    assert verdict.improvement == pytest.approx((10_000 - 20) / 10_020)
    # One document carries it all, so it is no evidence.
    assert verdict.verdict is VerdictKind.NOT_ENOUGH_EVIDENCE


def test_documents_are_paired_by_id_not_by_place() -> None:
    documents = Documents(NEW)
    candidate, baseline = documents.score(-0.2), documents.score(0, 0)
    order = np.random.default_rng(3).permutation(100)
    fields = ("document_ids", "loss_sums", "correct_sums", "token_counts")
    shuffled = baseline.model_copy(
        update={name: [getattr(baseline, name)[n] for n in order] for name in fields}
    )
    expected = judge(report([candidate], [baseline]), CONFIG, baseline_version=VERSION)
    assert judge(report([candidate], [shuffled]), CONFIG, baseline_version=VERSION) == expected


def test_equal_seeds_give_equal_verdicts() -> None:
    documents = Documents(NEW)
    scores = report([documents.score(-0.01, 0.3)], [documents.score(0, 0)])
    first, again, other = (
        judge(scores, CONFIG, baseline_version=VERSION, random_seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.improvement == other.improvement
    assert first.improvement_low != other.improvement_low


def test_the_interval_widens_with_confidence() -> None:
    widths = [
        verdict.improvement_high - verdict.improvement_low
        for verdict in (compare(-0.1, noise=0.3, confidence=c) for c in (0.5, 0.8, 0.95, 0.99))
    ]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1] / 2


@pytest.mark.parametrize(("documents", "quantile"), [(10, 2.262), (30, 2.045), (101, 1.984)])
def test_the_interval_of_few_documents_is_as_wide_as_students(
    documents: int, quantile: float
) -> None:
    # 97.5 % quantiles from a table. Resampled means have the variance without Bessel's correction.
    reach = -NormalDist().inv_cdf(_tail(0.95, documents))
    assert reach * math.sqrt((documents - 1) / documents) == pytest.approx(quantile, rel=0.005)


@pytest.mark.parametrize("count", [20, 100])
def test_pure_noise_is_seldom_promoted(count: int) -> None:
    # What the interval is worth by itself: half of what the confidence leaves over is 2.5 %.
    config = PromotionConfig(min_improvement=0.0)
    verdicts = []
    for seed in range(200):
        documents = Documents(NEW, count, seed=seed)
        scores = report([documents.score(0, 0.1)], [documents.score(0, 0.1)])
        verdicts.append(judge(scores, config, baseline_version=VERSION).verdict)
    assert verdicts.count(VerdictKind.PROMOTED) <= 10
    assert verdicts.count(VerdictKind.NOT_ENOUGH_EVIDENCE) >= 180


# Standard deviation by seed, in nats per token, as docs/guides/recipes.md measures it.
SEED_DEVIATION = 0.004


def promoted_siblings(count: int, **limits: Any) -> int:
    """Return how many of 200 pairs of models that differ by seed are promoted.

    Each of the two has a level of its own, which no number of documents averages away. Beside it,
    what they make of one document differs a little.
    """
    config, promoted = PromotionConfig(**limits), 0
    for seed in range(200):
        documents = Documents(NEW, count, seed=seed)
        one, other = np.random.default_rng([seed, 1]).normal(0, SEED_DEVIATION, 2)
        scores = report([documents.score(one, 0.02)], [documents.score(other, 0.02)])
        verdict = judge(scores, config, baseline_version=VERSION)
        promoted += verdict.verdict is VerdictKind.PROMOTED
    return promoted


@pytest.mark.parametrize("count", [50, 500])
def test_another_seed_is_seldom_promoted_however_many_documents_there_are(count: int) -> None:
    assert promoted_siblings(count) <= 10


def test_without_a_margin_many_documents_would_promote_every_fifth_seed() -> None:
    assert promoted_siblings(500, min_improvement=0.0) > 40


@settings(max_examples=30, deadline=None)
@given(
    shift=st.floats(-3, 3),
    count=st.integers(2, 60),
    seed=st.integers(0, 1000),
)
def test_an_even_shift_is_found_exactly(shift: float, count: int, seed: int) -> None:
    documents = Documents(NEW, count, seed)
    verdict = judge(
        report([documents.score(shift, 0)], [documents.score(0, 0)]),
        PromotionConfig(min_documents=2),
        baseline_version=VERSION,
    )
    for number in (verdict.improvement, verdict.improvement_low, verdict.improvement_high):
        assert number == pytest.approx(-shift, abs=1e-9)


Sides = tuple[list[DocumentSetScore], list[DocumentSetScore]]
ID = "{:016x}".format


def changed(score: DocumentSetScore, **fields: Any) -> DocumentSetScore:
    return score.model_copy(update=fields)


def shorter(score: DocumentSetScore) -> DocumentSetScore:
    names = ("document_ids", "loss_sums", "correct_sums", "token_counts")
    return changed(score, **{name: getattr(score, name)[:-1] for name in names})


# What is done to a pair of sound scores of 30 documents, and what the error must say.
BROKEN: dict[str, tuple[Callable[[DocumentSetScore], Sides], str]] = {
    "nan": (
        lambda good: ([changed(good, loss_sums=[*good.loss_sums[:-1], np.nan])], [good]),
        f"candidate has 1 documents whose scores are not finite; the first is {ID(29)}",
    ),
    "inf": (
        lambda good: ([good], [changed(good, loss_sums=[np.inf, *good.loss_sums[1:]])]),
        f"baseline has 1 documents whose scores are not finite; the first is {ID(0)}",
    ),
    "negative count": (
        lambda good: ([changed(good, token_counts=[-1.0, *good.token_counts[1:]])], [good]),
        r"over -1\.0 tokens",
    ),
    "other documents": (
        lambda good: ([good], [changed(good, document_ids=["f" * 16, *good.document_ids[1:]])]),
        f"2 documents were scored by one model only, such as {ID(0)}",
    ),
    "missing document": (
        lambda good: ([good], [shorter(good)]),
        f"1 documents were scored by one model only, such as {ID(29)}",
    ),
    "other masks": (
        lambda good: ([good], [changed(good, token_counts=[99.0, *good.token_counts[1:]])]),
        f"document {ID(0)} has .* for the candidate and 99 for the baseline",
    ),
    "document twice": (
        lambda good: ([changed(good, document_ids=[ID(1), *good.document_ids[1:]])], [good]),
        "lists a document more than once",
    ),
    "unequal lengths": (
        lambda good: ([changed(good, loss_sums=good.loss_sums[1:])], [good]),
        "30 documents, 29 losses",
    ),
    "no current set": (
        lambda good: ([changed(good, set_name=OLD)], [changed(good, set_name=OLD)]),
        f"no scores of the candidate on its current set '{NEW}'",
    ),
    "no baseline set": (lambda good: ([good], []), f"The baseline has 0 scores on set '{NEW}'"),
    "no masked tokens": (
        lambda good: 2 * ([changed(good, token_counts=[0.0] * 30)],),
        "no masked tokens in its 30 held-out documents",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_judged_is_an_error(case: str) -> None:
    change, said = BROKEN[case]
    candidate, baseline = change(Documents(NEW, 30).score())
    with pytest.raises(ValueError, match=said):
        judge(report(candidate, baseline), CONFIG, baseline_version=VERSION)


def test_a_report_on_another_baseline_is_an_error() -> None:
    documents = Documents(NEW)
    scores = report([documents.score(-1)], [documents.score(0, 0)])
    with pytest.raises(ValueError, match=f"compares with .*{VERSION}, but v-other was expected"):
        judge(scores, CONFIG, baseline_version="v-other")


def test_a_report_without_a_baseline_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 models named 'baseline'"):
        judge(report([Documents(NEW).score()]), CONFIG, baseline_version=VERSION)


@pytest.mark.parametrize("loss", [{}, {NEW: float("nan")}])
def test_a_missing_unigram_loss_is_an_error(loss: dict[str, float]) -> None:
    scores = report([Documents(NEW).score()]).model_copy(update={"unigram_losses": loss})
    with pytest.raises(ValueError, match="unigram loss on set '2026-01-02'"):
        judge(scores, CONFIG, baseline_version=None)
