"""What a job says that it does just now, in the file that its agent looks at."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest
from pydantic import BaseModel

from pipeline_store.formats import JobPhase, PhaseName
from tests.training.conftest import OneDay, TwoDays
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import train
from training import evaluate
from training.runtime import phases
from training.runtime.phases import each, looped, move, phase


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that phases are written to, each move at once."""
    monkeypatch.setenv(phases.PHASE_FILE, str(tmp_path / "phase.json"))
    monkeypatch.setattr(phases, "LEAST_SECONDS", 0.0)
    return tmp_path / "phase.json"


def said(file: Path) -> tuple[PhaseName, int]:
    found = JobPhase.model_validate_json(file.read_bytes())
    return found.name, found.count


def test_after_an_inner_phase_the_outer_one_begins_anew(file: Path) -> None:
    with phase(PhaseName.LOOP):
        first = JobPhase.model_validate_json(file.read_bytes())
        move()
        assert said(file) == (PhaseName.LOOP, 1)
        with phase(PhaseName.SAVE):
            assert said(file) == (PhaseName.SAVE, 0)
        again = JobPhase.model_validate_json(file.read_bytes())
        assert (again.name, again.count) == (PhaseName.LOOP, 0)
        assert again.entered > first.entered
    assert said(file) == (PhaseName.OTHER, 0)


def test_each_item_that_is_done_with_moves(file: Path) -> None:
    with phase(PhaseName.DATA):
        counts = [said(file)[1] for _ in each("abc")]
        assert counts == [0, 1, 2]
        assert said(file) == (PhaseName.DATA, 3)


def slowest(file: Path) -> float | None:
    return JobPhase.model_validate_json(file.read_bytes()).slowest_loop_seconds


def test_the_slowest_of_the_last_20_loops_is_said(file: Path) -> None:
    with phase(PhaseName.LOOP):
        looped(1, 90.0, compiled=True)
        assert slowest(file) == 90.0
        looped(1, 5.0, compiled=False)
        assert slowest(file) == 5.0
        for _ in range(19):
            looped(1, 1.0, compiled=False)
        assert (slowest(file), said(file)) == (5.0, (PhaseName.LOOP, 21))
        looped(1, 1.0, compiled=False)
        assert slowest(file) == 1.0
        with phase(PhaseName.SAVE):
            assert slowest(file) == 1.0
        looped(1, 60.0, compiled=True)
        assert slowest(file) == 60.0


def test_a_thread_that_works_for_the_job_has_no_say(file: Path) -> None:
    def work() -> None:
        with phase(PhaseName.DATA):
            list(each("abc"))

    with phase(PhaseName.EVALUATION):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert said(file) == (PhaseName.EVALUATION, 0)


def test_without_a_file_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(phases.PHASE_FILE, raising=False)
    with phase(PhaseName.LOOP):
        assert list(each("abc")) == ["a", "b", "c"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[PhaseName]:
    """Return the list of all phases that are told from now on."""
    found: list[PhaseName] = []

    def note(_: str, content: BaseModel) -> None:
        if isinstance(content, JobPhase):
            found.append(content.name)

    monkeypatch.setattr(phases, "write_for_agent", note)
    return found


def in_order(told: list[PhaseName]) -> list[PhaseName]:
    return [name for name, _ in itertools.groupby(told)]


def test_a_training_says_what_it_does(tiny: TinyStore, told: list[PhaseName]) -> None:
    config = tiny_config(evaluation__rows_per_checkpoint=8)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r", config)
    assert train(tiny, run, manifest) == 0
    order = in_order(told)
    assert [name for name in dict.fromkeys(order) if name is not PhaseName.OTHER] == [
        PhaseName.DATA,
        PhaseName.RESTORE,
        PhaseName.LOOP,
        PhaseName.FIRST_LOOP,
        PhaseName.EVALUATION,
        PhaseName.SAVE,
    ]
    assert order.count(PhaseName.FIRST_LOOP) == 1
    saves = config.training.steps // config.training.checkpoint_interval
    assert order.count(PhaseName.EVALUATION) == saves
    assert order.count(PhaseName.SAVE) >= saves
    assert order[-1] is PhaseName.OTHER


def test_a_resumed_training_compiles_again(half_trained: OneDay, told: list[PhaseName]) -> None:
    assert train(half_trained.store, half_trained.run, half_trained.manifest) == 0
    order = in_order(told)
    assert order.index(PhaseName.RESTORE) < order.index(PhaseName.FIRST_LOOP)


def test_an_evaluation_says_so(
    two_days: TwoDays, tmp_path: Path, told: list[PhaseName], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "LEAST_SECONDS", 0.0)
    words = ["--output", str(tmp_path / "report.json")]
    sets = [word for day, uri in two_days.manifests.items() for word in ("--set", f"{day}={uri}")]
    code = evaluate.main(
        [
            *("--store", two_days.store.layout.root, "--config", two_days.second.config),
            *("--current-set", "2026-01-02", *sets, *words),
            *("--model", f"candidate={two_days.second.training.root}"),
        ]
    )
    assert code == 0
    # More than once in a row: batches, halves and shards that are counted move it.
    assert told.count(PhaseName.EVALUATION) > 2 * in_order(told).count(PhaseName.EVALUATION)
    assert PhaseName.LOOP not in told
