"""Fine-tuned models in other formats, and used on texts; what has to be right before it counts."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from corpus.tokens.vocabulary import Vocabulary
from pipeline_store.formats import (
    ClassifierCheck,
    ModelExports,
    TaskSplit,
    TrialResult,
)
from pipeline_store.layout import StoreLayout
from tests.training import pretrained
from tests.training.corpora import CLS, SEP, TinyStore
from tests.training.finetuning.text_tasks import (
    LABELS,
    TextRun,
    folder_of,
    layout_of,
    make_store,
    manifest_of,
    manifest_path,
    model_config,
    scored_texts,
    train_run,
    vocabulary,
)
from tests.training.jobs import BAD_DATA, USER_ERROR, all_files
from trained_models import artifacts
from trained_models.downstream import metrics
from training import export_classifier, predict, serve_check
from training.exporting.lineage_tokenizer import LineageTokenizer
from training.finetuning.exporting import exporter, functions, hugging_face
from training.finetuning.exporting.checks import Subject
from training.finetuning.task_data import Examples, Task
from training.finetuning.trained import TrainedTrial

Capture = pytest.CaptureFixture[str]
BOTH = ["--format", "hugging_face", "--format", "saved_model"]
RUNS: dict[str, dict[str, Any]] = {
    "classification": {},
    "multi_label": {"pairs": True},
    "regression": {},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreLayout:
    return make_store(tmp_path_factory.mktemp("text-models"))


@pytest.fixture(scope="module")
def one(store: StoreLayout) -> TextRun:
    """Return a run whose model tests export as they like; they must not change it."""
    return train_run(store, "classification", key="a" * 12)


@pytest.fixture(
    scope="module",
    params=[
        "classification",
        *(pytest.param(kind, marks=pytest.mark.thorough) for kind in [*RUNS][1:]),
    ],
)
def exported(request: pytest.FixtureRequest, store: StoreLayout) -> TextRun:
    """Return a run of each kind, with its model in both formats."""
    if request.param == "classification":
        run = request.getfixturevalue("one")
    else:
        key = f"{list(RUNS).index(request.param):012x}"
        run = train_run(store, request.param, key=key, **RUNS[request.param])
    assert export_classifier.main([*run.arguments, *BOTH]) == 0
    return run


def test_both_formats_are_written_and_compared(exported: TextRun) -> None:
    layout = layout_of(exported)
    record = ModelExports.load(layout.record)
    assert sorted(record.formats) == ["hugging_face", "saved_model"]
    assert record.left_out == {}
    for format_ in record.formats.values():
        check = format_.check
        assert isinstance(check, ClassifierCheck)
        assert check.examples == manifest_of(exported).splits[TaskSplit.TEST].records > 16
        assert check.same_tokens > 0.8 * check.examples
        assert 0 <= check.max_logit_difference < 1e-4
    named = {f"{f.folder}/{file.path}" for f in record.formats.values() for file in f.files}
    assert set(all_files(layout.root)) == named | {"exports.json"}


def test_texts_get_the_answers_that_the_trainer_scored(exported: TextRun) -> None:
    texts, outputs = scored_texts(exported)
    signature = tf.saved_model.load(str(folder_of(exported, "saved_model"))).signatures["predict"]
    named = dict(zip(("text", "text_pair"), zip(*texts, strict=True), strict=False))
    found = signature(**{name: tf.constant(column) for name, column in named.items()})
    kind = manifest_of(exported).task_kind
    wanted = metrics.probabilities(kind, outputs)
    if kind == "regression":
        np.testing.assert_allclose(found["values"], outputs[:, 0], atol=1e-5)
        assert np.ptp(outputs) > 0.5
        return
    np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-5)
    names = manifest_of(exported).labels
    chosen = metrics.predictions(kind, outputs)
    assert len(np.unique(chosen, axis=0)) > 1
    if kind == "classification":
        assert found["labels"].numpy().tolist() == [names[n].encode() for n in chosen]
    else:
        wanted_names = np.where(chosen == 1, [name.encode() for name in names], b"")
        assert found["labels"].numpy().tolist() == wanted_names.tolist()
    assert found["classes"].numpy().tolist() == [[n.encode() for n in names]] * len(texts)


def test_the_folder_of_hugging_face_computes_the_same_by_its_rules(exported: TextRun) -> None:
    folder = folder_of(exported, "hugging_face")
    tensors = load_file(folder / "model.safetensors")
    names = {"classifier": "cls.seq_relationship"}
    weights = {name.replace("classifier", names["classifier"]): v for name, v in tensors.items()}
    inputs = Task.load(str(manifest_path(exported))).examples(TaskSplit.TEST).inputs
    _, outputs = scored_texts(exported)
    found = pretrained.bert_outputs(weights, inputs)["next_sentence"]
    np.testing.assert_allclose(found, outputs, atol=1e-4)
    assert not any(name.startswith("cls.") for name in tensors)


def test_the_folder_of_hugging_face_says_what_the_answers_mean(exported: TextRun) -> None:
    folder, manifest = folder_of(exported, "hugging_face"), manifest_of(exported)
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    problems = {
        "classification": "single_label_classification",
        "multi_label": "multi_label_classification",
        "regression": "regression",
    }
    assert config["problem_type"] == problems[manifest.task_kind]
    labels = manifest.labels or ["label"]
    assert config["id2label"] == {str(number): label for number, label in enumerate(labels)}
    assert config["label2id"] == {label: number for number, label in enumerate(labels)}
    assert (config["hidden_dropout_prob"], config["classifier_dropout"]) == (0.1, 0.1)
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 24
    card = (folder / "README.md").read_text()
    assert f"# BERT for the task {exported.task}" in card
    assert ("text_pair" in card) == exported.task.endswith("pairs")


def test_exporting_again_changes_nothing(exported: TextRun, capsys: Capture) -> None:
    before = all_files(layout_of(exported).root)
    assert export_classifier.main([*exported.arguments, *BOTH]) == 0
    captured = capsys.readouterr()
    assert "as they were written" in captured.err
    summary = json.loads(captured.out)[exported.trial_id]
    assert summary["hugging_face"]["folder"] == str(folder_of(exported, "hugging_face"))
    assert all_files(layout_of(exported).root) == before
    assert export_classifier.main([*exported.arguments, "--format", "saved_model"]) == USER_ERROR


def read_answers(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, dialect="excel-tab"))


def test_every_line_gets_an_answer_or_a_reason(
    exported: TextRun, tmp_path: Path, capsys: Capture
) -> None:
    texts, outputs = scored_texts(exported)
    lines = [json.dumps(dict(zip(("text", "second"), row, strict=False))) for row in texts]
    lines[3:3] = ['{"text": ""', '{"text": " ", "second": "x"}', '{"second": "x"}']
    source, target = tmp_path / "texts.jsonl", tmp_path / "answers.tsv"
    source.write_text("".join(f"{line}\n" for line in lines))
    words = ["--task", exported.task, "--input", str(source), "--output", str(target)]
    assert predict.main([*exported.arguments, *words, "--batch-size", "4"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rows"], summary["errors"]) == (len(lines), 3)
    answers = read_answers(target)
    assert [int(answer["line"]) for answer in answers] == list(range(1, len(lines) + 1))
    assert {answer["file"] for answer in answers} == {str(source)}
    failed = [answer for answer in answers if answer["error"]]
    assert [answer["line"] for answer in failed] == ["4", "5", "6"]
    assert "empty_text: no text in the column that text_column names" in failed[1]["error"]
    good = [answer for answer in answers if not answer["error"]]
    manifest = manifest_of(exported)
    shares = metrics.probabilities(manifest.task_kind, outputs)
    if manifest.task_kind == "regression":
        found = [float(answer["value"]) for answer in good]
        np.testing.assert_allclose(found, outputs[:, 0], atol=1e-4)
        return
    found = [[float(answer[f"p({name})"]) for name in manifest.labels] for answer in good]
    np.testing.assert_allclose(found, shares, atol=1e-5)
    chosen = metrics.predictions(manifest.task_kind, outputs)
    if manifest.task_kind == "classification":
        assert [answer["label"] for answer in good] == [manifest.labels[n] for n in chosen]
        largest = [float(answer["probability"]) for answer in good]
        np.testing.assert_allclose(largest, shares.max(axis=1), atol=1e-5)
    else:
        sets = [",".join(np.array(manifest.labels)[row == 1]) for row in chosen]
        assert [answer["labels"] for answer in good] == sets


@pytest.mark.parametrize(("has_pairs", "texts"), [(True, ("w5 w6", "w7")), (False, ("w5 w6",))])
def test_exports_are_tried_out_on_one_text_or_two(
    has_pairs: bool, texts: tuple[str, ...], tmp_path: Path
) -> None:
    tiny = TinyStore.create(tmp_path)
    rows = {
        "input_word_ids": np.array([[CLS, 5, 6, SEP, 7, SEP, 0]]),
        "input_type_ids": np.array([[0, 0, 0, 0, 1, 1, 0]]),
    }
    subject = Subject(
        cast(TrainedTrial, None),  # Not looked at.
        LineageTokenizer.load(tiny.layout, tiny.config),
        Examples(rows, labels=None),
        has_pairs,
    )
    assert subject.texts == [texts]


# A process that imports TensorFlow.
@pytest.mark.thorough
def test_serving_needs_nothing_but_tensorflow(exported: TextRun, tmp_path: Path) -> None:
    code = """
import json, sys
from training import serve_check
code = serve_check.main(sys.argv[1:])
heavy = {"official", "pydantic", "tokenizers", "pipeline_config"} & set(sys.modules)
print(json.dumps([code, sorted(heavy)]))
"""
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code, "--model", str(folder_of(exported, "saved_model"))],
        cwd=tmp_path,
        env={"PYTHONPATH": root, "PATH": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    *lines, last = done.stdout.splitlines()
    assert json.loads(last) == [0, []]
    answers = [json.loads(line) for line in lines]
    assert len(answers) == 4
    kind = manifest_of(exported).task_kind
    if kind == "regression":
        assert all(isinstance(answer["value"], float) for answer in answers)
    else:
        labels = manifest_of(exported).labels
        assert all(list(answer["probabilities"]) == labels for answer in answers)


def test_a_model_that_is_no_classifier_is_found(
    one: TextRun, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert serve_check.main(["--model", str(tmp_path)]) == USER_ERROR
    assert "is no written model" in capsys.readouterr().err
    assert serve_check.main(["--model", "x", "--text", "a", "--text-pair", "b", "--text", "c"]) == (
        USER_ERROR
    )

    class Other(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
            shares = tf.fill([tf.size(text), 2], 0.7)
            names = tf.fill([tf.size(text), 2], "a")
            return {"labels": names[:, 0], "probabilities": shares, "classes": names}

    other = Other()
    tf.saved_model.save(other, str(tmp_path / "other"), signatures=other.answer)
    assert serve_check.main(["--model", str(tmp_path / "other")]) == BAD_DATA
    assert "do not add up to 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"values": np.array([1.0])}, "are not 2 finite numbers"),
        ({"values": np.array([1.0, np.nan])}, "are not 2 finite numbers"),
        ({"logits": np.zeros((2, 2))}, "which no classifier of ours does"),
        ({"labels": [b"a", b"b"], "shares": [[0.5, np.nan]] * 2}, "some of its probabilities"),
        ({"labels": [b"a", b"b"], "shares": [[0.5, 0.5]]}, "have the shapes"),
        ({"labels": [b"a", b"c"], "shares": [[0.5, 0.5]] * 2}, "none of its classes"),
    ],
)
def test_malformed_answers_are_found(answers: dict[str, Any], message: str) -> None:
    if "shares" in answers:
        answers = {
            "labels": np.array(answers["labels"], object),
            "probabilities": np.array(answers["shares"]),
            "classes": np.array([[b"a", b"b"]] * 2, object),
        }
    with pytest.raises(serve_check.MalformedError, match=message):
        serve_check.read_answers(answers, 2)


def wrong_bias() -> Callable[..., None]:
    """Return a writer of weights that is wrong about the classifier."""
    write = hugging_face.write_weights

    def write_wrongly(folder: Path, model: Any, classifier: Any) -> None:
        bias = classifier.classifier.bias
        bias.assign_add(tf.fill(bias.shape, 0.001))
        write(folder, model, classifier)
        bias.assign_sub(tf.fill(bias.shape, 0.001))

    return write_wrongly


@pytest.mark.thorough
def test_a_wrong_format_is_found_before_anything_is_committed(
    one: TextRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = [*one.arguments, "--trial", one.trial_id, "--output", f"{tmp_path}/out"]
    with monkeypatch.context() as patch:
        patch.setattr(hugging_face, "write_weights", wrong_bias())
        assert export_classifier.main([*words, *BOTH]) == BAD_DATA
    assert "hugging_face is not the model: logits differ by 1.0e-03" in capsys.readouterr().err

    with monkeypatch.context() as patch:
        tokens = vocabulary("wordpiece").tokens
        reversed_tokens = (*tokens[:5], *reversed(tokens[5:]))
        make = exporter.SegmentRowBuilder
        other = exporter.LineageTokenizer.text_ops

        def wrong_ops(self: Any, normalization: str) -> Any:
            return other(type(self)(self.info, Vocabulary(reversed_tokens)), normalization)

        patch.setattr(exporter.LineageTokenizer, "text_ops", wrong_ops)
        assert export_classifier.main([*words, "--format", "saved_model"]) == BAD_DATA
        assert make is exporter.SegmentRowBuilder
    assert "saved_model makes other tokens of" in capsys.readouterr().err

    with monkeypatch.context() as patch:
        right = functions.answers

        def wrong_labels(kind: str, labels: Any, logits: Any) -> Any:
            answers = right(kind, labels, logits)
            return answers | {"labels": tf.roll(answers["labels"], 1, axis=0)}

        patch.setattr(functions, "answers", wrong_labels)
        assert export_classifier.main([*words, "--format", "saved_model"]) == BAD_DATA
    assert "saved_model names other labels than" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_damaged_trial_is_refused(one: TextRun, tmp_path: Path, capsys: Capture) -> None:
    training = one.run.trial(one.trial_id).training
    words = ["--trial", one.trial_id]
    export = [*one.arguments, *words, "--format", "saved_model", "--output", f"{tmp_path}/out"]
    source = tmp_path / "a.tsv"
    source.write_text("text\nhello\n")
    ask = [*one.arguments, *words, "--input", str(source), "--output", f"{tmp_path}/b.tsv"]

    prefix = artifacts.model_files(training.root)
    (data,) = [f for f in prefix.files if ".data-" in f.path]
    for uri in (f"{training.root}/{data.path}", str(manifest_path(one))):
        path = Path(uri)
        content = path.read_bytes()
        path.write_bytes(content.replace(b'"warnings": [', b'"warnings": ["x"') if
                         path.suffix == ".json" else content[::-1])  # fmt: skip
        try:
            for main, arguments in ((export_classifier.main, export), (predict.main, ask)):
                assert main(arguments) == BAD_DATA
                assert path.name in capsys.readouterr().err
        finally:
            path.write_bytes(content)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.tsv"]


def test_wrong_requests_are_refused_before_tensorflow_is_asked(
    one: TextRun, tmp_path: Path, capsys: Capture
) -> None:
    def refused(main: Callable[[list[str]], int], *words: str) -> str:
        assert main([*one.arguments, *words]) == USER_ERROR
        return capsys.readouterr().err

    export, ask = export_classifier.main, predict.main
    assert "finetuning.export_formats is empty" in refused(export)
    assert "say which one by --trial" in refused(export, *BOTH, "--output", "x")
    unknown = refused(export, *BOTH, "--trial", "other")
    assert f"has no trial 'other'; it has {one.trial_id}" in unknown
    assert "has no model of task other" in refused(ask, "--task", "other")
    assert "names no files by predict" in refused(ask, "--task", one.task)
    missing = str(tmp_path / "none.tsv")
    assert "none.tsv does not exist" in refused(ask, "--task", one.task, "--input", missing)
    assert "--batch-size: 0" in refused(ask, "--task", one.task, "--batch-size", "0")

    summary = Path(one.run.training_summary)
    content = summary.read_bytes()
    summary.unlink()
    try:
        assert "or name one by --trial" in refused(export, *BOTH)
    finally:
        summary.write_bytes(content)


def test_a_dry_run_stores_nothing(one: TextRun, tmp_path: Path, capsys: Capture) -> None:
    words = ["--trial", one.trial_id, "--format", "hugging_face", "--output", f"{tmp_path}/out"]
    assert export_classifier.main([*one.arguments, *words, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)[one.trial_id]["hugging_face"]["examples"] > 16
    assert not (tmp_path / "out").exists()


def test_a_run_that_uses_another_runs_models_predicts_its_own_files(
    one: TextRun, capsys: Capture
) -> None:
    from beam_jobs.prepare_task import prepare_task
    from pipeline_config import FinetuningConfig
    from pipeline_config.finetuning import RecipeConfig
    from pipeline_store.formats import FinetuningPlan

    store, folder = one.store, Path(one.store.task(one.task).root)
    description = folder / "task.toml"
    before = description.read_text()
    (folder / "new.csv").write_text('text\n"return a, b"\n\nvalue\n')
    description.write_text(f'{before}predict = "new.csv"\n')
    prepared = prepare_task(store, one.task, lineage_id="default", max_seq_length=24)
    description.write_text(before)
    run = store.run("b" * 12)
    source = one.run.root.rpartition("/")[2]
    recipe = RecipeConfig(mode="predict", source_run=source, tasks=[one.task])
    Path(run.root).mkdir()
    Path(run.config).write_bytes(FinetuningConfig(finetuning=recipe).to_bytes())
    plan = FinetuningPlan.load(one.run.finetuning_plan)
    plan.model_copy(update={"manifests": {one.task: prepared.manifest_uri}}).write(
        run.finetuning_plan
    )
    words = ["--run", run.root, "--store", store.root, "--task", one.task]
    assert predict.main(words) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["predictions"] == run.predictions(one.task)
    answers = read_answers(Path(run.predictions(one.task)))
    assert [(answer["line"], answer["error"]) for answer in answers] == [("2", ""), ("4", "")]
    assert {answer["label"] for answer in answers} <= set(LABELS)
    (folder / "new.csv").write_text("text\nanother\n")
    assert predict.main(words) == BAD_DATA
    assert "new.csv was changed" in capsys.readouterr().err
    # Its exports are its own, too.
    assert export_classifier.main([*words[:4], "--format", "hugging_face"]) == 0
    assert Path(run.trial_exports(one.trial_id).record).exists()


@pytest.mark.thorough
def test_a_probe_has_no_folder_of_hugging_face(store: StoreLayout, capsys: Capture) -> None:
    probe = train_run(store, "multi_label", key="c" * 12, frozen_encoder=True)
    assert export_classifier.main([*probe.arguments, *BOTH]) == 0
    assert "hugging_face is left out: the encoder was frozen" in capsys.readouterr().err
    record = ModelExports.load(layout_of(probe).record)
    assert sorted(record.formats) == ["saved_model"]
    test_texts_get_the_answers_that_the_trainer_scored(probe)


@pytest.mark.thorough
def test_a_sentencepiece_vocabulary_has_no_folder_of_hugging_face(
    tmp_path: Path, capsys: Capture
) -> None:
    pieces = make_store(tmp_path / "store", "sentencepiece")
    run = train_run(pieces, "classification", pairs=True, vocabulary_kind="sentencepiece")
    assert export_classifier.main([*run.arguments, *BOTH]) == 0
    assert "hugging_face is left out: the vocabulary is a Sent" in capsys.readouterr().err
    record = ModelExports.load(layout_of(run).record)
    assert sorted(record.formats) == ["saved_model"]
    test_texts_get_the_answers_that_the_trainer_scored(run)
    Path(pieces.lineage("default").sentencepiece_model).write_bytes(b"damaged")
    words = ["--trial", run.trial_id, "--format", "saved_model", "--output", f"{tmp_path}/again"]
    assert export_classifier.main([*run.arguments, *words]) == BAD_DATA


@pytest.mark.thorough
def test_a_model_of_bfloat16_is_used_in_float32(tmp_path: Path) -> None:
    run = train_run(make_store(tmp_path / "store"), "regression", mixed_precision_dtype="bfloat16")
    assert export_classifier.main([*run.arguments, "--format", "saved_model"]) == 0
    result = TrialResult.load(run.run.trial(run.trial_id).result)
    assert result.settings["mixed_precision_dtype"] == "bfloat16"
    signature = tf.saved_model.load(str(folder_of(run, "saved_model"))).signatures["predict"]
    texts, outputs = scored_texts(run)
    found = signature(text=tf.constant([row[0] for row in texts]))["values"]
    assert found.dtype == tf.float32
    difference = np.abs(found.numpy() - outputs[:, 0]).max()
    assert 0 < difference < 0.1
    assert model_config().training.mixed_precision_dtype == "float32"
