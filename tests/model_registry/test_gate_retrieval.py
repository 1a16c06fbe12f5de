"""The gate on embeddings: whom it judges, what it rejects, what it will not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model_registry.best_scores import with_evaluation
from model_registry.gate import judge
from pipeline_config.training_schema import PromotionConfig
from pipeline_store.formats import (
    BestRetrieval,
    BestScores,
    DocumentSetScore,
    EvaluationReport,
    RetrievalScore,
    Verdict,
    VerdictKind,
)
from tests.model_registry.test_gate import NEW, OLD, VERSION, Documents, report

COUNT = 200


def ranks_of(found: int, count: int = COUNT) -> list[float]:
    """Return ranks of which so many are the first; the others are all over the place."""
    others = np.random.default_rng(found).integers(2, count + 1, count - found)
    return [1.0] * found + others.astype(float).tolist()


def measured(
    score: DocumentSetScore, ranks: list[float] | None, ids: list[str] | None = None
) -> DocumentSetScore:
    if ranks is None:
        return score
    ids = score.document_ids[: len(ranks)] if ids is None else ids
    retrieval = RetrievalScore(document_ids=ids, ranks=ranks)
    return score.model_copy(update={"retrieval": retrieval})


def evaluation(
    after: list[float] | None, before: list[float] | None, shift: float = -0.2
) -> EvaluationReport:
    documents = Documents(NEW, COUNT)
    candidate, baseline = documents.score(shift), documents.score(0, 0)
    return report([measured(candidate, after)], [measured(baseline, before)])


def verdict(
    after: list[float] | None,
    before: list[float] | None,
    *,
    from_sentence_encoder: bool = True,
    shift: float = -0.2,
    **limits: Any,
) -> Verdict:
    return judge(
        evaluation(after, before, shift),
        PromotionConfig(**limits),
        baseline_version=VERSION,
        from_sentence_encoder=from_sentence_encoder,
    )


def test_recall_and_reciprocal_ranks() -> None:
    score = RetrievalScore(document_ids=["a", "b", "c", "d"], ranks=[1.0, 1.5, 10.0, 11.0])
    assert (score.recall(1), score.recall(10)) == (0.25, 0.75)
    assert score.mrr == pytest.approx((1 + 2 / 3 + 1 / 10 + 1 / 11) / 4)
    empty = RetrievalScore(document_ids=[], ranks=[])
    assert (empty.recall(1), empty.mrr) == (None, None)


def test_embeddings_that_fell_apart_are_rejected_though_the_loss_is_better() -> None:
    # What was measured with all-MiniLM-L6-v2.
    found = verdict(ranks_of(13), ranks_of(36))
    assert found.verdict is VerdictKind.RETRIEVAL
    assert found.improvement == pytest.approx(0.2, abs=0.01)
    assert "recall@1 of the embeddings is 0.065 and that of the model in use 0.180" in found.reason
    assert "promotion.max_retrieval_loss=0.02" in found.reason
    assert "nats per token" in found.reason
    assert found.retrieval is not None
    assert found.retrieval.difference == pytest.approx(-0.115)
    assert found.retrieval.low < found.retrieval.difference < found.retrieval.high < -0.02
    assert Verdict.parse(found.to_bytes(), "") == found


@pytest.mark.parametrize(
    ("after", "before", "limits"),
    [
        (40, 36, {}),
        (36, 36, {}),
        # Worse, but not for certain by more than is allowed.
        (33, 36, {}),
        (13, 36, {"max_retrieval_loss": 0.1}),
    ],
)
def test_what_is_not_lost_for_sure_is_accepted(
    after: int, before: int, limits: dict[str, Any]
) -> None:
    found = verdict(ranks_of(after), ranks_of(before), **limits)
    assert found.verdict is VerdictKind.PROMOTED
    assert "recall@1 of the embeddings" in found.reason


def test_other_lineages_are_judged_only_if_asked_for() -> None:
    lost = ranks_of(13), ranks_of(36)
    found = verdict(*lost, from_sentence_encoder=False)
    assert found.verdict is VerdictKind.PROMOTED
    assert found.retrieval is not None
    assert (found.retrieval.max_loss, found.retrieval.candidate_recall) == (None, 0.065)
    assert "recall@1" not in found.reason
    always = verdict(*lost, from_sentence_encoder=False, judge_retrieval="always")
    assert always.verdict is VerdictKind.RETRIEVAL
    never = verdict(*lost, max_retrieval_loss=None, judge_retrieval="always")
    assert never.verdict is VerdictKind.PROMOTED


def drifting(found: int) -> list[float]:
    """Return ranks of which the first ones are 1, so that a model with more lost nothing else."""
    return [1.0] * found + [float(COUNT)] * (COUNT - found)


def retrieval_updates(**limits: Any) -> list[VerdictKind]:
    """Return the verdicts on twelve updates that would each lose 5 of 200 documents again.

    A rejected one leaves the model in use as it is.
    """
    config = PromotionConfig(**limits)
    own, old = Documents(NEW, COUNT), Documents(OLD, COUNT)
    best, kept, verdicts = BestScores(sets={}), 115, []
    for update in range(1, 13):
        version = f"v-{update:012d}"
        scores = report(
            [
                measured(own.score(-0.2), drifting(kept - 5)),
                measured(old.score(0), drifting(kept - 5)),
            ],
            [
                measured(own.score(0, 0), drifting(kept)),
                measured(old.score(0, 0), drifting(kept)),
            ],
        )
        models = [one.model_copy(update={"model_uri": f"s/{version}"}) for one in scores.models]
        scores = scores.model_copy(update={"models": models})
        found = judge(
            scores, config, baseline_version=version, best=best, from_sentence_encoder=True
        )
        verdicts.append(found.verdict)
        if found.verdict is VerdictKind.PROMOTED:
            kept -= 5
            best = with_evaluation(best, scores, f"v-{update + 1:012d}", version)
        else:
            assert "promotion.max_total_retrieval_loss=0.04" in found.reason
            assert found.retrieval_totals[0].best_version == "v-000000000001"
            assert found.retrieval_totals[0].best == 0.575
    return verdicts


def test_small_losses_of_retrieval_do_not_add_up() -> None:
    found = retrieval_updates()
    promoted = found.count(VerdictKind.PROMOTED)
    assert found == [VerdictKind.PROMOTED] * promoted + [VerdictKind.RETRIEVAL] * (12 - promoted)
    assert 1 < promoted < 6
    unlimited = retrieval_updates(max_total_retrieval_loss=1.0)
    assert unlimited == [VerdictKind.PROMOTED] * 12


def test_retrieval_among_other_documents_is_no_measure() -> None:
    old = Documents(OLD, COUNT)
    known = measured(old.score(0), ranks_of(115))
    assert known.retrieval is not None
    one = BestRetrieval(version_id="v-1", manifest_sha256="0" * 64, retrieval=known.retrieval)
    best = BestScores(sets={}, retrieval={OLD: one})
    own = Documents(NEW, COUNT)
    for ranks, manifest, count in (
        (ranks_of(36), "0" * 64, 1),
        (ranks_of(36, 150), "0" * 64, 0),
        (ranks_of(36), "2" * 64, 0),
        (None, "0" * 64, 0),
    ):
        scores = report(
            [own.score(-0.2), measured(old.score(0), ranks)], [own.score(0, 0), old.score(0, 0)]
        )
        scores = scores.model_copy(update={"evaluated": {**scores.evaluated, OLD: manifest}})
        found = judge(scores, PromotionConfig(), baseline_version=VERSION, best=best)
        assert len(found.retrieval_totals) == count
        # Of a lineage whose retrieval is not judged.
        assert found.verdict is VerdictKind.PROMOTED


def test_retrieval_does_not_make_up_for_the_loss() -> None:
    found = verdict(ranks_of(100), ranks_of(36), shift=0.2)
    assert found.verdict is VerdictKind.WORSE
    assert found.retrieval is not None


def test_a_handful_of_documents_rejects_nobody() -> None:
    found = verdict(ranks_of(0, 19), ranks_of(19, 19))
    assert found.verdict is VerdictKind.PROMOTED
    assert "with fewer than promotion.min_documents=20 it is not judged" in found.reason
    assert verdict(ranks_of(0, 20), ranks_of(20, 20)).verdict is VerdictKind.RETRIEVAL
    assert verdict([], []).retrieval is None


def test_only_the_own_set_is_judged() -> None:
    new, old = Documents(NEW, COUNT), Documents(OLD, COUNT)
    kept, lost = ranks_of(36), ranks_of(0)
    found = judge(
        report(
            [measured(new.score(-0.2), kept), measured(old.score(), lost)],
            [measured(new.score(0, 0), kept), measured(old.score(0, 0), kept)],
        ),
        PromotionConfig(),
        baseline_version=VERSION,
        from_sentence_encoder=True,
    )
    assert found.verdict is VerdictKind.PROMOTED


def test_an_evaluation_of_an_earlier_time_is_only_read_where_retrieval_is_not_judged() -> None:
    found = verdict(None, None, from_sentence_encoder=False)
    assert (found.verdict, found.retrieval) == (VerdictKind.PROMOTED, None)
    with pytest.raises(ValueError, match=r"older than that\. Delete the run's evaluation"):
        verdict(None, None)


def test_a_first_model_is_compared_with_nothing() -> None:
    score = measured(Documents(NEW, COUNT).score(), ranks_of(0))
    found = judge(
        report([score]), PromotionConfig(), baseline_version=None, from_sentence_encoder=True
    )
    assert (found.verdict, found.retrieval) == (VerdictKind.PROMOTED, None)


@pytest.mark.parametrize("ranks", [[0.5] * COUNT, [float("nan")] * COUNT])
def test_what_is_no_rank_is_an_error(ranks: list[float]) -> None:
    with pytest.raises(ValueError, match="needs one of 1 or more"):
        verdict(ranks, ranks_of(36))


def test_other_documents_are_an_error() -> None:
    documents = Documents(NEW, COUNT)
    candidate = measured(documents.score(-0.2), [1.0, 2.0], ["a", "b"])
    baseline = measured(documents.score(0, 0), [1.0, 2.0], ["a", "c"])
    with pytest.raises(ValueError, match=r"different documents \(2 by one model only\)"):
        judge(report([candidate], [baseline]), PromotionConfig(), baseline_version=VERSION)


def test_units_of_the_split_are_drawn_as_a_whole() -> None:
    # Of ten units three have lost everything, of 180 documents 54 more than the limit.
    units = np.arange(COUNT) % 10
    before = np.ones(180)
    after = np.where(units[:180] < 3, 2.0, 1.0)
    scores = evaluation(after.tolist(), before.tolist())
    assert judge_it(scores).verdict is VerdictKind.RETRIEVAL
    for model in scores.models:
        model.sets[0] = model.sets[0].model_copy(update={"units": units.tolist()})
    found = judge_it(scores, max_retrieval_loss=0.1)
    assert found.verdict is VerdictKind.PROMOTED
    assert found.retrieval is not None
    assert found.retrieval.difference == pytest.approx(-0.3)
    assert found.retrieval.high > -0.1


def judge_it(scores: EvaluationReport, **limits: Any) -> Verdict:
    """Return the verdict on an update of a sentence encoder."""
    config = PromotionConfig(**limits)
    return judge(scores, config, baseline_version=VERSION, from_sentence_encoder=True)
