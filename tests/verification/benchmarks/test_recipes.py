from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from verification.benchmarks.recipes import numerics, optimizers
from verification.benchmarks.recipes.plot import draw
from verification.benchmarks.recipes.trainings import Laboratory, Training, from_lines


def training(arm: str, *losses: float, seed: int = 1, float32: float | None = None) -> Training:
    curve = [(10 * number, loss) for number, loss in enumerate(losses, start=1)]
    return Training(arm, seed, 10 * len(losses), curve, 1.5, float32)


def test_steps_to_a_loss_lie_between_two_checkpoints() -> None:
    curve = [(10, 5.0), (20, 4.0), (30, 4.5), (40, 2.0)]
    assert optimizers.steps_to(4.5, curve) == 15
    assert optimizers.steps_to(3.25, curve) == 35
    assert optimizers.steps_to(6.0, curve) == 10
    assert optimizers.steps_to(1.0, curve) is None


def test_optimizers_are_compared_with_the_mean_of_adamw() -> None:
    runs = {
        "adamw": [training("adamw 0.1", 5.0, 4.0), training("adamw 0.1", 5.0, 3.0, seed=2)],
        "amos": [training("amos 0.1", 4.0, 3.0), training("amos 0.1", 5.0, 4.0, seed=2)],
    }
    adamw, amos = optimizers.compare({"adamw": 0.1, "amos": 0.1}, runs)
    assert adamw.losses == [4.0, 3.0]
    assert adamw.steps_to_reference == [None, 17.5]
    assert amos.steps_to_reference == [15.0, None]


def test_numerics_are_compared_seed_by_seed_in_float32() -> None:
    runs = {
        "float32": [training("float32", 3.0, float32=3.0), training("float32", 4.0, float32=4.0)],
        "bfloat16": [training("bfloat16", 3.2, float32=3.1), training("bfloat16", 3, float32=3.9)],
    }
    reference, lower = numerics.compare(runs)
    assert reference.differences == [0.0, 0.0]
    assert lower.differences == pytest.approx([0.1, -0.1])
    assert lower.own_losses == [3.2, 3.0]
    with pytest.raises(ValueError, match="float32, seed 1, was not scored"):
        numerics.compare({"float32": [training("float32", 3.0)]})


def test_a_training_that_is_done_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = training("amos 0.1", 4.0, 3.0)
    lines = [json.dumps({"name": "training", **asdict(before)}), '{"name": "other", "value": 1}']
    done = from_lines(lines)
    assert done == [before]
    with Laboratory(tmp_path, before.steps, done) as lab:
        assert lab.train("amos 0.1", {}, 1) == before
    assert from_lines(capsys.readouterr().out.splitlines()) == [before]
    assert not list(tmp_path.iterdir())


def test_rates_are_of_an_optimizer_that_there_is() -> None:
    assert optimizers._rates("amos=1e-2,0.02") == ("amos", (0.01, 0.02))
    for wrong in ("sgd=1", "amos", "amos="):
        with pytest.raises(argparse.ArgumentTypeError, match="adamw, lamb, amos"):
            optimizers._rates(wrong)


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    draw({"adamw": [training("adamw", 5.0, 4.0)]}, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
