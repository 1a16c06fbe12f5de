"""TensorBoard calls runs by lineage, partition and date, not by the hashes of their folders."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from local.stack.named_runs import SETTINGS_FILE, link_runs
from pipeline_store.formats import RunRecord
from pipeline_store.layout import RunLayout, TrainingLayout

KEY = "0a1b2c3d4e5f"
NAME = f"laws/2026-01-31/2026-02-01_{KEY}"


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    run = RunLayout(str(tmp_path / "runs" / KEY))
    record(run).write(run.record)
    return run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def record(run: RunLayout, **changes: str) -> RunRecord:
    return RunRecord(
        run_key=KEY,
        dag_id="dag",
        run_id="1",
        partition="2026-01-31",
        lineage_id="laws",
        config_sha256="c",
        created=datetime(2026, 2, 1, tzinfo=UTC),
    ).model_copy(update=changes)


def links(tree: Path) -> dict[str, str]:
    found = (path for path in tree.rglob("*") if path.is_symlink())
    return {str(path.relative_to(tree)): str(path.readlink()) for path in found}


def write_events(training: TrainingLayout, name: str = "events.out.tfevents.1") -> str:
    path = Path(training.events) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return str(path)


def test_a_run_has_its_name_as_soon_as_it_has_events(run: RunLayout, tree: Path) -> None:
    runs = Path(run.root).parent
    link_runs(runs, tree)
    assert links(tree) == {}
    first = write_events(run.training)
    for _ in range(2):
        link_runs(runs, tree)
        assert links(tree) == {f"{NAME}/events.out.tfevents.1": first}
    second = write_events(run.training, "events.out.tfevents.2")
    link_runs(runs, tree)
    assert links(tree)[f"{NAME}/events.out.tfevents.2"] == second


def test_trials_are_below_their_run(run: RunLayout, tree: Path) -> None:
    record(run, partition="").write(run.record)
    path = write_events(run.trial("weather.model.1").training)
    link_runs(Path(run.root).parent, tree)
    name = f"laws/finetuning/2026-02-01_{KEY}/weather.model.1/events.out.tfevents.1"
    assert links(tree) == {name: path}


def test_what_is_gone_or_damaged_is_left_out(run: RunLayout, tree: Path) -> None:
    write_events(run.training)
    runs = Path(run.root).parent
    link_runs(runs, tree)
    Path(run.record).write_text("{")
    link_runs(runs, tree)
    assert links(tree) == {}


def test_settings_are_hyperparameters(run: RunLayout, tree: Path) -> None:
    write_events(run.training)
    Path(run.config).write_text(
        '{"kind": "x", "training": {"train_steps": 60, "x": null}, "tpu": {"zones": "z"}}'
    )
    link_runs(Path(run.root).parent, tree)
    [event] = EventFileLoader(str(tree / NAME / SETTINGS_FILE)).Load()
    [value] = event.summary.value
    data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
    assert set(data.session_start_info.hparams) == {"training.train_steps"}
    assert data.session_start_info.hparams["training.train_steps"].number_value == 60
