"""What a lineage's best scores are, how versions carry them on, and what the gate makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from model_registry import registry
from model_registry.best_scores import LOSS, best_scores, histories, with_evaluation
from model_registry.gate import judge
from pipeline_config.training_schema import PromotionConfig
from pipeline_store import uris
from pipeline_store.formats import (
    BestScore,
    BestScores,
    EvaluationReport,
    ModelScore,
    VerdictKind,
)
from pipeline_store.layout import VersionLayout
from tests.model_registry.runs import FinishedRun
from tests.model_registry.test_gate import VERSION, Documents
from tests.model_registry.test_registry import in_use

OLD, GENERAL = "2026-01-01", "general"
NOTHING = BestScores(sets={})


def evaluation(update: int, shifts: dict[str, tuple[float, float]]) -> EvaluationReport:
    """Return the report of an update's candidate: better on new text, shifted elsewhere.

    :param shifts: of candidate and baseline against the first model, nats per token, by set.
    """
    new, version = f"day-{update}", f"v-{update:012d}"
    kept = {name: Documents(name, seed=number) for number, name in enumerate(shifts)}
    fresh = Documents(new, seed=update)
    candidate = [fresh.score(-0.1), *(kept[name].score(shifts[name][0]) for name in shifts)]
    baseline = [fresh.score(0, 0), *(kept[name].score(shifts[name][1]) for name in shifts)]
    return EvaluationReport(
        partition=new,
        current_set=new,
        evaluated={scores.set_name: "0" * 64 for scores in candidate},
        models=[
            ModelScore(name=name, model_uri=f"s/{version}", files_sha256="1" * 64, sets=sets)
            for name, sets in (("candidate", candidate), ("baseline", baseline))
        ],
        unigram_losses={},
    )


def updates(limits: PromotionConfig) -> list[VerdictKind]:
    """Return the verdicts on twelve updates that each would lose 0.085 nats on old text.

    A rejected one leaves the model in use as it is.
    """
    best = BestScores(
        sets={
            name: BestScore(
                version_id=VERSION,
                manifest_sha256="0" * 64,
                scores=Documents(name, seed=number).score(0, 0),
            )
            for number, name in enumerate((OLD, GENERAL))
        }
    )
    lost, verdicts = 0.0, []
    for update in range(1, 13):
        shifts = {name: (lost + 0.085, lost) for name in best.sets if not name.startswith("day")}
        report = evaluation(update, shifts)
        found = judge(report, limits, baseline_version=f"v-{update:012d}", best=best)
        verdicts.append(found.verdict)
        if found.verdict is VerdictKind.PROMOTED:
            lost += 0.085
            best = with_evaluation(best, report, f"v-{update + 1:012d}", f"v-{update:012d}")
    return verdicts


def test_small_losses_do_not_add_up() -> None:
    assert updates(PromotionConfig()) == [VerdictKind.PROMOTED] * 2 + [VerdictKind.FORGETTING] * 10
    assert updates(PromotionConfig(max_total_forgetting=100)) == [VerdictKind.PROMOTED] * 12


def test_the_verdict_says_what_is_forgotten_and_since_when() -> None:
    known = BestScore(
        version_id=VERSION, manifest_sha256="0" * 64, scores=Documents(OLD).score(0, 0)
    )
    best = BestScores(sets={OLD: known})
    report = evaluation(1, {OLD: (0.3, 0.25)})
    found = judge(report, PromotionConfig(), baseline_version="v-000000000001", best=best)
    assert found.verdict is VerdictKind.FORGETTING
    assert f"that of {VERSION}, the lineage's best" in found.reason
    assert "promotion.max_total_forgetting=0.2" in found.reason
    (one,) = found.forgetting
    assert (one.set_name, one.best_version, one.documents) == (OLD, VERSION, 100)
    assert one.low < one.forgotten < one.high
    assert one.forgotten == pytest.approx(0.3, abs=0.01)
    assert one.candidate_loss - one.best_loss == pytest.approx(one.forgotten)


def test_only_documents_that_both_were_scored_on_count() -> None:
    documents = Documents(OLD)
    scores = documents.score(0, 0)
    # The best is of half of the documents, one of them with another mask.
    half = scores.model_copy(
        update={
            "document_ids": scores.document_ids[:50],
            "loss_sums": scores.loss_sums[:50],
            "token_counts": [scores.token_counts[0] + 1, *scores.token_counts[1:50]],
        }
    )
    known = BestScore(version_id=VERSION, manifest_sha256="0" * 64, scores=half)
    best = BestScores(sets={OLD: known})
    report = evaluation(1, {OLD: (0.05, 0.0)})
    found = judge(report, PromotionConfig(), baseline_version="v-000000000001", best=best)
    assert [one.documents for one in found.forgetting] == [49]
    prepared_anew = report.model_copy(update={"evaluated": {"day-1": "0" * 64, OLD: "2" * 64}})
    found = judge(prepared_anew, PromotionConfig(), baseline_version="v-000000000001", best=best)
    assert found.forgetting == []
    anew = with_evaluation(best, prepared_anew, "v-new", "v-1").sets[OLD]
    assert (anew.version_id, anew.manifest_sha256) == ("v-1", "2" * 64)


def test_on_a_set_that_was_never_scored_the_parent_may_be_the_best() -> None:
    # General text that is added late, or a model that had no head when it was imported.
    best = with_evaluation(NOTHING, evaluation(1, {GENERAL: (0.095, 0.0)}), "v-1", "v-0")
    assert best.sets[GENERAL].version_id == "v-0"
    lost = judge(
        evaluation(2, {GENERAL: (0.185, 0.095)}),
        PromotionConfig(max_total_forgetting=0.15),
        baseline_version="v-000000000002",
        best=best,
    )
    assert lost.verdict is VerdictKind.FORGETTING


def test_the_best_stays_until_it_is_beaten() -> None:
    best = with_evaluation(NOTHING, evaluation(1, {OLD: (0.0, 0.1)}), "v-1", "v-0")
    best = with_evaluation(best, evaluation(2, {OLD: (0.05, 0.0)}), "v-2", "v-1")
    assert {name: one.version_id for name, one in best.sets.items()} == {
        "day-1": "v-1",
        "day-2": "v-2",
        OLD: "v-1",
    }
    best = with_evaluation(best, evaluation(3, {OLD: (-0.1, 0.0)}), "v-3", "v-2")
    assert best.sets[OLD].version_id == "v-3"


def test_versions_carry_the_best_scores_on(any_store: str) -> None:
    first = in_use(any_store, "1")
    second = in_use(any_store, "2", parent=first.version_id)
    best = best_scores(second.lineage, second.version_id)
    assert {name: one.version_id for name, one in best.sets.items()} == {
        "day-1": first.version_id,
        "day-2": second.version_id,
    }
    assert best_scores(second.lineage, None) == NOTHING
    # Retention removes the first version; what was best stays known.
    uris.delete_tree(first.lineage.version(first.version_id))
    assert best_scores(second.lineage, second.version_id) == best


def test_versions_without_such_a_record_are_read_by_their_evaluations(any_store: str) -> None:
    first = in_use(any_store, "1")
    second = in_use(any_store, "2", parent=first.version_id)
    best = best_scores(second.lineage, second.version_id)
    for run in (first, second):
        uris.delete(VersionLayout(run.lineage.version(run.version_id)).best_scores)
    assert best_scores(second.lineage, second.version_id) == best
    uris.delete_tree(first.lineage.version(first.version_id))
    assert set(best_scores(second.lineage, second.version_id).sets) == {"day-2"}


def test_the_history_of_a_set(any_store: str) -> None:
    first = in_use(any_store, "1")
    run = FinishedRun(any_store, "2", parent=first.version_id)
    version = registry.publish(run.store, run.run)
    history = histories(run.lineage, version.version_id, ["day-1"], LOSS)["day-1"]
    assert [version_id for version_id, _ in history] == [first.version_id]
    assert np.isfinite([loss for _, loss in history]).all()
    assert histories(run.lineage, None, ["day-1"], LOSS) == {"day-1": []}
