"""``python -m preflight check-config``."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_config import load_preset
from pipeline_store import uris
from preflight.__main__ import main
from tests.model_registry.retained import promoted
from tpu_emulator.testing import RunningEmulator, start_emulator

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for day in ("2026-01-30", "2026-01-31"):
        folder = tmp_path / "store" / "corpus" / day
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("text")
    return tmp_path / "store"


def call(*words: str) -> int:
    return main(["check-config", *words])


def line_of(capsys: Capture, name: str) -> str:
    """Return the line of the summary that begins so."""
    lines = capsys.readouterr().out.splitlines()
    return next(line for line in lines if line.startswith(f"  {name}: "))


def test_a_preset_alone(capsys: Capture) -> None:
    assert call("--preset", "bert_base_v5e") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "OK: lineage default, files not looked at (no --store)"
    assert out.splitlines()[1].startswith("  estimate: ")
    assert out.splitlines()[2].startswith("  by: no run like it is known; ")
    assert "20,000 steps of 2,048 rows = 40,960,000 rows of at most 128 tokens" in out
    assert "at most 230.40 USD, an estimate: 8 chips x 24 h x 1.2 USD a chip-hour" in out
    assert "v5litepod-8, spot, in us-central1-a" in out
    assert "budgets: at most 10 lost TPUs, 3 of them in a row without a new checkpoint" in out
    assert "never trained on" in out


def test_what_limits_the_cost_is_named(capsys: Capture) -> None:
    limits = ["--set", "budget.max_chip_hours=12", "--set", "budget.price_per_chip_hour=2"]
    assert call("--preset", "bert_base_v5e", *limits) == 0
    out = capsys.readouterr().out
    assert "at most 24.00 USD, an estimate: 12 chip-hours (budget.max_chip_hours) x 2 USD" in out


def test_the_compilers_estimate_of_the_step(capsys: Capture) -> None:
    assert call("--preset", "bert_base_v5e") == 0
    line = line_of(capsys, "step")
    assert re.search(r"256 rows take \d+\.\d GiB of a v5e chip's memory .*an estimate", line)

    assert call("--preset", "bert_base_v5e", "--set", "model.num_hidden_layers=11") == 0
    line = line_of(capsys, "step")
    assert "not compiled with these settings yet" in line


def test_a_line_per_violation(capsys: Capture) -> None:
    words = ["--set", "model.num_attention_heads=3", "--set", "train.train_steps=5"]
    assert call("--preset", "smoke", *words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "train.train_steps",
        "model.num_attention_heads",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preset", "smoky"], "preset: 'smoky' does not exist"),
        (["--config", "/absent/config.json"], "--config: /absent/config.json cannot be read"),
        (["--preset", "smoke", "--set", "training.train_steps"], "write section.name=value"),
        (["--preset", "smoke", "--store", "/proc/x"], "matches no file of any partition"),
        (["--preset", "smoke", "--store", "relative"], "relative: ValueError"),
        (["--preset", "smoke", "--store", "/proc/x", "--partition", "A/B"], "corpus.partition: "),
    ],
)
def test_what_is_refused(capsys: Capture, words: list[str], said: str) -> None:
    assert call(*words) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert said in line


def test_the_newest_partition_is_checked(store: Path, capsys: Capture) -> None:
    assert call("--preset", "smoke", "--store", str(store)) == 0
    assert "partition 2026-01-31" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--partition", "2026-01-30"], ["--set", "corpus.partition=2026-01-30"]]
)
def test_a_partition_can_be_named(store: Path, capsys: Capture, words: list[str]) -> None:
    assert call("--preset", "smoke", "--store", str(store), *words) == 0
    assert "partition 2026-01-30" in capsys.readouterr().out


def test_violations_of_the_store(store: Path, capsys: Capture) -> None:
    words = ["--partition", "2026-02-01", "--set", "vocabulary.uri=/absent/vocab.txt"]
    assert call("--preset", "smoke", "--store", str(store), *words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["corpus.input_pattern", "vocabulary.uri"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], "data: rows of 128 tokens, written once, masked anew by the trainer in each epoch\n"),
        (["masking.dynamic=false"], "data: rows of 128 tokens\n"),
        (
            ["masking.extra_max_seq_length=64"],
            "and of 64 beside them, for later runs, written once, masked anew by the trainer in",
        ),
        (
            ["masking.dynamic=false", "masking.dupe_factor=5", "masking.packing=segment_pair"],
            "each written 5 times with other masks, pairs of segments, so next-sentence prediction",
        ),
        (
            [
                "beam.runner=DataflowRunner",
                "beam.region=us-central1",
                "beam.temp_location=gs://bucket/temp",
                f"beam.sdk_container_image=image@sha256:{0:064}",
                "beam.max_num_workers=20",
            ],
            "on Dataflow in us-central1, at most 20 machines of n2-standard-4 (not in the cost)\n",
        ),
    ],
)
def test_rows_and_machines_are_announced(capsys: Capture, settings: list[str], said: str) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    assert call("--preset", "smoke", *words) == 0
    assert said in capsys.readouterr().out


def test_a_stored_configuration(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_bytes(load_preset("smoke").to_bytes())
    monkeypatch.chdir(tmp_path)
    assert call("--config", "config.json", "--set", "training.train_steps=200") == 0
    assert "200 steps of 32 rows" in capsys.readouterr().out
    (tmp_path / "config.json").write_bytes(b"{}")
    assert call("--config", "config.json") == 1
    assert "not a stored configuration" in capsys.readouterr().out


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEmulator]:
    with start_emulator(tmp_path_factory.mktemp("cloud")) as running:
        yield running


def test_the_cloud_is_asked_where_a_project_is_named(
    emulator: RunningEmulator, capsys: Capture
) -> None:
    cloud = ["--project", emulator.project, "--endpoint", emulator.endpoint, "--insecure"]
    assert call("--preset", "bert_base_v5e", *cloud) == 0
    assert capsys.readouterr().out.startswith("OK: ")
    assert call("--preset", "bert_base_v5e", *cloud, "--set", "tpu.zones=us-central2-b") == 1
    [line] = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("tpu.accelerator_type: ")
    ]
    assert "us-central2-b does not offer v5litepod-8; there is v4-8. Fix: gcloud" in line


def test_help_and_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "preflight", "check-config", "--help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "--partition" in done.stdout
    code = """
import sys
import preflight.run.checks, preflight.__main__
heavy = ("grpc", "tensorflow", "apache_beam", "airflow", "tokenizers", "py3langid", "pyarrow")
heavy += ("sentencex",)
sys.exit(",".join(name for name in heavy if name in sys.modules) or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fine_tuning_run_is_checked_before_it_is_asked_for(
    tmp_path: Path, capsys: Capture
) -> None:
    model = promoted(str(tmp_path), "1")
    task = model.store.task("weather")
    uris.write(task.description, b"")
    uris.write(uris.join(task.root, "train.tsv"), b"text\tlabel\n" + b"sun\tyes\nrain\tno\n" * 9)
    words = ["check-finetuning", "--preset", "finetuning_smoke", "--store", str(tmp_path)]
    assert main([*words, "--set", "finetuning.tasks=weather"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"OK: {model.version_id} on weather"
    assert any(line.startswith("  trials: 1 = 1 task(s) x models (model)") for line in lines)
    assert main([*words, "--set", "finetuning.tasks=absent,weather"]) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert "tasks/absent/task.toml does not exist" in line
    assert main(words) == 1
    assert "name at least one" in capsys.readouterr().out
