"""The grid, the file of results and the tables of the sweep; its trainings take hours."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from verification.benchmarks.update_sweep import __main__ as command
from verification.benchmarks.update_sweep import laboratory, results, table
from verification.benchmarks.update_sweep.grid import (
    FULL,
    QUICK,
    Arm,
    Cell,
    Scale,
    cells,
    further_arms,
    main_arms,
)
from verification.benchmarks.update_sweep.results import Measured, Row

SCALE = replace(FULL, seeds=(1, 2), rates=(2e-5, 1e-4))
SETTINGS: dict[str, Any] = {
    "scale": asdict(SCALE),
    "rows": {"domain, dynamic": 480, "old, dynamic": 500},
    "start": "0" * 64,
}
DOCUMENTS = 40
ARM = Arm(1e-4, 0.2, dynamic=True, steps=240)


def measures(domain: float, old: float, found: int, right: int) -> dict[str, Measured]:
    """Return measures on DOCUMENTS documents of ten tokens, of which so many were found."""

    def losses(mean: float) -> Measured:
        # Documents differ, and by the same in all models.
        sums = [10 * mean + number % 2 - 0.5 for number in range(DOCUMENTS)]
        return Measured(sums, [10.0] * DOCUMENTS)

    def misses(hits: int) -> Measured:
        return Measured([float(n >= hits) for n in range(DOCUMENTS)], [1.0] * DOCUMENTS)

    return dict(
        zip(
            table.MEASURES, (losses(domain), losses(old), misses(found), misses(right)), strict=True
        )
    )


START = Row(None, measures(6.0, 6.0, 20, 30))


def row(arm: Arm, seed: int, *values: Any) -> Row:
    return Row(Cell(arm, seed), measures(*values), 60.0)


# --- The grid ---


def test_the_main_arms_are_all_combinations_with_one_seed_after_the_other() -> None:
    arms = main_arms(FULL)
    assert len(set(arms)) == 3 * 2 * 2
    planned = list(cells(FULL))
    assert planned[:36] == [Cell(arm, seed) for seed in (1, 2, 3) for arm in arms]
    assert len({cell.name for cell in planned}) == len(planned) == 36 + 27


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_a_further_arm_differs_in_one_setting_from_another_arm(scale: Scale) -> None:
    known = main_arms(scale)
    for arm in further_arms(scale):
        assert arm not in known
        differing = [
            [one.name for one in fields(Arm) if getattr(arm, one.name) != getattr(other, one.name)]
            for other in known
        ]
        assert min(map(len, differing)) == 1
        known.append(arm)


def test_an_arm_says_what_it_sets() -> None:
    assert ARM.settings == {
        "optimizer.update_learning_rate": 1e-4,
        "optimizer.warmup_steps": 24,
        "training.replay_fraction": 0.2,
        "masking.dynamic": True,
    }
    # Three of sixteen rows are old text.
    assert ARM.passes(480, 16) == 240 * 13 / 480
    assert Cell(ARM, 3).name == "rate-0.0001_replay-0.2_dynamic_steps-240_warmup-0.1_seed-3"


# --- The file of results ---


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "full.jsonl"
    with results.opened(path, SETTINGS) as kept:
        kept.add(START)
        kept.add(row(ARM, 1, 5.0, 6.1, 10, 25))
    settings, rows = results.read(path)
    assert Scale.of(settings["scale"]) == SCALE
    assert rows == [START, row(ARM, 1, 5.0, 6.1, 10, 25)]
    assert json.loads(path.read_text().splitlines()[2])["values"]["recall@1"] == 0.25


def test_a_line_that_a_kill_cut_off_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "full.jsonl"
    with results.opened(path, SETTINGS) as kept:
        kept.add(START)
    whole = path.read_text()
    path.write_text(whole + row(ARM, 1, 5.0, 6.1, 10, 25).as_line()[:50])
    assert results.read(path)[1] == [START]
    with results.opened(path, SETTINGS) as kept:
        assert list(kept.rows) == [results.START]
        kept.add(row(ARM, 2, 5.0, 6.1, 10, 25))
    assert results.read(path)[1] == [START, row(ARM, 2, 5.0, 6.1, 10, 25)]


def test_even_the_first_line_may_be_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "full.jsonl"
    path.write_text('{"settings": {"sc')
    with results.opened(path, SETTINGS):
        pass
    assert results.read(path)[1] == []


def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "full.jsonl"
    with results.opened(path, SETTINGS):
        pass
    other = SETTINGS | {"start": "1" * 64}
    with (
        pytest.raises(
            results.ResultsError, match=r"start is 000.* there and 111.* now.*--state-dir"
        ),
        results.opened(path, other),
    ):
        pass
    assert json.loads(path.read_text())["settings"]["start"] == "0" * 64


def test_one_sweep_at_a_time_adds_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "full.jsonl"
    with (
        results.opened(path, SETTINGS),
        pytest.raises(results.ResultsError, match="is in use"),
        results.opened(path, SETTINGS),
    ):
        pass


@pytest.mark.parametrize("text", ["hello\n", "[1]\n", '{"settings": {}}\n{"name": "x"}\n'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "full.jsonl").write_text(text)
    with pytest.raises(results.ResultsError, match="no file of a sweep"):
        results.read(tmp_path / "full.jsonl")


def trains(monkeypatch: pytest.MonkeyPatch, train: Callable[[Cell], Row]) -> None:
    """Let a laboratory train by a function."""

    class Trained(laboratory.Laboratory):
        def __init__(self, *_: object) -> None:
            self.__dict__["settings"] = SETTINGS

        def start(self) -> Row:
            return START

        def run(self, cell: Cell) -> Row:
            return train(cell)

    monkeypatch.setattr(laboratory, "Laboratory", Trained)
    for name, threads in command._THREADS.items():
        # So that they are as before after the test.
        monkeypatch.setenv(name, threads)


def test_a_sweep_goes_on_where_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = tmp_path / "trained"

    def train(cell: Cell) -> Row:
        known = trained.read_text().split() if trained.exists() else []
        trained.write_text(" ".join([*known, cell.name]))
        if len(known) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return row(cell.arm, cell.seed, 5.0, 6.1, 10, 25)

    trains(monkeypatch, train)
    words = ["--encoder", "encoder", "--state-dir", str(tmp_path), "--quick"]
    planned = [cell.name for cell in cells(QUICK)]
    assert command.main(words) == 1
    assert f"{planned[3]}: its process ended with code -9" in capsys.readouterr().err
    command.main([*words, "--dry-run"])
    shown = capsys.readouterr().out
    assert f"{len(planned) - 3} of {len(planned)} cells left" in shown
    assert command.main(words) == 0
    # Only the one that was killed is done twice.
    assert trained.read_text().split() == [*planned[:4], *planned[3:]]
    assert [one.name for one in results.read(tmp_path / "quick.jsonl")[1]] == ["start", *planned]


# --- The tables ---


def sweep_of(*found: tuple[Arm, tuple[Any, ...]]) -> table.Sweep:
    rows = [row(arm, seed, *values) for arm, values in found for seed in SCALE.seeds]
    return table.Sweep(SETTINGS, [START, *rows])


def test_a_difference_is_between_the_means_of_seeds() -> None:
    seeds = [row(ARM, 1, 5.0, 6.1, 10, 25), row(ARM, 2, 5.4, 6.1, 10, 35)]
    better = table.difference(seeds, [START], results.DOMAIN_LOSS)
    # The same for all documents, so that there is nothing to be unsure of.
    assert better == pytest.approx((0.8, 0.8, 0.8))
    assert table.difference(seeds, [START], results.OLD_LOSS).mean == pytest.approx(-0.1)
    recall = table.difference(seeds, [START], results.RECALL)
    assert recall.mean == pytest.approx(-0.25)
    assert recall.low < -0.25 < recall.high < 0
    assert table.difference(seeds, [START], results.ACCURACY).mean == pytest.approx(0)


def test_one_setting_is_compared_where_nothing_else_differs() -> None:
    slow, static = replace(ARM, rate=2e-5), replace(ARM, dynamic=False)
    few = replace(static, steps=60)
    sweep = sweep_of(
        (ARM, (5.0, 6.0, 10, 25)),
        (slow, (5.5, 6.0, 20, 25)),
        (static, (5.2, 6.0, 10, 25)),
        (few, (5.1, 6.0, 15, 25)),
    )
    # A seed without its counterpart is left out.
    sweep.found[slow].pop()
    found = {
        label: (len(after), len(before), table.difference(after, before, results.DOMAIN_LOSS).mean)
        for label, after, before in table.contrasts(sweep)
    }
    assert found == {
        "rate 0.0001 instead of 2e-05": (1, 1, pytest.approx(0.5)),
        "dynamic masks instead of static ones": (2, 2, pytest.approx(0.2)),
        "steps 240 instead of 60, static masks": (2, 2, pytest.approx(-0.1)),
    }


def test_the_rule_takes_the_lowest_domain_loss_that_the_limits_allow() -> None:
    arms = main_arms(SCALE)
    sweep = sweep_of(
        (arms[0], (5.9, 6.0, 20, 25)),
        # Best, but it forgets too much.
        (arms[1], (4.0, 6.2, 20, 25)),
        # Better than the first, but it finds no document any more.
        (arms[2], (5.0, 6.05, 0, 25)),
        # As good as that, by less than the gate's margin.
        (arms[3], (5.005, 6.0, 2, 25)),
    )
    assert table.choose(sweep, retrieval=True) == [arms[0]]
    assert table.choose(sweep, retrieval=False) == [arms[3], arms[2]]
    # An arm that lacks a seed is not chosen.
    sweep.found[arms[0]].pop()
    assert table.choose(sweep, retrieval=True) == []
    assert "a sentence encoder: none, as the gate's limits let no arm pass" in table.markdown(sweep)
    sweep.found[arms[2]].pop()
    sweep.found[arms[1]].pop()
    sweep.found[arms[3]].pop()
    assert "encoder: none, as no arm has all its seeds yet" in table.markdown(sweep)


def test_the_tables_go_to_their_place_in_a_page(tmp_path: Path) -> None:
    with results.opened(tmp_path / "quick.jsonl", SETTINGS) as kept:
        kept.add(START)
        for seed in SCALE.seeds:
            kept.add(row(ARM, seed, 5.0 + seed / 10, 6.1, 10, 25))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{command._BEGIN}old\n{command._END}after\n")
    words = ["--state-dir", str(tmp_path), "--quick", "--table", str(page)]
    assert command.main(words) == command.main(words) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old\n" not in text.replace("old-text", "")
    line = next(line for line in text.splitlines() if line.startswith("| 0.0001"))
    assert line.startswith("| 0.0001 | 0.2 | dynamic | 0.1 | 6.5 | 2 | 5.150 ± 0.071; -0.850 (")
    assert "0.250 ± 0.000; -0.250 (-" in line
    page.write_text("no place")
    assert command.main(words) == 1


def test_there_is_no_table_without_the_start() -> None:
    with pytest.raises(results.ResultsError, match="start is not measured"):
        table.Sweep(SETTINGS, [])
