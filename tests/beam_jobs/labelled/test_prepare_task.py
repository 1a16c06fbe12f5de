"""The job from files to a manifest: records, splits, repetition, engines, the command line."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs import prepare_task
from beam_jobs.labelled import conversion
from corpus.errors import BadDataError, UserError
from corpus.text.reading import InputChangedError
from corpus.tokens.sentencepiece_tokens import train_sentencepiece
from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import CLS, SEP
from pipeline_config import ConfigError, FinetuningConfig, PipelineConfig
from pipeline_config.finetuning import EncoderConfig, RecipeConfig
from pipeline_store.formats import TaskManifest
from tests.beam_jobs.labelled.tasks import (
    LINEAGE,
    NAME,
    PREDICT,
    TEST,
    TRAIN,
    VALIDATION,
    TaskBench,
    jsonl,
    label_counts,
    make_bench,
    rows,
    sentence,
    tsv,
    words,
)
from tests.corpus.converted import VOCABULARY

REPOSITORY = Path(__file__).parents[3]
LABELLED = (TRAIN, VALIDATION, TEST)


def test_records_are_in_order_of_input_with_features_as_agreed(bench: TaskBench) -> None:
    bench.max_seq_length = 16
    bench.describe(validation="validation.*", test="test.*", max_truncated_fraction=1.0)
    bench.put(
        "train.tsv", tsv([["ba ke.", "pos"], ["li mo", "neg"], ["nu", "pos"], ["wen", "neg"]])
    )
    bench.put("validation.tsv", tsv([["xi", "neg"]]))
    bench.put("test.tsv", tsv([["dor fal gim", "neg"], ["Ba" * 50, "pos"]]))
    prepared = bench.prepare()
    manifest = prepared.manifest
    assert (manifest.labels, manifest.compared_by) == (["neg", "pos"], "accuracy")
    assert label_counts(manifest, TEST) == {"neg": 1, "pos": 1}
    train = bench.examples(prepared, TRAIN)
    assert [words(one) for one in train] == [
        "[CLS] ba ke . [SEP]", "[CLS] li mo [SEP]", "[CLS] nu [SEP]", "[CLS] wen [SEP]"
    ]  # fmt: skip
    assert {name: values.tolist() for name, values in train[0].items()} == {
        "input_ids": [VOCABULARY.ids[t] for t in ("[CLS]", "ba", "ke", ".", "[SEP]")] + [0] * 11,
        "input_mask": [1] * 5 + [0] * 11,
        "segment_ids": [0] * 16,
        "label_ids": [1],
        "example_id": [0],
    }
    assert [int(one["label_ids"][0]) for one in train] == [1, 0, 1, 0]
    assert [int(one["example_id"][0]) for one in train] == [0, 1, 2, 3]
    assert bench.sources(prepared, TRAIN) == [("train.tsv", n) for n in (2, 3, 4, 5)]
    test = manifest.splits[TEST]
    assert (test.records, test.truncated, test.tokens) == (2, 1, 5 + 16)


def test_pairs_are_two_segments(bench: TaskBench) -> None:
    bench.describe(text_pair_column="other")
    lines = [[text, sentence(500 + n), x] for n, (text, x) in enumerate(rows(60))]
    bench.put("train.tsv", tsv([*lines, ["ba", "ke li", "pos"]], ("text", "other", "label")))
    prepared = bench.prepare()
    found = [one for split in LABELLED for one in bench.examples(prepared, split)]
    (mine,) = [one for one in found if words(one) == "[CLS] ba [SEP] ke li [SEP]"]
    assert mine["segment_ids"][:7].tolist() == [0, 0, 0, 1, 1, 1, 0]
    assert len(found) == 61


def test_several_labels_are_flags(bench: TaskBench) -> None:
    bench.describe(kind="multi_label")
    bench.put("train.jsonl", jsonl(rows(60, [["a", "c"], [], ["b"], ["c"]])))  # type: ignore[list-item]
    prepared = bench.prepare()
    assert prepared.manifest.labels == ["a", "b", "c"]
    flags = {tuple(one["label_ids"].tolist()) for one in bench.examples(prepared, TRAIN)}
    assert flags == {(1, 0, 1), (0, 0, 0), (0, 1, 0), (0, 0, 1)}
    counts = label_counts(prepared.manifest, TRAIN)
    assert counts["c"] > counts["a"]


def test_regression_labels_are_numbers(bench: TaskBench) -> None:
    bench.describe(kind="regression")
    bench.put("train.tsv", tsv(rows(60, ["-1.5", "2", "1e-3"])))
    prepared = bench.prepare()
    assert (prepared.manifest.labels, label_counts(prepared.manifest, TRAIN)) == ([], {})
    found = [one["label_ids"] for one in bench.examples(prepared, TRAIN)]
    assert {one.dtype for one in found} == {np.dtype(np.float32)}
    assert {float(one[0]) for one in found} == {-1.5, 2.0, float(np.float32(1e-3))}


def test_texts_to_predict_have_no_labels(bench: TaskBench) -> None:
    bench.describe(predict="predict.*")
    bench.put("train.tsv", tsv(rows(60)))
    # Texts that are trained on may be predicted, too.
    bench.put("predict.tsv", tsv([["ke ba"], [rows(1)[0][0]]], ["text"]))
    prepared = bench.prepare()
    found = bench.examples(prepared, PREDICT)
    assert next(words(one) for one in found) == "[CLS] ke ba [SEP]"
    assert [sorted(one) for one in found] == [
        ["example_id", "input_ids", "input_mask", "segment_ids"]
    ] * 2
    assert label_counts(prepared.manifest, PREDICT) == {}
    assert bench.sources(prepared, PREDICT) == [("predict.tsv", 2), ("predict.tsv", 3)]
    assert prepared.manifest.files == [str(bench.folder / n) for n in ("train.tsv", "predict.tsv")]


def test_sentencepiece_vocabulary_makes_the_tokens(tmp_path: Path) -> None:
    lines = rows(60)
    vocabulary = train_sentencepiece([text for text, _ in lines], size=200, do_lower_case=True)
    bench = make_bench(tmp_path / "sentencepiece", vocabulary)
    bench.describe()
    bench.put("train.tsv", tsv(lines))
    prepared = bench.prepare()
    (_, line), *_ = bench.sources(prepared, TRAIN)
    found = bench.examples(prepared, TRAIN)[0]["input_ids"]
    ids, _ = make_tokenizer(vocabulary, True).encode([lines[line - 2][0]])
    wanted = [vocabulary.ids[CLS], *ids.tolist(), vocabulary.ids[SEP]]
    assert found.tolist() == wanted + [0] * (128 - len(wanted))


def as_parquet(lines: list[list[str]]) -> bytes:
    data = io.BytesIO()
    texts, labels = zip(*lines, strict=True)
    pq.write_table(pa.table({"text": list(texts), "label": list(labels)}), data)
    return data.getvalue()


def test_same_content_is_the_same_records_in_every_format(bench: TaskBench) -> None:
    lines = rows(60)
    contents: dict[str, str | bytes] = {
        "train.tsv": tsv(lines),
        "train.csv": "text,label\r\n" + "".join(f'"{text}",{x}\r\n' for text, x in lines),
        "train.jsonl": jsonl(lines),
        "train.parquet": as_parquet(lines),
        "train.tsv.gz": gzip.compress(tsv(lines).encode()),
    }
    hashes = set()
    bench.describe()
    for name, content in contents.items():
        path = bench.put(name, content)
        splits = bench.prepare().manifest.splits
        hashes.add(tuple(splits[split].data.sha256 for split in LABELLED))
        path.unlink()
    assert len(hashes) == 1


def several_files(bench: TaskBench) -> None:
    bench.describe(train="part-*.tsv")
    for number in range(4):
        bench.put(f"part-{number}-of-4.tsv", tsv(rows(40, first=100 * number)))


def test_several_files_are_one_list(bench: TaskBench) -> None:
    several_files(bench)
    prepared = bench.prepare()
    sources = bench.sources(prepared, TRAIN)
    assert sources == sorted(sources)
    assert {name for name, _ in sources} == {f"part-{n}-of-4.tsv" for n in range(4)}
    ids = [int(one["example_id"][0]) for one in bench.examples(prepared, TRAIN)]
    assert ids == list(range(len(sources)))


@pytest.mark.parametrize(
    ("options", "batch_characters"),
    [
        (("--direct_running_mode=multi_threading", "--direct_num_workers=3"), 200),
        pytest.param(
            ("--direct_running_mode=multi_processing", "--direct_num_workers=2"),
            None,
            # The same engine's processes convert a partition's shards in test_determinism.py.
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["threads and small batches", "processes"],
)
def test_bytes_depend_on_nothing_but_input_and_settings(
    bench: TaskBench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    batch_characters: int | None,
) -> None:
    several_files(bench)
    bench.prepare()
    first = {path.name: path.read_bytes() for path in bench.folder.rglob("prepared/*/*.*")}
    if batch_characters:
        monkeypatch.setattr(conversion, "_BATCH_CHARACTERS", batch_characters)
    other = make_bench(tmp_path / "other")
    several_files(other)
    other.prepare(*options)
    again = {path.name: path.read_bytes() for path in other.folder.rglob("prepared/*/*.*")}
    assert content(again.pop("manifest.json"), other) == content(first.pop("manifest.json"), bench)
    assert again == first


def content(manifest: bytes, bench: TaskBench) -> dict[str, Any]:
    """Return what a manifest says; where the files lie, and so its own checksum, left out."""
    found: dict[str, Any] = json.loads(manifest.decode().replace(bench.store.root, "STORE"))
    del found["record_sha256"]
    return found


def test_nothing_is_done_twice(bench: TaskBench) -> None:
    bench.describe()
    bench.put("train.tsv", tsv(rows(60)))
    first = bench.prepare()
    before = {path: path.stat().st_mtime_ns for path in bench.folder.rglob("*.*")}
    second = bench.prepare()
    assert (first.reused, second.reused) == (False, True)
    assert second.manifest == first.manifest
    assert {path: path.stat().st_mtime_ns for path in bench.folder.rglob("*.*")} == before
    # What the records depend on makes them anew.
    keys = {first.manifest.key}
    bench.max_seq_length = 64
    keys.add(bench.prepare().manifest.key)
    bench.describe(validation_fraction=0.2)
    keys.add(bench.prepare().manifest.key)
    bench.put("train.tsv", tsv(rows(61)))
    keys.add(bench.prepare().manifest.key)
    assert len(keys) == 4


def test_texts_to_predict_are_known_by_their_names(bench: TaskBench) -> None:
    # Those that the manifest has are read again to be predicted.
    bench.describe(predict="predict*.tsv")
    bench.put("train.tsv", tsv(rows(60)))
    path = bench.put("predict.tsv", tsv([["ke ba"]], ["text"]))
    first = bench.prepare()
    path.rename(bench.folder / "predict-2.tsv")
    second = bench.prepare()
    assert not second.reused
    assert second.manifest.files[-1].endswith("/predict-2.tsv")
    assert first.manifest.splits == second.manifest.splits


def test_nothing_is_left_of_a_try_and_a_second_one_makes_the_same(
    bench: TaskBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.describe()
    bench.put("train.tsv", tsv(rows(60)))

    def fail(*arguments: Any, **names: Any) -> None:
        raise OSError("the store is gone")

    with monkeypatch.context() as patched:
        patched.setattr(TaskManifest, "create", fail)
        with pytest.raises(OSError, match="the store is gone"):
            bench.prepare()
    assert not list(bench.folder.rglob("try-*/*"))
    manifest = bench.prepare().manifest
    names = {path.name for path in bench.folder.rglob("prepared/*/*.*")}
    digests = [d for one in manifest.splits.values() for d in (one.data, one.index, one.sources)]
    assert names == {"manifest.json", *(digest.path for digest in digests)}


def test_records_that_are_gone_are_noticed(bench: TaskBench) -> None:
    bench.describe()
    bench.put("train.tsv", tsv(rows(60)))
    bench.prepare()
    next(bench.folder.rglob("train-*.tfrecord")).unlink()
    with pytest.raises(BadDataError, match=r"Delete manifest.json and run again"):
        bench.prepare()


def test_file_that_changes_meanwhile_is_noticed(
    bench: TaskBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.describe()
    path = bench.put("train.tsv", tsv(rows(60)))
    identify = prepare_task.plan_preparation

    def change(*arguments: Any, **names: Any) -> Any:
        planned = identify(*arguments, **names)
        path.write_text(tsv(rows(61)))
        return planned

    monkeypatch.setattr(prepare_task, "plan_preparation", change)
    with pytest.raises(InputChangedError):
        bench.prepare()


def test_lineage_without_vocabulary_is_named(bench: TaskBench) -> None:
    bench.describe()
    bench.put("train.tsv", tsv(rows(60)))
    with pytest.raises(UserError, match="lineage 'other' has no vocabulary"):
        prepare_task.prepare_task(bench.store, NAME, lineage_id="other", max_seq_length=32)


def test_task_that_is_not_there_is_named(bench: TaskBench) -> None:
    with pytest.raises(ConfigError, match=r"task 'toy': .*task.toml does not exist"):
        bench.prepare()


@pytest.fixture
def arguments(bench: TaskBench, tmp_path: Path) -> list[str]:
    config = FinetuningConfig(
        encoder=EncoderConfig(lineage_id=LINEAGE), finetuning=RecipeConfig(max_seq_length=32)
    )
    (tmp_path / "config.json").write_bytes(config.to_bytes())
    bench.describe(max_truncated_fraction=1.0)
    bench.put("train.tsv", tsv(rows(60)))
    return [f"--config={tmp_path / 'config.json'}", f"--store={bench.store.root}", f"--task={NAME}"]


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1]


def test_command_prints_one_line_of_json(
    bench: TaskBench, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare_task.main([*arguments, "--dry-run"]) == 0
    tried = last_json(capsys)
    assert not (bench.folder / "prepared").exists()
    assert prepare_task.main(arguments) == 0
    made = last_json(capsys)
    manifest = TaskManifest.load(made["manifest"])
    assert manifest.max_seq_length == 32
    assert made["records"] == {split: one.records for split, one in manifest.splits.items()}
    assert (made["labels"], made["reused"]) == (2, False)
    assert {name: made[name] for name in made.keys() & tried.keys()} == {
        name: tried[name] for name in made.keys() & tried.keys()
    }
    assert (tried["dry_run"], tried["done"]) == (True, False)
    assert prepare_task.main(arguments) == 0
    assert last_json(capsys)["reused"] is True
    assert prepare_task.main([*arguments, "--dry-run"]) == 0
    assert last_json(capsys)["done"] is True


def test_configuration_of_a_pretraining_run_serves_as_well(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_bytes(PipelineConfig().to_bytes())
    assert prepare_task.main(arguments) == 0
    manifest = TaskManifest.load(last_json(capsys)["manifest"])
    assert manifest.max_seq_length == PipelineConfig().masking.max_seq_length


def test_refusal_is_bad_data_and_wrong_requests_are_user_errors(
    bench: TaskBench, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bench.put("train.tsv", tsv([["a", "x"], ["b", ""]]))
    for extra in ([], ["--dry-run"]):
        assert prepare_task.main([*arguments, *extra]) == 41
        assert error_line(capsys).startswith("prepare_task: bad_data: task 'toy' is refused. (1) ")
    for changed, message in {
        "--task=none": "task 'none': ",
        "--config=/nowhere.json": "--config: /nowhere.json does not exist",
        "--store=s3://bucket": "scheme 's3'",
        "--no_such_option=1": "unknown options --no_such_option=1",
        "--label=a": "write KEY=VALUE",
    }.items():
        assert prepare_task.main([*arguments, changed]) == 40
        assert message in error_line(capsys)


def test_module_explains_itself() -> None:
    command = [sys.executable, "-m", "beam_jobs.prepare_task", "--help"]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert all(option in found.stdout for option in ("--config", "--store", "--task", "--dry-run"))
