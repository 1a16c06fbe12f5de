"""Which checkpoints are kept, chosen and removed, by their manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_store.formats import CheckpointManifest, FormatError, HeldOutScore
from pipeline_store.layout import RunLayout
from tests.training.checkpoint_folder import open_store, save, state, writer
from tests.training.jobs import all_files, committed_steps
from trained_models.state import TrainingState

BEST = {"training__keep_best": True, "evaluation__rows_per_checkpoint": 100}


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    return RunLayout(str(tmp_path / "run"))


def test_the_last_one_of_the_schedule_is_kept_whatever_sigterm_leaves(
    run: RunLayout, tmp_path: Path
) -> None:
    store = open_store(run, training__checkpoint_interval=4, training__max_to_keep=2)
    save(store, tmp_path, 4, 8, 9, 10, 11)
    assert committed_steps(run) == [8, 10, 11]
    save(store, tmp_path, 12)
    assert committed_steps(run) == [11, 12]


def test_the_best_is_kept_with_its_bytes(run: RunLayout, tmp_path: Path) -> None:
    store = open_store(run, **BEST, training__max_to_keep=2)
    save(store, tmp_path, 4, best=4)
    save(store, tmp_path, 8, 12, 16, 20, best=8)
    assert committed_steps(run) == [8, 16, 20]
    assert len(all_files(Path(run.training.root, "attempts"))) == 3
    # Also while an older one counts for the one before.
    store.commit(writer()(tmp_path), state(24, best=24))
    assert committed_steps(run) == [8, 20, 24]
    store.commit(writer()(tmp_path), state(28, best=24))
    assert committed_steps(run) == [24, 28]


def test_without_keep_best_the_best_goes_like_any_other(run: RunLayout, tmp_path: Path) -> None:
    store = open_store(run, training__max_to_keep=2)
    save(store, tmp_path, 4, 8, 12, best=4)
    assert committed_steps(run) == [8, 12]


def test_a_checkpoint_whose_best_is_damaged_is_not_used(run: RunLayout, tmp_path: Path) -> None:
    store = open_store(run, **BEST)
    save(store, tmp_path, 4, best=4)
    save(store, tmp_path, 8, 12, best=8)
    (file,) = CheckpointManifest.load(run.training.checkpoint(8)).files
    Path(run.training.root, file.path).write_bytes(b"tensorz")
    newest = open_store(run, **BEST).newest()
    assert newest is not None
    assert newest.step == 4


def test_one_may_ask_for_an_older_one(run: RunLayout, tmp_path: Path) -> None:
    store = open_store(run)
    save(store, tmp_path, 4, 8, 10)
    newest = store.newest(at_most=8)
    assert newest is not None
    assert newest.step == 8
    assert store.newest(at_most=3) is None


def test_later_ones_are_abandoned_with_their_bytes(run: RunLayout, tmp_path: Path) -> None:
    store = open_store(run)
    save(store, tmp_path, 4, 8, 10)
    store.abandon(after=4)
    assert committed_steps(run) == [4]
    assert len(all_files(Path(run.training.root, "attempts"))) == 1


def test_a_manifest_of_another_step_is_passed_over(run: RunLayout, tmp_path: Path) -> None:
    store = open_store(run)
    save(store, tmp_path, 4, 8)
    four = Path(run.training.checkpoint(4)).read_bytes()
    Path(run.training.checkpoint(8)).write_bytes(four)
    newest = open_store(run).newest()
    assert newest is not None
    assert newest.step == 4


def test_a_manifest_that_is_asked_for_by_step_has_to_be_there(run: RunLayout) -> None:
    with pytest.raises(FormatError, match=r"0000000016.json is missing"):
        open_store(run).committed(16)


def test_other_files_among_the_manifests_are_left_alone(run: RunLayout, tmp_path: Path) -> None:
    store = open_store(run, training__max_to_keep=2)
    save(store, tmp_path, 4)
    note = Path(run.training.checkpoints, "note.json")
    note.write_bytes(b"mine")
    save(store, tmp_path, 8, 12)
    newest = open_store(run).newest()
    assert newest is not None
    assert newest.step == 12
    assert note.read_bytes() == b"mine"


def test_state_comes_back_from_a_manifest_as_it_was(run: RunLayout, tmp_path: Path) -> None:
    score = HeldOutScore(loss=1.2345678901234567, accuracy=0.5, masked_tokens=7)
    before = TrainingState(
        step=4, loss=0.1 + 0.2, tokens=3, seconds=1.5, resumed_from=(2,), running_loss=1 / 3
    ).scored(score)
    manifest, _ = open_store(run).commit(writer()(tmp_path), before)
    assert TrainingState.of(CheckpointManifest.load(run.training.checkpoint(4))) == before
    assert manifest.best is not None
    assert manifest.best.step == 4


def test_an_equal_score_is_not_better(run: RunLayout) -> None:
    def scored(before: TrainingState, step: int, loss: float) -> TrainingState:
        score = HeldOutScore(loss=loss, accuracy=0.5, masked_tokens=7)
        return TrainingState(step=step, best=before.best).scored(score)

    first = scored(TrainingState(), 4, 2.0)
    second = scored(first, 8, 2.0)
    third = scored(second, 12, 3.0)
    fourth = scored(third, 16, 1.0)
    found = [s.best.model_dump() for s in (first, second, third, fourth) if s.best]
    assert [(b["step"], b["evaluations_since"]) for b in found] == [(4, 0), (4, 1), (4, 2), (16, 0)]
