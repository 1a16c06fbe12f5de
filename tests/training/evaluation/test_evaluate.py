"""Evaluation: the right rows, sums per document, and a report that can be recomputed."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from corpus.arrays import HeldOutGroups, to_npz
from corpus.mlm_records import token_table
from pipeline_store.formats import (
    EvaluationReport,
    FileDigest,
    FormatError,
    Holder,
    ModelVersion,
    PartitionManifest,
    Split,
)
from tests.training.conftest import TwoDays
from tests.training.corpora import ROWS_PER_DOCUMENT, VOCABULARY_SIZE, TinyStore, tiny_config
from tests.training.jobs import BAD_DATA, FAILED, USER_ERROR, train
from trained_models import artifacts, record_sources
from trained_models.record_sources import lineage_tokens
from training import evaluate
from training.architectures.models import build_model
from training.evaluation import unigram
from training.evaluation.evaluation_sets import (
    choose_rows,
    document_keys,
    open_set,
    split_units,
)
from training.evaluation.evaluator import _score_set, make_score_batch, reciprocal_ranks
from training.input import examples
from training.input.records import RecordReader
from training.model import checkpoints
from training.reporting.report import table


def arguments(two_days: TwoDays, *words: str) -> list[str]:
    sets = [word for day, uri in two_days.manifests.items() for word in ("--set", f"{day}={uri}")]
    return [
        *("--store", two_days.store.layout.root),
        *("--config", two_days.second.config),
        *("--current-set", "2026-01-02"),
        *sets,
        *("--model", f"candidate={two_days.second.training.root}"),
        *("--model", f"baseline={two_days.first.training.root}"),
        *words,
    ]


@pytest.fixture(scope="module")
def report_file(two_days: TwoDays, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report on both models and both days; tests must not change it."""
    path = tmp_path_factory.mktemp("report") / "report.json"
    assert evaluate.main(arguments(two_days, "--output", str(path))) == 0
    return path


@pytest.fixture
def report(report_file: Path) -> EvaluationReport:
    return EvaluationReport.load(str(report_file))


def held_out(two_days: TwoDays, day: str) -> list[dict[str, np.ndarray]]:
    """Return the held-out rows of a day, read by TensorFlow's own reader."""
    store = two_days.store
    manifest = PartitionManifest.load(two_days.manifests[day])
    sources = record_sources.record_sources(manifest, Split.VALIDATION, store.layout, store.config)
    row_format = sources[0].row_format
    rows = tf.data.TFRecordDataset([source.data_uri for source in sources]).batch(1)
    return [
        {name: value.numpy() for name, value in examples.parse(row, row_format).items()}
        for row in rows
    ]


def test_scores_are_those_of_each_document_alone(
    two_days: TwoDays, report: EvaluationReport
) -> None:
    model = build_model(two_days.store.config)
    checkpoints.load_weights(model, two_days.second.training.root)
    expected: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(4))
    for row in held_out(two_days, "2026-01-01"):
        logits = model(examples.model_inputs(row))["mlm_logits"].numpy()[0].astype(np.float64)
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        labels, weights = row["masked_lm_ids"][0], row["masked_lm_weights"][0]
        losses = -np.log(probabilities[np.arange(len(labels)), labels])
        right = logits.argmax(axis=-1) == labels
        best_first = np.argsort(-logits, axis=-1)
        ranks = np.argmax(best_first == labels[:, None], axis=-1) + 1
        document = f"{int(row['document_id'][0, 0]) % 2**64:016x}"
        sums = [losses @ weights, right @ weights, (1 / ranks) @ weights, weights.sum()]
        expected[document] += sums

    candidate = next(model for model in report.models if model.name == "candidate")
    score = next(score for score in candidate.sets if score.set_name == "2026-01-01")
    assert score.document_ids == sorted(expected)
    found = [
        *(score.loss_sums, score.correct_sums),
        *(score.reciprocal_rank_sums, score.token_counts),
    ]
    by_document = np.array([expected[d] for d in score.document_ids])
    np.testing.assert_allclose(np.array(found).T, by_document, rtol=1e-4)

    loss, correct, reciprocal_ranks, tokens = by_document.sum(axis=0)
    assert tokens > 0
    assert score.perplexity == pytest.approx(math.exp(loss / tokens), rel=1e-4)
    assert score.mrr == pytest.approx(reciprocal_ranks / tokens, rel=1e-4)
    # Being first is worth 1, being second a half.
    assert correct / tokens < score.mrr < 1


def test_a_tie_shares_its_places() -> None:
    logits = tf.constant([[[3.0, 1.0, 3.0, 2.0], [3.0, 1.0, 3.0, 4.0]]])
    for label, rank in ((0, 1.5), (2, 1.5), (3, 3), (1, 4)):
        ranks = reciprocal_ranks(logits, tf.constant([[label, 3]]))
        np.testing.assert_allclose(ranks, [[1 / rank, 1.0]])


def test_every_model_is_scored_on_the_same_documents(report: EvaluationReport) -> None:
    assert [model.name for model in report.models] == ["candidate", "baseline"]
    assert (report.partition, report.current_set) == ("2026-01-02", "2026-01-02")
    for one, other in zip(*(model.sets for model in report.models), strict=True):
        assert one.set_name == other.set_name
        assert one.document_ids == other.document_ids
        assert one.token_counts == other.token_counts
        assert one.loss != other.loss
        assert one.retrieval is not None
        assert other.retrieval is not None
        assert one.retrieval.document_ids == other.retrieval.document_ids
        assert set(one.retrieval.document_ids) <= set(one.document_ids)
        assert len(one.retrieval.ranks) > 1


def test_unigram_loss_is_that_of_smoothed_training_frequencies(
    two_days: TwoDays, report: EvaluationReport
) -> None:
    store = two_days.store
    sources = record_sources.training_sources(
        list(two_days.manifests.values()), store.layout, store.config
    )
    maskable = token_table(lineage_tokens(store.layout, store.config), "wordpiece").maskable
    counts = np.ones(VOCABULARY_SIZE)
    for row in tf.data.TFRecordDataset([source.data_uri for source in sources]).batch(1):
        features = examples.parse(row, sources[0].row_format)
        tokens = features["input_ids"][0].numpy()
        weights = features["masked_lm_weights"][0].numpy() > 0
        positions = features["masked_lm_positions"][0].numpy()[weights]
        tokens[positions] = features["masked_lm_ids"][0].numpy()[weights]
        for token in tokens:
            counts[token] += maskable[token]
    surprises = [
        -math.log(counts[token] / counts.sum())
        for row in held_out(two_days, "2026-01-02")
        for token, weight in zip(row["masked_lm_ids"][0], row["masked_lm_weights"][0], strict=True)
        if weight
    ]
    expected = sum(surprises) / len(surprises)
    assert report.unigram_losses["2026-01-02"] == pytest.approx(expected)
    assert report.unigram_losses["2026-01-02"] < math.log(VOCABULARY_SIZE)


def test_the_text_of_rows_is_counted_masked_or_not(tiny: TinyStore) -> None:
    dynamic = tiny.using(tiny_config(masking__dynamic=True))
    masked_rows, unmasked_rows = (
        record_sources.training_sources([store.partition("2026-01-01")], store.layout, store.config)
        for store in (tiny, dynamic)
    )
    assert {source.file.masked for source in unmasked_rows} == {False}
    maskable = np.arange(VOCABULARY_SIZE) > 4

    def counts(records: list[record_sources.RecordSource]) -> np.ndarray:
        return unigram.training_counts(records, maskable, 320)

    expected = counts(masked_rows)
    assert expected.sum() > 0
    assert not expected[:5].any()
    np.testing.assert_array_equal(counts(unmasked_rows), expected)
    np.testing.assert_array_equal(counts(masked_rows + unmasked_rows), 2 * expected)


def test_counts_of_the_data_job_are_taken_and_no_record_is_read(
    tiny: TinyStore, tmp_path: Path
) -> None:
    (source, *_) = record_sources.training_sources(
        [tiny.partition("2026-01-01")], tiny.layout, tiny.config
    )
    data = to_npz(counts=np.array([9, 0, 2, 7], np.int64))
    (tmp_path / "counts.npz").write_bytes(data)
    digest = FileDigest.of("counts.npz", data)
    counted = dataclasses.replace(source, folder=str(tmp_path), token_counts=digest)
    maskable = np.array([False, True, True, True, True])
    np.testing.assert_array_equal(
        unigram.training_counts([counted, counted], maskable, 6), [0, 0, 4, 14, 0, 0]
    )
    (tmp_path / "counts.npz").write_bytes(data[:-1])
    with pytest.raises(FormatError, match="damaged"):
        unigram.training_counts([counted], maskable, 6)


def test_documents_know_the_unit_that_they_were_held_out_with(
    tiny: TinyStore, tmp_path: Path
) -> None:
    uri = tiny.partition("2026-01-01", shards=3)
    found = open_set("day", uri, tiny.layout, tiny.config)
    assert found.units is None
    path = Path(uri)
    manifest = PartitionManifest.load(uri)
    by_file = manifest.model_copy(update={"split_by": "file"})
    path.write_bytes(by_file.to_bytes())
    found = open_set("day", uri, tiny.layout, tiny.config)
    sources = record_sources.record_sources(manifest, Split.VALIDATION, tiny.layout, tiny.config)
    keys = [
        {f"{key:016x}" for key in document_keys(RecordReader([source])).tolist()}
        for source in sources
    ]
    expected = [next(n for n, of in enumerate(keys) if one in of) for one in found.document_ids]
    assert found.units == expected
    assert set(expected) == {0, 1, 2}

    # One group goes through two files; the documents of the third have none.
    for number, ids in enumerate(keys[:2]):
        groups = HeldOutGroups.of({int(one, 16): 7 + (n > 1) for n, one in enumerate(sorted(ids))})
        data = groups.to_bytes()
        (tmp_path / f"{number}.npz").write_bytes(data)
        digest = FileDigest.of(f"{number}.npz", data)
        sources[number] = dataclasses.replace(
            sources[number], folder=str(tmp_path), held_out_groups=digest
        )
    documents = np.array([int(one, 16) for one in found.document_ids], np.uint64)
    units = split_units("group", sources, documents, np.zeros(len(documents), np.int64))
    assert units is not None
    sizes = np.bincount(units)
    assert sorted(sizes) == [1, 1, 1, 1, 4, 4]
    assert split_units("document", sources, documents, np.zeros(12, np.int64)) is None
    (tmp_path / "0.npz").unlink()
    with pytest.raises(FormatError, match="gone"):
        split_units("group", sources, documents, np.zeros(12, np.int64))


def test_rows_of_the_second_length_are_scored_too(
    two_days: TwoDays, tiny: TinyStore, tmp_path: Path
) -> None:
    config = tiny_config(
        masking__extra_max_seq_length=32,
        masking__extra_max_predictions_per_seq=6,
        training__extra_steps_fraction=0.5,
        training__extra_global_batch_size=6,
        training__gradient_accumulation_steps=2,
    )
    longer = tiny.using(config)
    run = longer.run("r", config)
    uris = {"2026-01-02": longer.partition("2026-01-02"), "older": tiny.partition("2025-12-30")}
    output = tmp_path / "report.json"
    words = [
        *("--store", tiny.layout.root, "--config", run.config),
        *("--current-set", "2026-01-02", "--output", str(output)),
        *(word for name, uri in uris.items() for word in ("--set", f"{name}={uri}")),
        *("--model", f"candidate={two_days.second.training.root}"),
    ]
    assert evaluate.main(words) == 0
    (candidate,) = EvaluationReport.load(str(output)).models
    new, older = candidate.sets
    # The partition that was prepared before there were longer rows goes without.
    assert older.extra is None
    assert new.extra is not None
    assert new.extra.max_seq_length == 32
    assert new.loss != new.extra.loss

    # The same rows as those of a main length give the same sums.
    only = tiny_config(
        masking__max_seq_length=32,
        masking__max_predictions_per_seq=6,
        evaluation__global_batch_size=3,
    )
    chosen = open_set("day", uris["2026-01-02"], tiny.layout, config)
    assert chosen.extra is not None
    alone = open_set("day", tiny.using(only).partition("2026-01-02"), tiny.layout, only)
    assert alone.document_ids == new.document_ids == chosen.document_ids
    rows = chosen.extra.reader.read(chosen.extra.rows)
    assert sorted(rows) == sorted(alone.reader.read(alone.rows))
    model = build_model(only)
    checkpoints.load_weights(model, two_days.second.training.root)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    score = _score_set(alone, make_score_batch(strategy, model, False), only, strategy)
    np.testing.assert_allclose(new.extra.loss_sums, score.loss_sums, rtol=1e-4)
    assert new.extra.token_counts == score.token_counts
    lines = table(EvaluationReport.load(str(output))).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]].count("2026-01-02 *, rows of 32") == 1
    assert evaluate.main([*words, "--print-only"]) == 0


def test_models_are_compared_on_partitions_of_other_recipes(
    two_days: TwoDays, tiny: TinyStore, tmp_path: Path
) -> None:
    dynamic = tiny_config(masking__dynamic=True, masking__packing="full_sentences")
    run = tiny.run("r", dynamic)
    older = tiny.partition("2025-12-30")
    newer = tiny.using(dynamic).partition("2025-12-31")
    words = [
        *("--store", tiny.layout.root, "--config", run.config),
        *("--current-set", "2025-12-31", "--output", str(tmp_path / "report.json")),
        *("--set", f"2025-12-31={newer}", "--set", f"2025-12-30={older}"),
        *("--model", f"candidate={two_days.second.training.root}"),
    ]
    assert evaluate.main(words) == 0
    report = EvaluationReport.load(str(tmp_path / "report.json"))
    assert [score.set_name for score in report.models[0].sets] == ["2025-12-31", "2025-12-30"]
    assert all(0 < loss < math.log(VOCABULARY_SIZE) for loss in report.unigram_losses.values())


def test_recomputing_agrees_and_writes_nothing(
    two_days: TwoDays, report_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = report_file.read_bytes()
    words = arguments(two_days, "--output", str(report_file), "--print-only")
    assert evaluate.main(words) == 0
    output = capsys.readouterr().out
    assert "report.json agrees: largest difference of a loss 0.0e+00" in output
    assert "of an accuracy 0.0e+00, of an MRR 0.0e+00, of a recall@1 0.0e+00" in output
    assert report_file.read_bytes() == before
    rows = [line.split() for line in output.splitlines() if line.startswith("2026-01-0")]
    scored = [row for row in rows if "candidate" in row or "baseline" in row]
    assert len([row for row in scored if "*" in row]) == 2
    assert len(scored) == 4


@pytest.mark.parametrize("sums", ["loss_sums", "correct_sums", "reciprocal_rank_sums"])
def test_report_that_does_not_agree_is_an_error(
    two_days: TwoDays,
    report_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    sums: str,
) -> None:
    content = json.loads(report_file.read_bytes())
    content["models"][0]["sets"][0][sums][0] += 5.0
    del content["record_sha256"]
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(content))
    words = arguments(two_days, "--output", str(path), "--print-only")
    assert evaluate.main(words) == BAD_DATA
    assert "does not agree: a loss differs by" in capsys.readouterr().out


def test_existing_report_is_kept_and_shown(
    two_days: TwoDays, report_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = report_file.stat().st_mtime_ns
    assert evaluate.main(arguments(two_days, "--output", str(report_file))) == 0
    output = capsys.readouterr().out
    assert "exists and is kept" in output
    columns = output.splitlines()[1].split()
    assert columns[4:8] == ["loss", "perplexity", "accuracy", "MRR"]
    assert columns[8:] == ["recall@1", "recall@10", "retrieval", "MRR"]
    assert report_file.stat().st_mtime_ns == before


def test_existing_report_about_something_else_is_refused(
    two_days: TwoDays, report_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = report_file.read_bytes()
    first, second = (
        artifacts.model_files(run.training.root).sha256 for run in (two_days.first, two_days.second)
    )
    words = arguments(two_days, "--output", str(report_file))
    words[words.index(f"candidate={two_days.second.training.root}")] = (
        f"candidate={two_days.first.training.root}"
    )
    assert evaluate.main(words) == USER_ERROR
    output = capsys.readouterr().out
    assert f"model candidate is {second} in the report and {first} in the arguments" in output
    assert "model baseline" not in output

    later = PartitionManifest.load(two_days.manifests["2026-01-02"])
    words = arguments(two_days, "--output", str(report_file), "--print-only")
    words[words.index(f"2026-01-01={two_days.manifests['2026-01-01']}")] = (
        f"2026-01-01={two_days.manifests['2026-01-02']}"
    )
    assert evaluate.main(words) == USER_ERROR
    output = capsys.readouterr().out
    assert f"{later.content_sha256} in the arguments" in output
    assert "set 2026-01-01 is" in output
    assert "set 2026-01-02 is" not in output
    assert report_file.read_bytes() == before


def test_published_version_scores_as_its_training_does(
    two_days: TwoDays, report: EvaluationReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "version"
    files, prefix = artifacts.copy_checkpoint_files(two_days.second.training.root, str(folder))
    ModelVersion(
        version_id="v-1",
        lineage_id="default",
        parent=None,
        run_key="day2",
        partitions_seen=["2026-01-01", "2026-01-02"],
        files=files,
        checkpoint_prefix=prefix,
        vocabulary_sha256=two_days.store.vocabulary_sha256,
        train_steps_total=24,
        metrics={},
        created=artifacts.result_checkpoint(two_days.second.training.root).created,
    ).write(str(folder / "model.json"))
    words = [
        *("--store", two_days.store.layout.root, "--config", two_days.second.config),
        *("--current-set", "2026-01-02", "--output", str(tmp_path / "report.json")),
        *("--set", f"2026-01-02={two_days.manifests['2026-01-02']}"),
        *("--model", f"candidate={folder}"),
    ]
    assert evaluate.main(words) == 0
    published = EvaluationReport.load(str(tmp_path / "report.json"))
    assert published.models[0].sets[0] == report.models[0].sets[1]

    # The run's own folder and a copy of the manifest are the same model and set as the report's.
    copy = tmp_path / "manifests" / "2026-01-02.json"
    copy.parent.mkdir()
    copy.write_bytes(Path(two_days.manifests["2026-01-02"]).read_bytes())
    words[-3:] = [f"2026-01-02={copy}", "--model", f"candidate={two_days.second.training.root}"]
    assert evaluate.main([*words, "--print-only"]) == 0
    assert "report.json agrees" in capsys.readouterr().out


def test_whole_documents_are_chosen_up_to_the_limit() -> None:
    keys = np.array([7, 7, 7, 1, 2, 2, 9, 9, 9, 9], np.uint64)
    for limit in range(1, 11):
        rows = choose_rows(keys, limit)
        chosen = set(keys[rows])
        assert set(rows) == {row for row, key in enumerate(keys) if key in chosen}
        assert len(rows) <= limit or len(chosen) == 1
    assert len(choose_rows(keys, 10)) == 10
    # The same documents whatever their order in the files, and more for a larger limit.
    shuffled = np.random.default_rng(0).permutation(keys)
    assert set(shuffled[choose_rows(shuffled, 6)]) == set(keys[choose_rows(keys, 6)])
    assert set(choose_rows(keys, 5)) <= set(choose_rows(keys, 8))


def test_limit_of_the_configuration_is_kept(two_days: TwoDays) -> None:
    uri, store = two_days.manifests["2026-01-01"], two_days.store.layout
    everything = open_set("all", uri, store, tiny_config())
    some = open_set("some", uri, store, tiny_config(evaluation__max_records_per_set=7))
    assert len(everything.rows) == 2 * 4 * ROWS_PER_DOCUMENT
    assert len(some.rows) == 6
    assert set(some.document_ids) < set(everything.document_ids)
    assert isinstance(some.reader, RecordReader)


def test_set_without_held_out_records_is_named(
    tiny: TinyStore, two_days: TwoDays, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tiny.partition("2026-01-03", validation=0)
    words = [
        *("--store", tiny.layout.root, "--config", two_days.second.config),
        *("--current-set", "2026-01-03", "--output", str(tmp_path / "report.json")),
        *("--set", f"2026-01-03={manifest}"),
        *("--model", f"candidate={two_days.second.training.root}"),
    ]
    assert evaluate.main(words) == USER_ERROR
    assert "Set '2026-01-03' " in capsys.readouterr().out
    assert not (tmp_path / "report.json").exists()


def test_model_of_another_architecture_is_refused(
    tiny: TinyStore, two_days: TwoDays, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(model__hidden_size=64, training__train_steps=4)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("wide", config)
    assert train(tiny, run, manifest) == 0
    words = arguments(two_days, "--output", str(tmp_path / "report.json"))
    words[-3] = f"baseline={run.training.root}"
    assert evaluate.main(words) == USER_ERROR
    assert "model.hidden_size is 64 there and 32 here" in capsys.readouterr().out


def test_attempt_that_lost_the_run_writes_no_report(
    two_days: TwoDays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = tmp_path / "holder.json"
    mine, other = "mine", "other"
    Holder(sequence=1, generation=1, attempt=2, token=other).write(str(holder))
    monkeypatch.setenv("REPRETRAIN_HOLDER_URI", str(holder))
    monkeypatch.setenv("REPRETRAIN_TOKEN", mine)
    assert evaluate.main(arguments(two_days, "--output", str(tmp_path / "r.json"))) == FAILED
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda words: [*words, "--set", "2026-01-01=x"], "one is given twice"),
        (
            lambda words: [w if w != "2026-01-02" else "2026-01-09" for w in words],
            "--current-set '2026-01-09' is not among the sets",
        ),
        (lambda words: words, "Give --output for the report, or --print-only"),
    ],
)
def test_wrong_arguments_are_explained(
    two_days: TwoDays,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[list[str]], list[str]],
    message: str,
) -> None:
    assert evaluate.main(change(arguments(two_days))) == USER_ERROR
    assert message in capsys.readouterr().out
