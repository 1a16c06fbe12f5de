"""What the comparison of updates makes of its trainings; the trainings themselves take long."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_store import uris
from pipeline_store.formats import DocumentSetScore, EvaluationReport, ModelScore
from pipeline_store.layout import StoreLayout
from verification.benchmarks.recipes import drift, siblings, updates
from verification.benchmarks.recipes.lineages import Length, Lineages
from verification.benchmarks.recipes.plot import draw_updates

# Of the models after partitions 1, 2 and 3, on each of the three.
LOSSES = [[4.0, 6.0, 7.0], [4.4, 5.0, 6.5], [4.6, 5.6, 5.5]]


def test_what_is_forgotten_and_gained_is_told_from_the_losses() -> None:
    lineage = updates.Lineage("replay 0, rate 0.1, zeros", LOSSES)
    assert lineage.mean == pytest.approx((4.6 + 5.6 + 5.5) / 3)
    assert lineage.earlier == pytest.approx(5.1)
    assert lineage.newest == 5.5
    assert lineage.own == pytest.approx(5.25)
    assert lineage.gains == pytest.approx([1.0, 1.0])
    # By how much the first two are worse than right after their own training.
    assert lineage.forgotten == pytest.approx(0.6)


def test_an_arm_is_what_its_updates_are_configured_with() -> None:
    names = [str(arm) for arm in updates.ARMS]
    assert len(set(names)) == len(names)
    arm = updates.Arm(0.2, 4e-4, carry=True)
    assert str(arm) == "replay 0.2, rate 0.0004, moments"
    assert arm.settings == {
        "training.replay_fraction": 0.2,
        "optimizer.update_learning_rate": 4e-4,
        "optimizer.carry_slots": True,
    }


def model(name: str, *sums: float) -> ModelScore:
    """Return a model with these losses on documents of 100 tokens."""
    score = DocumentSetScore(
        set_name="day",
        document_ids=[f"{number:016x}" for number in range(len(sums))],
        loss_sums=[100 * loss for loss in sums],
        correct_sums=[0.0] * len(sums),
        reciprocal_rank_sums=[1.0] * len(sums),
        token_counts=[100.0] * len(sums),
    )
    return ModelScore(name=name, model_uri=f"/{name}", files_sha256="0" * 64, sets=[score])


def test_siblings_are_compared_both_ways_round_by_the_gate() -> None:
    report = EvaluationReport(
        partition="day",
        current_set="day",
        evaluated={"day": "0" * 64},
        models=[model("0", *[5.0] * 30), model("1", *[5.0] * 30), model("2", *[5.008] * 30)],
        unigram_losses={"day": 6.0},
    )
    (found,) = siblings.compare(report)
    assert (found.set_name, found.documents) == ("day", 30)
    assert found.losses == [5.0, 5.0, 5.008]
    assert found.largest_difference == pytest.approx(0.008)
    assert found.standard_deviation == pytest.approx(0.008 / 3**0.5, abs=1e-5)
    # Two of the six ordered pairs have a better candidate, by 0.008.
    assert found.promoted == pytest.approx({"0": 1 / 3, "0.005": 1 / 3, "0.01": 0, "0.02": 0})


def test_the_language_of_the_partitions_drifts(tmp_path: Path) -> None:
    drift.write(tmp_path, 20_000)
    text = {
        partition: "\n".join(p.read_text() for p in sorted((tmp_path / partition).iterdir()))
        for partition in drift.PARTITIONS
    }
    assert all(len(part) > 15_000 for part in text.values())
    lines = [line for part in text.values() for line in set(part.splitlines()) if line]
    assert len(set(lines)) == len(lines)
    words = [part.lower().count("sqlalchemy") for part in text.values()]
    # A little of a subject is still in the partition after its own, and nothing in later ones.
    assert words[1] > words[2] > 0
    assert not any(words[4:])


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    lab = Lineages(tmp_path, Length(first_steps=4, steps=2, characters=20_000))
    lineage = StoreLayout(str(lab.root)).lineage("default")
    uris.write(lineage.model("v-first"), b"{}")
    assert lab.first() == lineage.version("v-first")
    # What is of another length is another's.
    assert Lineages(tmp_path, Length(4, 3, 20_000)).root != lab.root


def test_a_picture_of_updates_is_drawn(tmp_path: Path) -> None:
    losses = {str(arm): LOSSES for arm in updates.ARMS}
    draw_updates(losses, tmp_path / "updates.png")
    assert (tmp_path / "updates.png").read_bytes().startswith(b"\x89PNG")
