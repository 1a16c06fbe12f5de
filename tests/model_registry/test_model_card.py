"""The model card has what a reader asks for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from model_registry import registry
from pipeline_store import uris
from pipeline_store.formats import (
    EvaluationReport,
    Heritage,
    NewHead,
    TrainingResult,
    Verdict,
)
from pipeline_store.layout import VersionLayout
from tests.model_registry.runs import FinishedRun
from tests.model_registry.test_gate import with_extra
from tests.model_registry.test_gate_probes import comparison


@pytest.fixture
def cards(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the cards of a first model and of one that followed it."""
    store = str(tmp_path_factory.mktemp("store"))
    texts, parent = [], None
    for name in ("1", "2"):
        run = FinishedRun(store, name, parent=parent)
        registry.publish(run.store, run.run)
        registry.promote(run.lineage, run.version_id, expected_baseline=parent, reason="r")
        texts.append(uris.read(VersionLayout(run.lineage.version(run.version_id)).card).decode())
        parent = run.version_id
    return texts[0], texts[1]


def test_the_first_card(cards: tuple[str, str]) -> None:
    card = cards[0]
    assert "| started from | random weights |" in card
    assert "2 layers, 128 wide, 2 heads" in card
    assert "6 WordPiece tokens, uncased" in card
    assert "| `day-1` | 1,234 | 5,000 | 600,000 | 500 | 3 |" in card
    assert "| steps | 400 (400 in all) |" in card
    assert "candidate accuracy | candidate MRR | unigram loss |" in card
    assert "| 25.0% | 0.500 | 6.0000 |" in card
    assert "| 6.0000 |" in card
    assert "pooler is untrained" in card
    assert "Promoted: On 40 held-out documents" in card


def test_the_card_says_how_to_use_each_format(cards: tuple[str, str]) -> None:
    card = cards[0]
    assert '`task.init_checkpoint: "' in card
    assert '/checkpoint/model"` |' in card
    assert "| `hugging_face/` | 3.0e-06 | `pipeline(" in card
    assert "| `saved_model/` | 3.0e-06 | `tf.saved_model.load(" in card


def test_the_second_card_names_its_ancestor(cards: tuple[str, str]) -> None:
    card = cards[1]
    assert "| started from | `v-" in card
    assert "`day-1`" in card
    assert "| `day-2` (new) | 40 |" in card
    assert "baseline perplexity | baseline accuracy | baseline MRR | unigram loss |" in card
    assert "| steps | 400 (800 in all) |" in card


def test_a_model_with_next_sentence_prediction_says_so(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    result = TrainingResult.load(run.run.training.result)
    scores = {"next_sentence_loss": 0.25, "next_sentence_accuracy": 0.875}
    result.model_copy(update=scores).write(run.run.training.result)
    uri = run.run.evaluation(None)
    report = EvaluationReport.load(uri)
    (model,) = report.models
    counts = {"next_sentence_correct_sums": [3.0] * 40, "row_counts": [4.0] * 40}
    scored = model.sets[0].model_copy(update=counts)
    models = [model.model_copy(update={"sets": [scored]})]
    report.model_copy(update={"models": models}).write(uri)
    published = registry.publish(run.store, run.run)

    assert published.metrics["candidate/day-1/next_sentence_accuracy"] == 0.75
    assert published.metrics["candidate/day-1/masked_lm_mrr"] == 0.5
    loss = published.metrics["candidate/day-1/masked_lm_loss"]
    perplexity = published.metrics["candidate/day-1/masked_lm_perplexity"]
    assert perplexity == pytest.approx(math.exp(loss))
    folder = VersionLayout(run.lineage.version(run.version_id))
    card = uris.read(folder.card).decode()
    assert "| last next-sentence loss | 0.2500, 87.5% right |" in card
    assert "candidate next-sentence accuracy | unigram loss |" in card
    assert "| 75.0% | 6.0000 |" in card
    assert "pooler is untrained" not in card


def test_a_new_head_and_what_the_encoder_loses_under_it_are_on_the_card(tmp_path: Path) -> None:
    first = FinishedRun(str(tmp_path), "1", heritage=Heritage(new_head=NewHead(steps=0)))
    registry.publish(first.store, first.run)
    registry.promote(first.lineage, first.version_id, expected_baseline=None, reason="better")
    assert "| new masked-LM head | trained with the encoder from its first step |" in card_of(first)
    kept = Heritage(new_head=NewHead(steps=1100, loss=6.25))
    run = FinishedRun(str(tmp_path), "2", parent=first.version_id, heritage=kept)
    uri = run.run.evaluation(first.version_id)
    report = EvaluationReport.load(uri)
    candidate, baseline = report.models
    under = baseline.model_copy(update={"model_uri": run.run.head(first.version_id).root})
    report.model_copy(update={"models": [candidate, under]}).write(uri)
    registry.publish(run.store, run.run)
    assert (
        "| new masked-LM head | trained alone for 1,100 steps, the encoder held still, to a "
        "training loss of 6.2500; under it the encoder as it was imported loses "
        f"{baseline.sets[0].loss:.4f} on held-out documents of `day-2`: baseline below |"
    ) in card_of(run)


def card_of(run: FinishedRun) -> str:
    return uris.read(VersionLayout(run.lineage.version(run.version_id)).card).decode()


def test_labelled_tasks_are_on_the_card(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    lost = comparison("moods", -0.005)
    uri = run.run.verdict(None)
    Verdict.load(uri).model_copy(update={"probes": [lost]}).write(uri)
    registry.publish(run.store, run.run)
    card = uris.read(VersionLayout(run.lineage.version(run.version_id)).card).decode()
    assert f"- {lost.sentence}" in card
    assert "Nothing but the pretraining tasks and `moods` was measured." in card


def test_recall_before_and_after_is_on_the_card(tmp_path: Path) -> None:
    first = FinishedRun(str(tmp_path), "1")
    first.embed(candidate=[1.0] * 30 + [2.0] * 10)
    registry.publish(first.store, first.run)
    registry.promote(first.lineage, first.version_id, expected_baseline=None, reason="better")
    run = FinishedRun(str(tmp_path), "2", parent=first.version_id)
    run.embed(candidate=[1.0] * 10 + [3.0] * 30, baseline=[1.0] * 30 + [2.0] * 10)
    published = registry.publish(run.store, run.run)
    assert published.metrics["candidate/day-2/retrieval_recall_at_1"] == 0.25
    card = uris.read(VersionLayout(run.lineage.version(run.version_id)).card).decode()
    assert "candidate recall@1 | baseline recall@1 | unigram loss |" in card
    assert "| 0.250 | 0.750 | 6.0000 |" in card
    assert f"0.250 after 0.750 of {first.version_id}, a difference of -0.500" in card


def test_tables_are_well_formed(cards: tuple[str, str]) -> None:
    for card in cards:
        blocks = [b for b in card.split("\n\n") if b.startswith("|")]
        assert len(blocks) == 5
        for block in blocks:
            assert len({line.count("|") for line in block.splitlines()}) == 1


def test_the_card_names_where_an_imported_pooler_comes_from(tmp_path: Path) -> None:
    heritage = Heritage(pooler_from="gs://bucket/published/base")
    run = FinishedRun(str(tmp_path), "1", heritage=heritage)
    registry.publish(run.store, run.run)
    card = uris.read(VersionLayout(run.lineage.version(run.version_id)).card).decode()
    assert "the pooler is that of `published/base`, while the layers below it have changed" in card
    assert "pooler is untrained" not in card


def test_the_card_and_the_metrics_have_the_scores_of_longer_rows(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    place = run.run.evaluation(None)
    report = EvaluationReport.load(place)
    [model] = report.models
    [scores] = model.sets
    report.models[0] = model.model_copy(update={"sets": [with_extra(scores, scores)]})
    report.write(place)
    version = registry.publish(run.store, run.run)
    card = uris.read(VersionLayout(run.lineage.version(run.version_id)).card).decode()
    assert "| `day-1` | 512 | candidate | " in card
    loss = version.metrics["candidate/day-1/masked_lm_loss_rows_of_512"]
    assert loss == pytest.approx(scores.loss)
