"""Every check refuses what it is for, in one line that names it and says what to do."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.tokens.vocabulary import SPECIAL_TOKENS
from model_registry import registry
from pipeline_config import load_preset, with_overrides
from pipeline_config.rental_schema import TpuConfig
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, TrainingInputs, VocabularyInfo
from pipeline_store.layout import StoreLayout, VersionLayout
from preflight.bucket import rights_finding
from preflight.estimates.sizes import checkpoint_bytes, weight_count
from preflight.findings import Status
from preflight.places import region_finding
from preflight.run.checks import check
from preflight.run.disk import needed_bytes
from tests.beam_jobs.manifests import shard, store_partition
from tests.model_registry.runs import FinishedRun, sha256
from tests.pipeline_store.gcs_server import GcsState
from tests.training.pretrained import SIZES as MODEL_SIZES
from tests.training.pretrained import bert_weights, write_google, write_safetensors
from trained_models.artifacts import model_files
from trained_models.importing.descriptions import ARCHITECTURE

DAY = "2026-01-31"
SMOKE = load_preset("smoke")
SIZES = SMOKE.model.model_dump(include={*MODEL_SIZES})
WORDS = [f"word{number}" for number in range(200)]


def vocabulary(tokens: list[str]) -> bytes:
    return "".join(f"{token}\n" for token in tokens).encode()


GOOD = vocabulary([*SPECIAL_TOKENS, *WORDS])


def problems(store: str, overrides: dict[str, Any] | None = None, **arguments: Any) -> list[str]:
    config = with_overrides(SMOKE, overrides or {})
    lines = check(config, StoreLayout(store), DAY, **arguments)
    assert all("\n" not in line for line in lines)
    return lines


@pytest.fixture
def ready(tmp_path: Path) -> str:
    """Return a store with a partition of text."""
    return with_text(str(tmp_path / "store"))


@pytest.fixture
def empty(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def with_text(store: str) -> str:
    uris.write(f"{store}/corpus/{DAY}/a.txt", b"Some text.\n\nMore text.\n")
    return store


def test_a_sound_request_passes_and_leaves_nothing_behind(any_store: str) -> None:
    with_text(any_store)
    before = uris.list_files(any_store)
    assert problems(any_store) == []
    assert uris.list_files(any_store) == before


def test_a_lineage_on_any_store(any_store: str) -> None:
    run = published_run(with_text(any_store))
    assert problems(any_store) == []
    [line] = problems(any_store, {"model.num_hidden_layers": 3})
    assert run.version_id in line


# Inputs


def test_a_pattern_without_a_match(ready: str) -> None:
    [line] = problems(ready, {"corpus.input_pattern": "corpus/{partition}/*.jsonl"})
    assert line.startswith(f"corpus.input_pattern: no file matches {ready}/corpus/{DAY}/*.jsonl")
    assert "a.txt" in line


def test_every_pattern_without_a_match_is_named(ready: str) -> None:
    pattern = "corpus/{partition}/*, /absent/x*, corpus/other/*"
    lines = problems(ready, {"corpus.input_pattern": pattern})
    assert len(lines) == 2
    assert "/absent/x*" in lines[0]
    assert f"{ready}/corpus/other/*" in lines[1]


def test_an_empty_folder(any_store: str, tmp_path: Path) -> None:
    (tmp_path / "store" / "corpus" / DAY).mkdir(parents=True)
    [line] = problems(any_store)
    assert f"{any_store}/corpus/{DAY}" in line
    assert "empty or does not exist" in line


def test_a_folder_instead_of_a_pattern(ready: str) -> None:
    [line] = problems(ready, {"corpus.input_pattern": "corpus/{partition}"})
    assert f"write {ready}/corpus/{DAY}/*" in line


def test_a_pattern_that_leaves_the_store(ready: str) -> None:
    [line] = problems(ready, {"corpus.input_pattern": "../elsewhere/*"})
    assert line.startswith("corpus.input_pattern: Path part '../elsewhere/*' would leave")


def test_only_commas(ready: str) -> None:
    [line] = problems(ready, {"corpus.input_pattern": " , "})
    assert "contains no pattern" in line


def members(store: str, *indices: int, count: str = "00005", end: str = ".txt") -> None:
    for index in indices:
        uris.write(f"{store}/corpus/{DAY}/data-{index:0{len(count)}d}-of-{count}{end}", b"text")


def test_a_hole_in_a_set_of_files_is_named(any_store: str) -> None:
    members(any_store, 0, 1, 3, 4)
    [line] = problems(any_store)
    assert "1 of 5 files of a set are missing: data-00002-of-00005.txt." in line


def test_many_holes_are_counted(empty: str) -> None:
    members(empty, 7, count="100000", end=".jsonl.gz")
    [line] = [line for line in problems(empty) if "set are missing" in line]
    assert "99999 of 100000" in line
    assert "data-000000-of-100000.jsonl.gz" in line
    assert "and 99996 more" in line


@pytest.mark.parametrize("indices", [(0, 1, 2, 3, 4), (1, 2, 3, 4, 5)])
def test_complete_sets_count_from_zero_or_one(empty: str, indices: tuple[int, ...]) -> None:
    members(empty, *indices)
    assert problems(empty) == []


def test_two_sets_do_not_fill_each_other(empty: str) -> None:
    members(empty, 0, 1, 2, 4)
    members(empty, 3, end=".jsonl")
    lines = problems(empty)
    assert len(lines) == 2
    assert "4 of 5 files" in lines[0]
    assert "data-00003-of-00005.txt" in lines[1]


def test_a_pattern_may_leave_members_out(empty: str) -> None:
    members(empty, 0, 1, 2, 3, 4)
    assert problems(empty, {"corpus.input_pattern": "corpus/{partition}/data-00001*"}) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b" \n\n\t\n", "empty"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00\x01\x02" * 50, "PNG data"),
        (b"PK\x03\x04" + b"zip", "zip data"),
        (b"%PDF-1.7 text", "PDF data"),
        (b'{"text": "a"}\n', "it begins like JSON"),
        (b"\xff \n\n\xfe", "invalid_utf8: no UTF-8 after 0 bytes"),
        (gzip.compress(b"", mtime=0), "empty"),
        (gzip.compress(b"\x00\x01" * 100, mtime=0), "control characters"),
        (gzip.compress(b"text " * 1000, mtime=0)[:20], "gzip data ends"),
    ],
)
def test_files_without_text(any_store: str, content: bytes, reason: str) -> None:
    uris.write(f"{any_store}/corpus/{DAY}/a.bin", content)
    [line] = problems(any_store)
    assert "none of the 1 files has text" in line
    assert f"{any_store}/corpus/{DAY}/a.bin: " in line
    assert reason in line


def test_a_few_of_many_files_without_text_are_named(empty: str) -> None:
    for number in range(8):
        uris.write(f"{empty}/corpus/{DAY}/{number}.txt", b"")
    [line] = problems(empty)
    assert "none of the 8 files" in line
    assert "and 5 more" in line


@pytest.mark.parametrize("text", [b"text", gzip.compress(b"text", mtime=0), b"\n" * 5000 + b"text"])
def test_one_file_with_text_is_enough(any_store: str, text: bytes) -> None:
    uris.write(f"{any_store}/corpus/{DAY}/a.txt", b"")
    uris.write(f"{any_store}/corpus/{DAY}/b.png", b"\x00" * 100)
    uris.write(f"{any_store}/corpus/{DAY}/c.txt", text)
    assert problems(any_store) == []


def test_the_field_with_the_text_is_looked_for_in_each_format(empty: str) -> None:
    folder = f"{empty}/corpus/{DAY}"
    uris.write(f"{folder}/a.txt", b"Plain text has no field.")
    uris.write(f"{folder}/b.csv", b"id,body\n1,Some text.\n")
    uris.write(f"{folder}/c.jsonl.gz", gzip.compress(b'{"body": "Some text."}\n' * 3))
    table, lines = problems(empty)
    assert table.startswith(f"corpus.text_field: {folder}/b.csv: no column 'text'")
    assert lines.startswith(f"corpus.text_field: {folder}/c.jsonl.gz: ")
    assert problems(empty, {"corpus.text_field": "body"}) == []


def test_one_document_with_the_field_is_enough(empty: str) -> None:
    folder = f"{empty}/corpus/{DAY}"
    uris.write(f"{folder}/a.jsonl", b'{"body": 1}\nno json\n{"text": "Some text."}\n')
    # Neither an empty file nor a damaged one says anything about fields.
    uris.write(f"{folder}/a.csv", b"")
    uris.write(f"{folder}/b.csv", gzip.compress(b"text\nSome text.\n" * 99)[:30])
    assert problems(empty) == []


def test_languages_that_cannot_be_recognised(ready: str) -> None:
    [line] = problems(ready, {"corpus.keep_languages": ["en", "qqq"]})
    assert line.startswith("corpus.keep_languages: qqq cannot be recognized")
    assert problems(ready, {"corpus.keep_languages": ["en", "de"]}) == []


# Vocabulary


def given(store: str, content: bytes, **overrides: Any) -> list[str]:
    """Return the problems with a vocabulary given by vocabulary.uri."""
    uris.write(f"{store}/mine.txt", content)
    return problems(store, {"vocabulary.uri": "mine.txt", **overrides})


def test_a_good_vocabulary(ready: str) -> None:
    assert given(ready, GOOD) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (vocabulary([*SPECIAL_TOKENS[:4], *WORDS]), "lacks [MASK]"),
        (vocabulary([*SPECIAL_TOKENS, *WORDS, "word7"]), "line 206 that of line 13"),
        (vocabulary([*SPECIAL_TOKENS, *WORDS] + [f"x{n}" for n in range(8000)]), "8205 tokens"),
        (vocabulary([*SPECIAL_TOKENS, *(word.title() for word in WORDS)]), "is cased"),
        (vocabulary([*WORDS, *SPECIAL_TOKENS]), "must be token 0"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_bad_vocabularies(ready: str, content: bytes, said: str) -> None:
    [line] = given(ready, content)
    assert line.startswith("vocabulary.uri: ")
    assert f"{ready}/mine.txt" in line
    assert said in line


def test_an_uncased_vocabulary_for_cased_text(ready: str) -> None:
    [line] = given(ready, GOOD, **{"vocabulary.do_lower_case": False})
    assert "uncased" in line


def test_a_missing_vocabulary(ready: str) -> None:
    [line] = problems(ready, {"vocabulary.uri": "/absent/vocab.txt"})
    assert line == "vocabulary.uri: vocabulary /absent/vocab.txt does not exist."


def begin_lineage(store: str, content: bytes = GOOD, **changes: Any) -> None:
    lineage = StoreLayout(store).lineage("default")
    uris.write(lineage.vocabulary, content)
    fields: dict[str, Any] = {
        "vocabulary_kind": "wordpiece",
        "sha256": sha256(content),
        "tokens_sha256": sha256(content),
        "size": 205,
        "do_lower_case": True,
        "source": "s",
    }
    VocabularyInfo(**fields | changes).write(lineage.vocabulary_info)


def test_the_vocabulary_of_a_lineage_is_frozen(ready: str) -> None:
    begin_lineage(ready)
    assert problems(ready) == []
    assert given(ready, GOOD) == []
    [line] = given(ready, GOOD + b"more\n")
    assert line.startswith("vocabulary.uri: mine.txt differs")
    assert "new model.lineage_id" in line


def test_the_kind_of_a_vocabulary_is_frozen(ready: str) -> None:
    begin_lineage(ready)
    [line] = problems(ready, {"vocabulary.kind": "sentencepiece"})
    assert line.startswith("model.lineage_id: ")
    assert "it is of the kind wordpiece, but vocabulary.kind is sentencepiece" in line


def test_a_given_vocabulary_of_the_other_kind(ready: str) -> None:
    [line] = given(ready, GOOD, **{"vocabulary.kind": "sentencepiece"})
    assert line.startswith("vocabulary.uri: ")
    assert "Set vocabulary.kind to wordpiece" in line


def test_a_sentencepiece_model_that_is_missing_or_none(ready: str) -> None:
    wanted = {"vocabulary.kind": "sentencepiece", "vocabulary.uri": "my.model"}
    [line] = problems(ready, wanted)
    assert line == f"vocabulary.uri: vocabulary {ready}/my.model does not exist."
    uris.write(f"{ready}/my.model", b"not a model")
    [line] = problems(ready, wanted)
    assert line.startswith(f"vocabulary.uri: vocabulary {ready}/my.model ")


def test_words_need_places_in_the_given_vocabulary(ready: str) -> None:
    [line] = given(ready, GOOD, **{"vocabulary.domain_words": 3})
    assert line.startswith(
        "vocabulary.domain_words: 3 are asked for, but mine.txt has no [unused0]"
    )
    places = ["[unused0]", "[unused1]"]
    roomy = vocabulary([*SPECIAL_TOKENS, *places, *WORDS])
    assert given(ready, roomy, **{"vocabulary.domain_words": 3}) == []
    # The lineage's own vocabulary then differs from the given one, and is made of it all the same.
    begin_lineage(ready, vocabulary([*SPECIAL_TOKENS, "gpu", "[unused1]", *WORDS]), size=207)
    assert given(ready, roomy, **{"vocabulary.domain_words": 3}) == []


def test_the_casing_of_a_lineage_is_frozen(ready: str) -> None:
    begin_lineage(ready)
    [line] = problems(ready, {"vocabulary.do_lower_case": False})
    assert line.startswith("model.lineage_id: vocabulary.do_lower_case=False")
    assert problems(ready, {"vocabulary.do_lower_case": False, "model.lineage_id": "new"}) == []


def test_a_lineage_vocabulary_that_does_not_fit_the_model(ready: str) -> None:
    words = [f"w{number}" for number in range(400)]
    begin_lineage(ready, vocabulary([*SPECIAL_TOKENS, *words]))
    [line] = problems(ready, {"model.vocab_size": 350, "vocabulary.size": 350})
    assert "405 tokens but model.vocab_size is 350" in line


def test_a_changed_lineage_vocabulary(ready: str) -> None:
    begin_lineage(ready, tokens_sha256="0" * 64)
    [line] = problems(ready)
    assert "changed after it was committed" in line


def test_a_partition_of_general_text_must_be_there(ready: str, tmp_path: Path) -> None:
    wanted = {"evaluation.general_partition": "general"}
    [line] = problems(ready, wanted)
    assert line.startswith("evaluation.general_partition: general has no manifest in ")
    assert "python -m beam_jobs.prepare_corpus" in line
    folder = StoreLayout(ready).lineage("default").manifests("general")
    prepared = uris.read(FinishedRun(str(tmp_path / "another"), "1").manifest_uri)
    uris.write(f"{folder}/0123456789abcdef.json", prepared)
    assert problems(ready, wanted) == []


def test_a_pattern_of_partitions_to_score_has_to_match(ready: str, tmp_path: Path) -> None:
    rows = {"evaluation.rows_per_checkpoint": 100}
    [line] = problems(ready, rows | {"evaluation.pattern": "dev-?, general"})
    assert line.startswith("evaluation.pattern: none of the prepared partitions in ")
    assert "has a name like dev-?, general. Prepare one with" in line
    folder = StoreLayout(ready).lineage("default").manifests("dev-1")
    prepared = uris.read(FinishedRun(str(tmp_path / "another"), "1").manifest_uri)
    uris.write(f"{folder}/0123456789abcdef.json", prepared)
    assert problems(ready, rows | {"evaluation.pattern": "dev-?, general"}) == []


def test_labelled_tasks_must_be_there_and_sound(ready: str) -> None:
    wanted = {"promotion.probe_tasks": ["moods"]}
    [line] = problems(ready, wanted)
    assert line.startswith("promotion.probe_tasks: task 'moods': ")
    task = StoreLayout(ready).task("moods")
    uris.write(task.description, b"kinds = 3\n")
    [line] = problems(ready, wanted)
    assert "its setting number 1: there is none of that name. Did you mean 'kind'?" in line
    uris.write(task.description, b"")
    uris.write(f"{task.root}/train.tsv", b"text\tlabel\nfine\tgood\n")
    assert problems(ready, wanted) == []


# Where training starts


@pytest.fixture
def published(ready: str) -> FinishedRun:
    """Return a promoted first run of lineage ``default``."""
    return published_run(ready)


def published_run(store: str) -> FinishedRun:
    run = FinishedRun(store, "1")
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=None, reason="better")
    return run


CHANGES: dict[str, Any] = {
    "model.vocab_size": 9000,
    "model.hidden_size": 64,
    "model.num_hidden_layers": 3,
    "model.num_attention_heads": 4,
    "model.intermediate_size": 256,
    "model.max_position_embeddings": 256,
    "model.type_vocab_size": 3,
    "model.hidden_act": "gelu_new",
}


def test_the_architecture_of_a_lineage_is_frozen(published: FinishedRun) -> None:
    store = published.store.root
    assert problems(store) == []
    for name, value in CHANGES.items():
        [line] = problems(store, {name: value})
        assert line.startswith(f"{name}: {value} is asked for, but lineage 'default' has ")
        assert published.version_id in line
        assert "use a new model.lineage_id" in line
    assert len(problems(store, CHANGES)) == len(CHANGES)
    assert problems(store, CHANGES | {"model.lineage_id": "new"}) == []


NEW_LINEAGE = (
    "A new lineage begins with random weights (model.from_scratch), and what the model in use has "
    "learned is trained again."
)


def test_a_frozen_setting_comes_with_the_cost_of_a_new_lineage(published: FinishedRun) -> None:
    # 400 steps took 60 s; of a model with three layers nothing is known.
    asked = {"model.num_hidden_layers": 3, "budget.price_per_chip_hour": 60.0}
    [line] = problems(published.store.root, asked)
    assert (
        f"{NEW_LINEAGE} Estimate: 400 steps, as many as made "
        f"{published.version_id}, on its 1 partition (1,234 documents, 5,000 rows): 1 min of TPU, "
        "0.0167 chip-hours, 1.00 USD (at the speed of the model in use, not of the one asked for;"
    ) in line
    # Once, and for a vocabulary as well.
    assert " ".join(problems(published.store.root, CHANGES)).count("Estimate: ") == 1
    [line] = problems(published.store.root, {"vocabulary.do_lower_case": False})
    assert f"another model.lineage_id. {NEW_LINEAGE} Estimate: 400" in line
    assert "(by: run " in line
    [line] = given(published.store.root, GOOD)
    assert line.startswith("vocabulary.uri: mine.txt differs")
    assert NEW_LINEAGE in line
    # Nothing is lost that was published.
    imported = {"model.init_checkpoint": "bert", "model.from_scratch": False}
    [line] = problems(published.store.root, asked | imported)
    assert "A new lineage begins with model.init_checkpoint, a model that has learned its" in line
    [line] = problems(published.store.root, asked | {"model.from_scratch": False})
    assert "begins with the published model that model.init_checkpoint then has to name" in line
    # Of what does not work in any lineage it is not said.
    [line] = problems(published.store.root, {"corpus.input_pattern": "absent/*"})
    assert "Estimate" not in line


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("masking.max_seq_length", 64, "64 (and max_predictions_per_seq 20)"),
        ("masking.max_predictions_per_seq", 19, "128 (and max_predictions_per_seq 19)"),
    ],
)
def test_rows_that_no_earlier_partition_has(
    published: FinishedRun, name: str, value: int, wanted: str
) -> None:
    [line] = problems(published.store.root, {name: value})
    assert line.startswith(f"masking.max_seq_length: {wanted} is asked for, but partition day-1")
    assert "has rows of 128 (20)" in line


def test_longer_rows_may_follow_where_earlier_partitions_have_them(published: FinishedRun) -> None:
    store = published.store.root
    longer = {"masking.max_seq_length": 512, "masking.max_predictions_per_seq": 76}
    folder = VersionLayout(published.lineage.version(published.version_id))
    both = {"extra_max_seq_length": 512, "extra_max_predictions_per_seq": 76}
    config = with_overrides(SMOKE, {"model.max_position_embeddings": 512})
    uris.write(folder.config, config.to_bytes())
    longer["model.max_position_embeddings"] = 512
    assert len(problems(store, longer)) == 1
    manifest = PartitionManifest.load(published.manifest_uri)
    manifest.model_copy(update=both).write(published.manifest_uri)
    assert problems(store, longer) == []


def test_what_may_change_within_a_lineage(published: FinishedRun) -> None:
    overrides = {
        "model.hidden_dropout_prob": 0.1,
        "training.train_steps": 100,
        "optimizer.learning_rate": 1e-5,
        "model.init_checkpoint": "/absent",  # not used, as there is a model in use
    }
    assert problems(published.store.root, overrides) == []


def test_a_damaged_lineage_is_named(published: FinishedRun) -> None:
    folder = VersionLayout(published.lineage.version(published.version_id))
    uris.delete(folder.config)
    [line] = problems(published.store.root)
    assert folder.config in line
    uris.write(published.lineage.production, b"{")
    [line] = problems(published.store.root)
    assert "production.json" in line


def init(published: FinishedRun, **overrides: Any) -> list[str]:
    folder = published.lineage.version(published.version_id)
    overrides = {"model.lineage_id": "new", "model.init_checkpoint": folder} | overrides
    return problems(published.store.root, overrides)


def test_starting_a_lineage_from_a_version(published: FinishedRun) -> None:
    folder = VersionLayout(published.lineage.version(published.version_id))
    assert init(published, **{"vocabulary.uri": folder.vocabulary}) == []


def test_starting_from_what_is_no_version(published: FinishedRun) -> None:
    [line] = init(published, **{"model.init_checkpoint": "checkpoints/bert"})
    assert line.startswith("model.init_checkpoint: ")
    assert "is not a model: expected a model version folder" in line


def hugging_face(published: FinishedRun, **settings: Any) -> str:
    """Write a Hugging Face folder of the published model's architecture."""
    described = SMOKE.model.model_dump(include=set(ARCHITECTURE))
    folder = f"{published.store.root}/bert"
    uris.write(f"{folder}/config.json", json.dumps(described | settings).encode())
    uris.write(f"{folder}/vocab.txt", GOOD)
    write_safetensors(Path(folder, "model.safetensors"), bert_weights(sizes=SIZES))
    return folder


def test_starting_from_a_hugging_face_folder(published: FinishedRun) -> None:
    folder = hugging_face(published)
    overrides = {"model.init_checkpoint": folder, "vocabulary.uri": f"{folder}/vocab.txt"}
    assert init(published, **overrides) == []
    uris.delete(f"{folder}/model.safetensors")
    [line] = init(published, **overrides)
    assert "has no model.safetensors" in line


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        (
            "bert.encoder.layer.1.intermediate.dense.weight",
            (512, 96),
            "has the shape [512, 96], and by {folder}/config.json it should have [512, 128]",
        ),
        ("bert.encoder.layer.0.output.dense.bias", (), "has the shape []"),
        ("bert.embeddings.position_embeddings.weight", (64, 128), "it should have [128, 128]"),
        ("cls.predictions.bias", (7999,), "it should have [8000]"),
        ("bert.encoder.layer.1.intermediate.dense.weight", None, "there is no tensor for"),
    ],
)
def test_starting_from_weights_of_other_shapes_than_described(
    published: FinishedRun, name: str, shape: tuple[int, ...] | None, words: str
) -> None:
    folder = hugging_face(published)
    tensors = bert_weights(sizes=SIZES)
    del tensors[name]
    if shape is not None:
        tensors[name] = np.zeros(shape, np.float32)
    write_safetensors(Path(folder, "model.safetensors"), tensors)
    overrides = {"model.init_checkpoint": folder, "vocabulary.uri": f"{folder}/vocab.txt"}
    [line] = init(published, **overrides)
    assert line.startswith("model.init_checkpoint: ")
    assert words.format(folder=folder) in line
    if shape is not None:
        assert f"{name} in {folder}/model.safetensors" in line
    # A head that begins anew may have any.
    lines = init(published, **overrides, **{"model.init_encoder_only": True})
    assert (lines == []) == name.startswith("cls.")


def test_starting_from_weights_with_more_rows_than_described(published: FinishedRun) -> None:
    folder = hugging_face(published)
    # Rows are matched by token, so padded embeddings are as good.
    padded = bert_weights(sizes={**SIZES, "vocab_size": 8064})
    write_safetensors(Path(folder, "model.safetensors"), padded)
    overrides = {"model.init_checkpoint": folder, "vocabulary.uri": f"{folder}/vocab.txt"}
    assert init(published, **overrides) == []


def test_starting_from_googles_weights_of_other_shapes(
    published: FinishedRun, tmp_path: Path
) -> None:
    tokens = [line.decode() for line in GOOD.splitlines()]
    described: dict[str, Any] = SIZES | {"hidden_act": "gelu"}
    overrides = {"model.hidden_act": "gelu_new"}
    for inner, expected in ((512, 0), (96, 1)):
        weights = bert_weights(sizes={**SIZES, "intermediate_size": inner})
        start = write_google(tmp_path / "store" / str(inner), weights, described, tokens=tokens)
        vocabulary_uri = str(Path(start).with_name("vocab.txt"))
        named = {"model.init_checkpoint": start, "vocabulary.uri": vocabulary_uri}
        lines = init(published, **overrides, **named)
        assert len(lines) == expected
        for line in lines:
            assert f"bert/encoder/layer_0/intermediate/dense/kernel in {start}.index has" in line
            assert "the shape [128, 96], and by " in line
            assert "bert_config.json it should have [128, 512] (and 5 more)" in line
    index = Path(f"{start}.index")
    index.write_bytes(index.read_bytes()[:-60])
    [line] = init(published, **overrides, **named)
    assert "cannot be read as the index of a TensorFlow checkpoint" in line


def test_starting_from_weights_of_another_casing(published: FinishedRun) -> None:
    folder = hugging_face(published)
    own = {"model.init_checkpoint": folder, "vocabulary.uri": f"{folder}/vocab.txt"}
    other = own | {"vocabulary.uri": "mine.txt"}
    uris.write(f"{published.store.root}/mine.txt", GOOD)
    assert init(published, **other) == []
    # By its tokens, where they are not the lineage's own.
    cased = [f"{'Aa'[number % 2]}{number}" for number in range(400)]
    uris.write(f"{folder}/vocab.txt", vocabulary([*SPECIAL_TOKENS, *cased]))
    [line] = init(published, **other)
    assert line.startswith(f"model.init_checkpoint: {folder} is cased by its tokenizer or")
    assert line.endswith("or use this one's vocabulary with vocabulary.do_lower_case=false.")
    # The tokenizer's own word counts more than how tokens look.
    uris.write(f"{folder}/tokenizer_config.json", b'{"do_lower_case": true}')
    assert init(published, **other) == []
    uris.write(f"{folder}/vocab.txt", GOOD)
    uris.write(f"{folder}/tokenizer_config.json", b'{"do_lower_case": false}')
    [line] = init(published, **own)
    assert "is cased by its tokenizer or vocabulary, but vocabulary.do_lower_case is true" in line
    uris.write(f"{folder}/tokenizer_config.json", b"[]")
    [line] = init(published, **own)
    assert "tokenizer_config.json is no JSON object" in line


def test_starting_from_an_encoder_without_a_head(published: FinishedRun) -> None:
    folder = hugging_face(published)
    overrides = {"model.init_checkpoint": folder, "vocabulary.uri": f"{folder}/vocab.txt"}
    tensors = {
        name: value
        for name, value in bert_weights(sizes=SIZES).items()
        if not name.startswith("cls.predictions.")
    }
    write_safetensors(Path(folder, "model.safetensors"), tensors)
    [line] = init(published, **overrides)
    assert line.startswith(f"model.init_checkpoint: {folder} has no tensor named cls.predictions.*")
    assert "set model.init_encoder_only=true: the first training then trains the head alone" in line
    assert init(published, **overrides, **{"model.init_encoder_only": True}) == []
    # PyTorch's own files are read when they are imported.
    Path(folder, "model.safetensors").rename(Path(folder, "pytorch_model.bin"))
    assert init(published, **overrides) == []


def test_starting_from_weights_with_more_tokens_than_rows(published: FinishedRun) -> None:
    folder = hugging_face(published)
    more = vocabulary([*SPECIAL_TOKENS, *(f"x{number}" for number in range(9000))])
    uris.write(f"{folder}/vocab.txt", more)
    uris.write(f"{published.store.root}/mine.txt", GOOD)
    overrides = {"model.init_checkpoint": folder, "vocabulary.uri": "mine.txt"}
    [line] = init(published, **overrides)
    assert "has 9005 tokens, but the embedding has 8000 rows" in line


def test_starting_from_weights_that_were_cut_short(published: FinishedRun) -> None:
    folder = hugging_face(published)
    overrides = {"model.init_checkpoint": folder, "vocabulary.uri": f"{folder}/vocab.txt"}
    file = Path(folder, "model.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    size = file.stat().st_size
    [line] = init(published, **overrides)
    assert f"{file} has {size:,} bytes, and by its header {size + 1:,}: it is damaged" in line


def test_a_lineage_begins_with_a_model_and_its_vocabulary_or_with_nothing_on_purpose(
    published: FinishedRun,
) -> None:
    folder = hugging_face(published)
    scratch = {"model.from_scratch": False}
    [line] = init(published, **{"model.init_checkpoint": folder}, **scratch)
    assert line.startswith(f"vocabulary.uri: {folder} was trained with a vocabulary of its own")
    [line] = init(published, **{"model.init_checkpoint": None}, **scratch)
    assert line.startswith("model.init_checkpoint: lineage 'new' has no model yet, and none is")
    assert init(published, **{"model.init_checkpoint": None, "model.from_scratch": True}) == []


def test_starting_from_a_hugging_face_folder_of_another_architecture(
    published: FinishedRun,
) -> None:
    folder = hugging_face(published, hidden_act="gelu_new", num_hidden_layers=7)
    [line] = init(published, **{"model.init_checkpoint": folder})
    assert "model.num_hidden_layers is 7 there" in line
    assert "model.hidden_act is 'gelu_new' there and 'gelu' here" in line


def test_starting_from_weights_with_a_vocabulary_of_something_else(published: FinishedRun) -> None:
    folder = hugging_face(published)
    uris.write(f"{folder}/vocab.txt", b"<pad>\n<unk>\n")
    uris.write(f"{published.store.root}/mine.txt", GOOD)
    overrides = {"model.init_checkpoint": folder, "vocabulary.uri": "mine.txt"}
    [line] = init(published, **overrides)
    assert "vocab.txt lacks [PAD], [UNK], [CLS], [SEP], [MASK]" in line


def test_starting_from_the_result_of_a_run(published: FinishedRun) -> None:
    version = VersionLayout(published.lineage.version(published.version_id))
    files = model_files(published.run.training.root)
    settings = {f"model.{name}": value for name, value in SMOKE.model.model_dump().items()}
    digest = VocabularyInfo.load(published.lineage.vocabulary_info).sha256
    inputs = TrainingInputs(settings=settings, vocabulary_sha256=digest, records={})
    inputs.write(f"{files.folder}/{files.inputs}")
    overrides = {
        "model.init_checkpoint": published.run.training.root,
        "vocabulary.uri": version.vocabulary,
    }
    assert init(published, **overrides) == []
    [line] = init(published, **overrides, **{"model.num_hidden_layers": 3})
    assert line.startswith("model.num_hidden_layers: 3 is asked for")
    uris.write(f"{published.store.root}/mine.txt", GOOD)
    [line] = init(published, **overrides | {"vocabulary.uri": "mine.txt"})
    assert "another vocabulary" in line


def test_starting_with_another_architecture(published: FinishedRun) -> None:
    folder = VersionLayout(published.lineage.version(published.version_id))
    [line] = init(published, **{"vocabulary.uri": folder.vocabulary, "model.num_hidden_layers": 3})
    assert line.startswith("model.num_hidden_layers: 3 is asked for, but model.init_checkpoint")


@pytest.mark.parametrize("uri", [None, "mine.txt"])
def test_starting_with_another_vocabulary(published: FinishedRun, uri: str | None) -> None:
    uris.write(f"{published.store.root}/mine.txt", GOOD)
    [line] = init(published, **{"vocabulary.uri": uri})
    assert "token ids would mean other words" in line
    assert f"vocabulary.uri={published.lineage.version(published.version_id)}/vocab.txt" in line


# Places


@pytest.mark.parametrize(
    ("place", "zones", "far"),
    [
        (None, ["us-central1-a", "europe-west4-b"], None),
        ("US-CENTRAL1", ["us-central1-a", "us-central1-b"], None),
        ("US-CENTRAL1", ["us-central1-a", "us-west4-a"], "us-west4-a is not in US-CENTRAL1"),
        ("EUROPE-WEST4", ["us-central1-a"], "us-central1-a is not in EUROPE-WEST4"),
        ("US-CENTRAL1", ["us-west4-a", "europe-west4-b"], "us-west4-a, europe-west4-b are not in"),
        ("US", ["us-central1-a", "us-west4-a"], None),
        ("EU", ["europe-west4-b"], None),
        ("EU", ["us-central1-a"], "us-central1-a is not in EU"),
        ("NAM4", ["us-central1-a"], None),
        ("NAM4", ["us-west4-a"], "us-west4-a is not in NAM4"),
        # A region whose name begins another's.
        ("EUROPE-WEST1", ["europe-west10-a"], "europe-west10-a is not in EUROPE-WEST1"),
    ],
)
def test_regions(ready: str, place: str | None, zones: list[str], far: str | None) -> None:
    lines = problems(ready, {"tpu.zones": zones}, location=lambda _: place)
    if far is None:
        assert lines == []
    else:
        [line] = lines
        assert line.startswith("tpu.zones: ")
        assert far in line
        assert ready in line


@pytest.mark.parametrize(
    ("place", "is_told"), [("US-CENTRAL1", True), ("US", False), (None, False)]
)
def test_other_regions_are_rented_in_only_when_they_are_allowed(
    ready: str, place: str | None, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    zones = {"tpu.zones": ["us-central1-a", "us-west4-a"]}
    refused = problems(ready, zones, location=lambda _: place)
    assert [("--set tpu.allow_other_regions=true" in line) for line in refused] == [True] * is_told
    allowed = zones | {"tpu.allow_other_regions": True}
    assert problems(ready, allowed, location=lambda _: place) == []
    assert ("tpu.allow_other_regions is on, so the bytes are paid" in caplog.text) == is_told


def test_zones_of_the_same_region_that_are_not_named_are_told(ready: str) -> None:
    tpu = TpuConfig(accelerator_type="v6e-8", zones=["us-east5-a"])
    finding = region_finding(tpu, StoreLayout(ready), lambda _: "US-EAST5")
    assert finding is not None
    assert "us-east5-b of the same region may have v6e-8 too" in finding.found
    tpu = TpuConfig(accelerator_type="v6e-8", zones=["us-east5-b", "us-east5-a"])
    finding = region_finding(tpu, StoreLayout(ready), lambda _: "US-EAST5")
    assert finding is not None
    assert "may have" not in finding.found


def test_the_region_of_a_bucket_is_asked_for(cloud_storage: GcsState) -> None:
    cloud_storage.locations["bucket"] = "EUROPE-WEST4"
    uris.write(f"gs://bucket/store/corpus/{DAY}/a.txt", b"text")
    [line] = problems("gs://bucket/store")
    assert "us-central1-a is not in EUROPE-WEST4" in line
    assert problems("gs://bucket/store", {"tpu.zones": ["europe-west4-b"]}) == []


@pytest.mark.parametrize(
    "root", ["relative/store", "s3://bucket/store", "/proc/no/store", "gs:///x"]
)
def test_a_store_that_cannot_be_written_is_the_only_problem(root: str) -> None:
    [line] = problems(root)
    assert line.startswith(f"store: {root} cannot be written")


def test_a_check_that_breaks_is_a_reason_not_to_spend(ready: str) -> None:
    def no_answer(_: str) -> str | None:
        raise ConnectionError("no route\nto host")

    [line] = problems(ready, location=no_answer)
    assert line == "tpu.zones: could not be checked (ConnectionError: no route to host)."


def test_everything_wrong_is_told_at_once(published: FinishedRun) -> None:
    lines = problems(
        published.store.root,
        {
            "corpus.input_pattern": "absent/*",
            "vocabulary.uri": "/absent/vocab.txt",
            "model.num_hidden_layers": 3,
        },
        location=lambda _: "EU",
    )
    assert [line.split(":")[0] for line in lines] == [
        "corpus.input_pattern",
        "vocabulary.uri",
        "model.num_hidden_layers",
        "tpu.zones",
    ]


DATAFLOW: dict[str, Any] = {
    "beam.runner": "DataflowRunner",
    "beam.region": "us-central1",
    "beam.temp_location": "gs://elsewhere/temp",
    "beam.sdk_container_image": f"image@sha256:{0:064}",
    "tpu.zones": ["us-central1-a"],
}


def test_dataflow_needs_a_store_that_its_workers_reach(ready: str) -> None:
    [line] = problems(ready, DATAFLOW, location=lambda uri: None)
    assert line.startswith(f"beam.runner: Dataflow's workers cannot reach the store {ready}")


@pytest.mark.parametrize(
    ("place", "count"),
    [(None, 1), ("US-CENTRAL1", 1), ("US", 1), ("NAM4", 1), ("EUROPE-WEST4", 2), ("US-EAST1", 2)],
)
def test_dataflow_works_where_its_temporary_files_are(
    ready: str, place: str | None, count: int
) -> None:
    def location(uri: str) -> str | None:
        return place if uri == "gs://elsewhere/temp" else None

    lines = problems(ready, DATAFLOW, location=location)
    assert len(lines) == count
    if count == 2:
        assert lines[1].startswith("beam.temp_location: the bucket of gs://elsewhere/temp is in")


# Rights and room


RIGHTS = {f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list")}


@pytest.mark.parametrize("right", sorted(RIGHTS))
def test_a_missing_right_in_the_bucket_is_named(cloud_storage: GcsState, right: str) -> None:
    with_text("gs://bucket/store")
    cloud_storage.denied.add(right)
    [line] = problems("gs://bucket/store")
    assert line.startswith(f"store: this account lacks {right} in the bucket of gs://bucket/store.")
    assert "roles/storage.objectUser" in line


def test_an_account_without_any_right_in_the_bucket(cloud_storage: GcsState) -> None:
    cloud_storage.denied.update(RIGHTS | {"storage.buckets.get"})
    [line] = problems("gs://bucket/store")
    assert all(right in line for right in RIGHTS)


def test_without_the_right_to_see_where_the_bucket_is_the_region_is_not_checked(
    cloud_storage: GcsState, caplog: pytest.LogCaptureFixture
) -> None:
    with_text("gs://bucket/store")
    cloud_storage.denied.add("storage.buckets.get")
    assert problems("gs://bucket/store") == []
    assert "roles/storage.legacyBucketReader" in caplog.text


def test_of_a_bucket_that_is_not_there_no_rights_are_told(
    cloud_storage: GcsState,
) -> None:
    finding = rights_finding("gs://absent/store")
    assert finding is not None
    assert finding.status is Status.NOT_CHECKED
    assert "the rights in the bucket of gs://absent/store were not told" in finding.found


def test_the_rights_in_dataflows_temporary_folder(cloud_storage: GcsState) -> None:
    with_text("gs://bucket/store")
    temporary = DATAFLOW | {"beam.temp_location": "gs://bucket/temp"}
    assert problems("gs://bucket/store", temporary) == []
    cloud_storage.denied.add("storage.objects.delete")
    finding = rights_finding("gs://bucket/temp")
    assert finding is not None
    assert finding.found.startswith("this account lacks storage.objects.delete")


def test_a_disk_without_room(ready: str) -> None:
    huge = {
        "model.hidden_size": 8192,
        "model.num_attention_heads": 64,
        "model.intermediate_size": 32768,
        "model.num_hidden_layers": 96,
        "training.max_to_keep": 1000,
    }
    [line] = problems(ready, huge)
    assert line.startswith(f"store: {ready} has ")
    assert "the run needs about 1.17 PB (an estimate): 1000 checkpoints of 930 GB" in line


def test_what_a_run_writes(ready: str) -> None:
    def needed(**overrides: Any) -> int:
        named = {name.replace("__", "."): value for name, value in overrides.items()}
        return needed_bytes(with_overrides(SMOKE, named), DAY, StoreLayout(ready))

    bert = load_preset("bert_base_v5e")
    assert weight_count(bert) == pytest.approx(110.1e6, rel=0.001)
    assert checkpoint_bytes(bert) == pytest.approx(1.32e9, rel=0.01)
    small = needed()
    assert small < 200e6
    assert needed(optimizer__type="amos") < small
    assert needed(training__max_to_keep=4) > small
    assert needed(promotion__export_formats=[]) < small
    with_records = needed(masking__dupe_factor=50, masking__dynamic=False)
    assert with_records > small
    text = uris.read(f"{ready}/corpus/{DAY}/a.txt")
    uris.write(f"{ready}/corpus/{DAY}/a.txt", text * 1000)
    assert needed() > small
    assert needed(masking__extra_max_seq_length=64) > needed()


def test_documents_are_those_of_the_lineage(ready: str) -> None:
    store_partition(StoreLayout(ready), [shard(1)])
    assert problems(ready, {"corpus.document": "blank_line"}) == []
    for setting, value in (("document", "line"), ("split_by", "file")):
        (line,) = problems(ready, {f"corpus.{setting}": value})
        assert line.startswith(f"corpus.{setting}: {value} is asked for, but partition {DAY} ")
        assert "use a new model.lineage_id" in line


def test_files_have_such_documents_and_the_groups_field(ready: str) -> None:
    uris.write(f"{ready}/corpus/{DAY}/b.jsonl", b'{"text": "Some text."}\n')
    assert problems(ready) == []
    (line,) = problems(ready, {"corpus.document": "file"})
    assert "b.jsonl, which is read as jsonl; use record for such files" in line
    (line,) = problems(ready, {"corpus.group_field": "thread"})
    assert "a.txt is read as text, which has no fields" in line
    only = {"corpus.input_pattern": "corpus/{partition}/*.jsonl"}
    (line,) = problems(ready, {"corpus.group_field": "thread", **only})
    assert line.startswith("corpus.input_pattern: none of the 1 files has text in it")
    uris.write(f"{ready}/corpus/{DAY}/c.jsonl", b'{"text": "Some text.", "thread": 5}\n')
    (line,) = problems(ready, {"corpus.group_field": "thread", **only})
    assert line.startswith("corpus.group_field: ")
    assert line.endswith("Name the field or column with the group.")
