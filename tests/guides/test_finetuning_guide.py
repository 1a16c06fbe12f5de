"""Every command of the fine-tuning guide that runs here, as it is written there, in order."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from corpus.tokens.lineage_vocabulary import create_vocabulary
from corpus.tokens.wordpiece_training import train_wordpiece
from local.stack.paths import REPOSITORY
from model_registry import registry
from pipeline_store.formats import ModelVersion
from pipeline_store.layout import LineageLayout, StoreLayout
from tests.corpus.real_text import docstrings
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import train
from trained_models import artifacts

GUIDE = REPOSITORY / "docs" / "guides" / "finetuning.md"
FENCE = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)
BEGINNING = "export STORE=$PWD/.local/store LINEAGE=demo-1\n"
LINEAGE, VERSION = "guide", "v-0123456789ab"


def blocks(kind: str) -> list[str]:
    return [lines for _, found, lines in FENCE.findall(GUIDE.read_text()) if found == kind]


def make_model(store: StoreLayout) -> LineageLayout:
    """Leave a model in use, trained for a moment."""
    config = tiny_config(model__lineage_id=LINEAGE, vocabulary__size=600, model__vocab_size=600)
    vocabulary = train_wordpiece(docstrings(60_000), size=600, do_lower_case=True)
    lineage = store.lineage(LINEAGE)
    create_vocabulary(vocabulary, "a test", config, lineage)
    tiny = TinyStore(store, config)
    run = tiny.run("pretraining")
    assert train(tiny, run, tiny.partition("2026-01-01")) == 0
    files, prefix = artifacts.copy_checkpoint_files(run.training.root, lineage.version(VERSION))
    ModelVersion(
        version_id=VERSION,
        lineage_id=LINEAGE,
        parent=None,
        run_key="pretraining",
        partitions_seen=["2026-01-01"],
        files=files,
        checkpoint_prefix=prefix,
        vocabulary_sha256=vocabulary.sha256,
        train_steps_total=12,
        metrics={},
        created=datetime.now(UTC),
    ).write(lineage.model(VERSION))
    registry.promote(lineage, VERSION, expected_baseline=None, reason="a test")
    return lineage


def test_each_block_runs_here_or_says_why_not() -> None:
    kinds = {found for _, found, _ in FENCE.findall(GUIDE.read_text())}
    assert kinds == {"bash", "bash cloud", "json"}
    (settings,) = blocks("json")
    assert json.loads(settings)["conf"]["finetuning.tasks"] == ["modules"]


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_a_csv_becomes_a_tested_classifier(tmp_path: Path) -> None:
    store = StoreLayout(str(tmp_path / "store"))
    make_model(store)
    *first, last = blocks("bash")
    assert first[0].startswith(BEGINNING)
    first[0] = first[0].removeprefix(BEGINNING)
    *last_lines, clean_up = last.splitlines()
    assert clean_up.startswith("rm -r $STORE/tasks/modules $STORE/runs/first")
    # The clean-up is looked at on its own.
    script = tmp_path / "guide.sh"
    script.write_text("".join(first) + "\n".join(last_lines) + "\n")
    # As in a shell of a user's own, without what the tests' Airflow is told.
    environment = {name: value for name, value in os.environ.items() if "AIRFLOW" not in name}
    environment |= {"STORE": store.root, "LINEAGE": LINEAGE}

    def run(*words: str) -> str:
        done = subprocess.run(
            words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    printed = run("bash", "-euo", "pipefail", str(script))
    assert json.loads(printed.splitlines()[-1])["label"] in {"os", "math", "decimal"}
    with Path(store.root, "answers.tsv").open(newline="") as file:
        answers = list(csv.DictReader(file, dialect="excel-tab"))
    assert [(row["line"], bool(row["label"]), row["error"]) for row in answers] == [
        ("2", True, ""),
        ("4", True, ""),
        ("5", False, "empty_text: no text in the column that text_column names"),
    ]
    summary = json.loads(Path(store.root, "runs/first/training_summary.json").read_text())
    (task,) = summary["tasks"]
    assert task["random_seeds"] == [1, 2, 3]
    assert set(task["majority"]) == set(task["metrics"])
    assert Path(store.root, "runs/first/training_summary.html").exists()

    run("bash", "-euc", clean_up)
    left = {path.name for path in Path(store.root).iterdir()}
    assert left == {"lineages", "runs", "shards", "tasks"}
    assert [path.name for path in Path(store.runs).iterdir()] == ["pretraining"]
