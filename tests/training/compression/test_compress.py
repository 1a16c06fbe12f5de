"""Children of a small real classifier: made by the command, judged, served and used."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_config.compression import DYNAMIC_RANGE
from pipeline_store.formats import CompressedModel, TrialResult
from pipeline_store.layout import ChildrenLayout
from tests.training.finetuning.text_tasks import LABELS, TextRun, make_store, train_run
from tests.training.jobs import BAD_DATA, USER_ERROR
from training import compress, predict, serve_check
from training.compression import tflite, trimmed, written

Capture = pytest.CaptureFixture[str]
SMALLEST = "student+trim+tflite_dynamic_range"
# On so few examples a small difference cannot be told from none.
SETTINGS = {"max_metric_loss": 1.0, "layers": 1, "num_train_epochs": 1.0}
WORDS = [
    word for name, value in SETTINGS.items() for word in ("--set", f"compression.{name}={value}")
]


@pytest.fixture(autouse=True)
def times() -> Iterator[None]:
    """Time nothing: that is a process with TensorFlow each, and what it says is nobody's matter
    here; test_measure_latency.py asks the command itself.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "latency", lambda *_: {"p50_ms": 1.0, "p95_ms": 2.0})
        yield


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> TextRun:
    """Return a run with a classifier of two layers."""
    store = make_store(tmp_path_factory.mktemp("children"))
    return train_run(store, "classification", layers=2)


def layout_of(run: TextRun) -> ChildrenLayout:
    return run.run.children(run.trial_id)


def make(run: TextRun, *names: str, sets: list[str] | None = None) -> int:
    words = [*run.arguments, *WORDS, *(sets or [])]
    for name in names:
        words += ["--child", name]
    return compress.main(words)


def child_of(run: TextRun, name: str) -> CompressedModel:
    return CompressedModel.load(layout_of(run).child(name).record)


def folder_of(run: TextRun, name: str) -> Path:
    child = child_of(run, name)
    return Path(layout_of(run).child(name).root, child.folder, child.served_as)


def predicted(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, dialect="excel-tab"))


def test_children_are_made_judged_served_and_used(
    one: TextRun, tmp_path: Path, capsys: Capture
) -> None:
    """The smallest child, by all steps, and one by a conversion alone."""
    assert make(one, SMALLEST, DYNAMIC_RANGE) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])[one.trial_id]
    assert {row["child"]: row["reasons"] for row in told} == {
        "parent": [],
        SMALLEST: [],
        DYNAMIC_RANGE: [],
    }
    lines = Path(layout_of(one).table).read_text().splitlines()
    assert [json.loads(line) for line in lines] == told
    assert SMALLEST in Path(layout_of(one).page).read_text()

    parent, child = child_of(one, SMALLEST).parent_figures, child_of(one, SMALLEST).figures
    assert child.parameters < parent.parameters
    assert child.types["int8"] > 0.9
    assert parent.types == {"float32": 1.0}
    # Weights of 8 bits for all but the small ones, and fewer of them.
    assert child.megabytes < parent.megabytes / 2
    assert child_of(one, DYNAMIC_RANGE).comparison.conversion_agreement > 0.97
    assert (folder_of(one, SMALLEST).parent / "README.md").exists()

    # As a server runs it.
    words = ["--model", str(folder_of(one, SMALLEST))]
    assert serve_check.main(words) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["label"] for line in shown} <= set(LABELS)

    # As it is used here: what the parent answers, for the child that is only converted.
    texts = Path(one.store.task(one.task).root, "train.jsonl")
    answers = []
    for number, more in enumerate(([], ["--child", DYNAMIC_RANGE])):
        output = tmp_path / f"{number}.tsv"
        words = [*one.arguments, "--task", one.task, "--input", str(texts), *more]
        assert predict.main([*words, "--output", str(output)]) == 0
        answers.append([row["label"] for row in predicted(output)])
    same = sum(mine == theirs for mine, theirs in zip(*answers, strict=True))
    assert len(answers[0]) == 90
    assert same >= 0.97 * 90


def test_what_is_there_is_left_alone_and_other_settings_are_refused(
    one: TextRun, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(one, DYNAMIC_RANGE)
    before = Path(layout_of(one).child(DYNAMIC_RANGE).record).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(tflite, "write", None)
        assert make(one, DYNAMIC_RANGE) == 0
    assert Path(layout_of(one).child(DYNAMIC_RANGE).record).read_bytes() == before
    # What a child by conversion alone does not depend on may change.
    assert make(one, DYNAMIC_RANGE, sets=["--set", "compression.num_train_epochs=2"]) == 0
    capsys.readouterr()
    assert make(one, DYNAMIC_RANGE, sets=["--set", "compression.min_agreement=0.5"]) == USER_ERROR


def test_a_damaged_child_is_not_used(one: TextRun, tmp_path: Path) -> None:
    make(one, DYNAMIC_RANGE)
    model = folder_of(one, DYNAMIC_RANGE) / "model.tflite"
    content = model.read_bytes()
    texts = str(Path(one.store.task(one.task).root, "train.jsonl"))
    words = [*one.arguments, "--task", one.task, "--input", texts, "--child", DYNAMIC_RANGE]
    try:
        model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert predict.main([*words, "--output", str(tmp_path / "out.tsv")]) == BAD_DATA
    finally:
        model.write_bytes(content)
    assert not (tmp_path / "out.tsv").exists()


def refused(run: TextRun, name: str, tmp_path: Path) -> list[str]:
    """Return why a child is refused, which then nothing serves; leave nothing of it."""
    assert make(run, name) == 0
    child = child_of(run, name)
    place = Path(layout_of(run).child(name).record)
    texts = str(Path(run.store.task(run.task).root, "train.jsonl"))
    words = [*run.arguments, "--task", run.task, "--input", texts, "--child", name]
    assert predict.main([*words, "--output", str(tmp_path / "out.tsv")]) == USER_ERROR
    assert [path.name for path in place.parent.iterdir()] == ["child.json"]
    place.unlink()
    assert not child.accepted
    return child.reasons


@pytest.mark.thorough
def test_a_converter_that_does_nothing_is_refused(
    one: TextRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = tflite.convert
    monkeypatch.setattr(tflite, "convert", lambda model, _: convert(model, "tflite_float32"))
    reasons = refused(one, "tflite_float16", tmp_path)
    assert any("0% of its weights are float16" in reason for reason in reasons)


@pytest.mark.thorough
def test_a_student_that_keeps_all_layers_is_refused(
    one: TextRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pruning that silently does nothing: the file is the parent's."""
    from training.compression.making import Maker

    monkeypatch.setattr(Maker, "_student", property(lambda maker: maker.parent))
    reasons = refused(one, "student", tmp_path)
    assert any("nothing was saved" in reason for reason in reasons)


@pytest.mark.thorough
def test_a_wrong_trimming_is_refused(
    one: TextRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = trimmed._smaller

    def shifted(model: Any, kept: Any) -> Any:
        found = smaller(model, kept)
        words = found.trained.model.variables[0]
        words.assign(words.numpy()[::-1])
        return found

    monkeypatch.setattr(trimmed, "_smaller", shifted)
    reasons = refused(one, "trim+tflite_float32", tmp_path)
    assert any("On text that its vocabulary covers" in reason for reason in reasons)


@pytest.mark.thorough
def test_one_student_is_trained_for_all_children(one: TextRun) -> None:
    """Its training is that of a trial: done once, and found again."""
    make(one, "student+tflite_float16")
    before = Path(layout_of(one).student.result).read_bytes()
    make(one, "student+trim+tflite_float16")
    assert Path(layout_of(one).student.result).read_bytes() == before
    result = TrialResult.load(layout_of(one).student.result)
    assert result.encoder.uri == f"runs/0123456789ab/trials/{one.trial_id}/training"
    assert result.settings["num_train_epochs"] == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--child", "trim+student"], "in this order"),
        (["--child", "student", "--set", "compression.layers=2"], "nothing would get smaller"),
        (["--child", "trim", "--set", "tpu.count=2"], "is not compression.NAME=VALUE"),
        ([], "compression.children is empty"),
    ],
)
def test_what_cannot_be_made_is_said_at_once(
    one: TextRun, words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert compress.main([*one.arguments, *words]) == USER_ERROR
    assert message in capfd.readouterr().err
