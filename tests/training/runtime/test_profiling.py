"""Traces of some steps: which files they leave, what is in them, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from pipeline_store.layout import RunLayout
from tests.training.conftest import TwoDays
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import PREEMPTED, USER_ERROR, result, train, train_until
from training.runtime.profiling import Profiler, StepRange


def traces(run: RunLayout) -> list[Path]:
    return sorted(Path(run.training.events).glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.thorough
def test_trace_lies_where_tensorboard_looks_and_changes_nothing(
    tiny: TinyStore, two_days: TwoDays, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    assert train(tiny, run, manifest, "--profile", "4:7") == 0
    (trace,) = traces(run)
    space = XSpace.FromString(trace.read_bytes())
    names = {event.name for plane in space.planes for event in plane.event_metadata.values()}
    assert any("MatMul" in name or "Einsum" in name for name in names)
    output = capsys.readouterr().out
    assert f"Trace published in {run.training.events}/plugins/profile." in output
    assert result(run).weights_sha256 == result(two_days.first).weights_sha256


def test_trace_holds_exactly_the_steps_asked_for(tiny: TinyStore) -> None:
    config = tiny_config(training__steps_per_loop=4, training__train_steps=8)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r", config)
    assert train(tiny, run, manifest, "--profile", "3:5") == 0
    (trace,) = traces(run)
    counts = Counter(
        plane.event_metadata[event.metadata_id].name
        for plane in XSpace.FromString(trace.read_bytes()).planes
        for line in plane.lines
        for event in line.events
    )
    # Operations of the loop's body, nearly all of which run once a step.
    often = Counter(count for name, count in counts.items() if name.startswith("while/body/"))
    assert often.most_common(1)[0][0] == 3


@pytest.mark.thorough
def test_trace_survives_a_stop(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    words = [manifest, "--profile", "2:9"]
    assert train_until(2, monkeypatch, tiny, run, *words) == PREEMPTED
    assert len(traces(run)) == 1
    # The same command goes on, with the rest of the steps; and once they are done, without any.
    assert train_until(4, monkeypatch, tiny, run, *words) == PREEMPTED
    assert len(traces(run)) == 2
    capsys.readouterr()
    assert train(tiny, run, *words) == 0
    assert "Nothing is traced: the steps 2 to 9 are done already." in capsys.readouterr().out
    assert len(traces(run)) == 2


@pytest.mark.parametrize("steps", ["0:3", "5:4", "12:13", "13:13"])
def test_steps_that_the_run_has_not_are_refused(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str], steps: str
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    assert train(tiny, run, manifest, "--profile", steps) == USER_ERROR
    assert f"--profile {steps}: the run has the steps 1 to 12" in capsys.readouterr().out
    assert not Path(run.training.root).exists()


@pytest.mark.parametrize("text", ["5", "a:b", "1:2:3", ""])
def test_what_is_no_range_is_explained(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit):
        train(tiny, tiny.run("r"), "m", "--profile", text)
    assert f"{text!r} is not FIRST:LAST" in capsys.readouterr().err


def test_loops_end_where_the_trace_does(tmp_path: Path) -> None:
    assert Profiler(StepRange(3, 5), str(tmp_path)).stops == (2, 5)
    assert Profiler(None, str(tmp_path)).stops == ()
