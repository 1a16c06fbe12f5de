from __future__ import annotations

import sys
from pathlib import Path

import pytest

from verification.benchmarks.train.contest import SideFailedError, SideName, Sizes, contest, running

SIDE = """
import sys
import time
from verification.benchmarks.train.sides import serving

class Counting:
    about = {"versions": {"counting": "1"}}

    def __init__(self, options):
        self.calls = []
        print("noise of a library")

    def run(self, steps):
        with open(options_work, "a") as log:
            log.write(f"{name} {steps}\\n")
        time.sleep(0.05 * steps)
        sum(range(100_000 * steps))
        return {"flops": 1e9 * steps}

    def profile(self, steps):
        return {"wall clock of a step": 2.0, "MatMul": 1.5}

def build(options):
    global options_work, name
    options_work, name = options.work, options.shape
    if name == "broken":
        sys.exit("no such library")
    return Counting(options)

sys.exit(serving.main(build))
"""


class Scripted(SideName):
    """A side whose program is a file of the test."""

    def command(self, work: Path, threads: int) -> list[str]:
        command = super().command(work, threads)
        return [sys.executable, str(work.with_suffix(".py")), *command[3:]]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "log.py").write_text(SIDE)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    return tmp_path / "log"


def test_sides_take_turns_and_are_warmed_up_first(work: Path) -> None:
    names = [Scripted("x", "left"), Scripted("x", "right")]
    found = contest(names, work, 1, Sizes(rounds=3, steps=2, warm_up=(1, 1)))
    lines = work.read_text().split("\n")
    assert lines[:4] == ["left 1", "left 1", "right 1", "right 1"]
    turns = [line[:-2] for line in lines[4:10]]
    assert turns == ["left", "right", "right", "left", "left", "right"]
    for side in found.values():
        assert len(side.wall_s) == len(side.cpu_s) == 3
        # Of one step, not of a request.
        assert side.wall_s == [answer["wall_s"] / 2 for answer in side.answers]
        assert side.seconds >= 0.05
        assert 0 < side.cpu_seconds < side.seconds
        assert side.about == {"versions": {"counting": "1"}}
        assert 0.0 < side.flops_per_second < 1e9 / 0.05


def test_a_side_can_be_profiled(work: Path) -> None:
    with running(Scripted("x", "left"), work, 1) as side:
        side.answer()
        assert side.ask(profile=3) == {"wall clock of a step": 2.0, "MatMul": 1.5}


def test_a_side_that_cannot_run_is_told_with_its_log(work: Path) -> None:
    names = [Scripted("x", "left"), Scripted("x", "broken")]
    with pytest.raises(SideFailedError, match=r"broken, float32: exit 1\n(.|\n)*no such library"):
        contest(names, work, 1, Sizes())


def test_a_command_names_the_environment_and_every_option(tmp_path: Path) -> None:
    name = SideName("hugging_face", "minilm", "bfloat16", dropout=0.1, compiled=True)
    python, *rest = name.command(tmp_path, 2)
    assert python.endswith(".venv-torch/bin/python")
    assert {"--compile", "minilm", "bfloat16", "0.1"} <= set(rest)
    assert SideName("ours").command(tmp_path, 2)[0] == sys.executable
