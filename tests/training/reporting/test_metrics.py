"""Metrics for programs: written in chunks, joined to one path, printed and drawn."""

from __future__ import annotations

import csv
import io
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline_store import uris
from pipeline_store.layout import RunLayout
from tests.pipeline_store.gcs_server import GcsState
from tests.training.conftest import TwoDays
from tests.training.corpora import TinyStore
from tests.training.jobs import (
    BAD_DATA,
    FAILED,
    PREEMPTED,
    ROOT,
    USER_ERROR,
    result,
    train,
    train_until,
)
from trained_models import metric_files
from trained_models.metric_files import (
    CHECKPOINT,
    FIELDS,
    HELD_OUT,
    LOOP,
    ROLLBACK,
    START,
    MetricFiles,
)
from training import metrics


def steps_of(records: list[dict[str, Any]], kind: str) -> list[int]:
    return [record["step"] for record in records if record["kind"] == kind]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert metrics.main(list(words)) == 0
    return capsys.readouterr().out


def test_every_loop_and_checkpoint_is_printed_in_order(
    two_days: TwoDays, capsys: pytest.CaptureFixture[str]
) -> None:
    run = two_days.first
    records = [json.loads(line) for line in printed(capsys, run.root).splitlines()]
    assert [(record["kind"], record["step"]) for record in records] == [
        *[(START, 0), (LOOP, 2), (LOOP, 4), (CHECKPOINT, 4), (LOOP, 6), (LOOP, 8)],
        *[(CHECKPOINT, 8), (LOOP, 10), (LOOP, 12), (CHECKPOINT, 12)],
    ]
    for record in records:
        assert record.keys() - {"kind", "step", "time"} <= set(FIELDS[record["kind"]])
    assert records[0]["train_steps"] == 12
    loop = records[-2]
    assert loop["loss"] == pytest.approx(result(run).final_loss)
    assert loop["model_tflops_per_second"] > 0
    assert 0 <= loop["input_wait_fraction"] <= 1
    # What a CPU could do at best, and how much memory its device uses, is not known.
    assert not {"mfu", "memory_bytes", "peak_memory_bytes"} & loop.keys()


def test_interruptions_leave_neither_gaps_nor_doubles(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    assert train_until(1, monkeypatch, tiny, run, manifest) == PREEMPTED
    assert train_until(2, monkeypatch, tiny, run, manifest) == PREEMPTED
    # As if killed: the newest checkpoint is lost, so that its steps are done again.
    Path(run.training.checkpoint(6)).unlink()
    assert train(tiny, run, manifest) == 0
    records = [json.loads(line) for line in printed(capsys, run.root).splitlines()]
    assert steps_of(records, START) == [0, 2, 4]
    assert steps_of(records, LOOP) == [2, 4, 6, 8, 10, 12]
    assert steps_of(records, CHECKPOINT) == [2, 4, 8, 12]
    assert sum(record.get("tokens", 0) for record in records) == result(run).tokens


def test_what_a_failed_training_said_last_is_kept(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")

    def fail(self: object) -> None:
        raise RuntimeError("after the first loop")

    monkeypatch.setattr("training.loop.trainer.Trainer._is_save_point", fail)
    assert train(tiny, run, manifest) == FAILED
    assert steps_of(metric_files.read(run.training.metrics), LOOP) == [2]


def test_a_checkpoint_that_is_reported_late_is_put_in_its_place(tmp_path: Path) -> None:
    files = MetricFiles(str(tmp_path))
    files.add(LOOP, 10, loss=2.0)
    files.add(LOOP, 20, loss=1.0)
    files.add(CHECKPOINT, 10)
    files.publish()
    kinds = [record["kind"] for record in metric_files.read(str(tmp_path))]
    assert kinds == [LOOP, CHECKPOINT, LOOP]


def test_output_may_be_cut_off(run: RunLayout) -> None:
    many = MetricFiles(run.training.metrics)
    for step in range(31, 3000):
        many.add(LOOP, step, steps=1, loss=1.0)
    many.publish()
    command = [sys.executable, "-m", "training.metrics", run.root]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert '"start"' in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    """Return a run with a loss that is no number, two rollbacks, and an interruption."""
    run = RunLayout(str(tmp_path / "run"))
    first = MetricFiles(run.training.metrics)
    first.add(START, 0, train_steps=40, peak_flops_per_second=None)
    for step, loss in ((10, 5.0), (20, 4.5), (30, 9.0)):
        first.add(LOOP, step, steps=10, loss=loss)
        first.publish()
    first.add(HELD_OUT, 30, loss=9.1)
    first.add(ROLLBACK, 20, from_step=30, reason="a spike")
    first.add(LOOP, 30, steps=10, loss=float("nan"))
    first.add(ROLLBACK, 20, from_step=30, reason="not finite")
    first.add(LOOP, 30, steps=10, loss=4.0)
    first.add(HELD_OUT, 30, loss=4.2)
    first.publish()
    return run


def test_a_rollback_takes_back_what_was_reported(run: RunLayout) -> None:
    records = metric_files.read(run.training.metrics)
    assert [(r["kind"], r["step"], r.get("loss")) for r in records] == [
        *[(START, 0, None), (LOOP, 10, 5.0), (LOOP, 20, 4.5)],
        *[(ROLLBACK, 20, None), (ROLLBACK, 20, None), (LOOP, 30, 4.0), (HELD_OUT, 30, 4.2)],
    ]
    assert [r["reason"] for r in records if r["kind"] == ROLLBACK] == ["a spike", "not finite"]


@pytest.mark.parametrize(("start", "rollbacks"), [(20, 0), (30, 2)])
def test_rollbacks_that_a_new_process_repeats_count_once(
    run: RunLayout, start: int, rollbacks: int
) -> None:
    second = MetricFiles(run.training.metrics)
    second.add(START, start, train_steps=40)
    second.publish()
    records = metric_files.read(run.training.metrics)
    assert len(steps_of(records, ROLLBACK)) == rollbacks
    assert steps_of(records, LOOP) == [step for step in (10, 20, 30) if step <= start]


def test_what_an_older_process_still_writes_does_not_count(run: RunLayout) -> None:
    older = MetricFiles(run.training.metrics)
    older.add(START, 10, train_steps=40)
    older.publish()
    newer = MetricFiles(run.training.metrics)
    newer.add(START, 10, train_steps=40)
    newer.add(LOOP, 20, steps=10, loss=1.0)
    newer.publish()
    older.add(LOOP, 20, steps=10, loss=2.0)
    older.add(LOOP, 30, steps=10, loss=2.0)
    older.publish()
    losses = [r["loss"] for r in metric_files.read(run.training.metrics) if r["kind"] == LOOP]
    assert losses == [5.0, 1.0]


def test_published_files_never_change(run: RunLayout) -> None:
    def content() -> dict[str, bytes]:
        return {uri: uris.read(uri) for uri in uris.list_files(run.training.metrics)}

    before = content()
    again = MetricFiles(run.training.metrics)
    again.publish()
    assert content() == before
    again.add(LOOP, 40, steps=10, loss=3.0)
    again.publish()
    again.publish()
    assert content().items() > before.items()
    assert len(content()) == len(before) + 1


def test_csv_has_a_column_for_every_field(
    run: RunLayout, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, run.root, "--csv"))))
    assert {name for fields in FIELDS.values() for name in fields} < rows[0].keys()
    assert [row["loss"] for row in rows] == ["", "5.0", "4.5", "", "", "4.0", "4.2"]
    assert rows[3]["reason"] == "a spike"


def test_learning_curve_is_a_picture(
    run: RunLayout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "curve.png"
    assert printed(capsys, run.root, "--plot", str(path)) == ""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (700, 400)

    assert metrics.main([run.root, "--plot", str(tmp_path / "curve.nothing")]) == USER_ERROR
    assert "use .png, .svg or .pdf" in capsys.readouterr().out


def test_plotting_without_matplotlib_is_explained(
    run: RunLayout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delitem(sys.modules, "training.reporting.learning_curve", raising=False)
    monkeypatch.delattr("training.reporting.learning_curve", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert metrics.main([run.root, "--plot", str(tmp_path / "curve.png")]) == USER_ERROR
    assert "--plot needs matplotlib.figure, which is not installed" in capsys.readouterr().out


def test_curve_shows_training_held_out_and_rollbacks(run: RunLayout, tmp_path: Path) -> None:
    path = tmp_path / "curve.svg"
    assert metrics.main([run.root, "--plot", str(path)]) == 0
    picture = path.read_text()
    for text in ("training", "held out", "rollback", "nats per token"):
        assert f"<!-- {text}" in picture or f"{text} -->" in picture


def test_a_run_without_metrics_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert metrics.main([str(tmp_path / "none")]) == USER_ERROR
    assert f"no metrics in {tmp_path}/none/training/metrics" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", ["{", "[1]", '{"kind": "loop"}', '{"kind": "weather", "step": 1}', '{"step": "one"}']
)
def test_a_damaged_file_is_named(
    run: RunLayout, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    uri = uris.list_files(run.training.metrics)[1]
    Path(uri).write_text(f'{{"kind": "loop", "step": 10, "loss": 1.0}}\n{line}\n')
    assert metrics.main([run.root]) == BAD_DATA
    assert f"{uri}, line 2, is no metrics record" in capsys.readouterr().out


def test_metrics_live_in_a_bucket_too(cloud_storage: GcsState) -> None:
    folder = RunLayout("gs://bucket/store/runs/r").training.metrics
    for step in (10, 20):
        files = MetricFiles(folder)
        files.add(START, step - 10, train_steps=20)
        files.add(LOOP, step, steps=10, loss=1.0)
        files.publish()
    assert steps_of(metric_files.read(folder), LOOP) == [10, 20]
