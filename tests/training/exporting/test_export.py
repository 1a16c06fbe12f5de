"""Models in other formats: what is written, and what has to be right before it counts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from corpus.tokens.sentencepiece_tokens import train_sentencepiece
from corpus.tokens.tokenizing import make_tokenizer
from pipeline_store import uris
from pipeline_store.formats import Holder, ModelExports, VocabularyInfo
from pipeline_store.layout import ExportsLayout
from tests.corpus.real_text import docstrings
from tests.pipeline_store.gcs_server import GcsState
from tests.training import pretrained
from tests.training.conftest import TwoDays
from tests.training.corpora import TOKENS, TinyStore, tiny_config
from tests.training.jobs import BAD_DATA, FAILED, USER_ERROR, all_files, result, train
from trained_models import artifacts
from training import export_model
from training.architectures.models import build_model, named_variables, weights_sha256
from training.exporting import exporter, hugging_face, saved_model
from training.exporting.text_ops import WordPieceText
from training.model.checkpoints import load_weights

Capture = pytest.CaptureFixture[str]


class Exported:
    """The exports of a run."""

    def __init__(self, store: TinyStore, run_root: str, output: Path | str) -> None:
        self.store = store
        self.layout = ExportsLayout(str(output))
        self._arguments = ["--store", store.layout.root, "--output", str(output)]
        self.model = f"{run_root}/training"
        self._arguments += ["--model", self.model]
        self._arguments += ["--config", f"{run_root}/config.json"]

    def export(self, *words: str) -> int:
        return export_model.main([*self._arguments, *words])

    @property
    def record(self) -> ModelExports:
        return ModelExports.load(self.layout.record)

    def folder(self, name: str) -> Path:
        return Path(self.layout.root, self.record.formats[name].folder)


@pytest.fixture(scope="module")
def exported(two_days: TwoDays, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Return a model in all formats; tests must not change them."""
    output = tmp_path_factory.mktemp("exports")
    exported = Exported(two_days.store, two_days.first.root, output)
    assert exported.export() == 0
    return exported


@pytest.fixture
def fresh(two_days: TwoDays, tmp_path: Path) -> Exported:
    """Return a model that is not exported yet."""
    return Exported(two_days.store, two_days.first.root, tmp_path / "exports")


def test_all_formats_are_written_and_compared(exported: Exported) -> None:
    record = exported.record
    assert sorted(record.formats) == ["hugging_face", "saved_model"]
    assert record.left_out == {}
    for format_ in record.formats.values():
        assert 0 <= format_.check.max_hidden_state_difference < 1e-4
        assert 0 <= format_.check.max_logit_difference < 1e-4
        assert format_.check.rows == 16
        assert format_.check.masks > 16
    named = {f"{f.folder}/{file.path}" for f in record.formats.values() for file in f.files}
    assert set(all_files(exported.layout.root)) == named | {"exports.json"}


def test_exporting_again_changes_nothing(exported: Exported, capsys: Capture) -> None:
    before = all_files(exported.layout.root)
    assert exported.export() == 0
    captured = capsys.readouterr()
    assert "as they were written" in captured.err
    summary = json.loads(captured.out)
    assert summary["exports"] == exported.layout.record
    assert summary["hugging_face"]["folder"] == str(exported.folder("hugging_face"))
    assert all_files(exported.layout.root) == before


def test_what_the_model_computes_is_written_for_other_programs(
    exported: Exported, tmp_path: Path
) -> None:
    before = all_files(exported.layout.root)
    assert exported.export("--reference", str(tmp_path / "reference.npz")) == 0
    assert all_files(exported.layout.root) == before
    wanted = np.load(tmp_path / "reference.npz")
    config = exported.store.config
    model = build_model(config)
    load_weights(model, exported.model)
    ids, mask = wanted["input_word_ids"], wanted["input_mask"]
    rows = {name: wanted[name] for name in ("input_word_ids", "input_mask", "input_type_ids")}
    places = np.tile(np.arange(ids.shape[1], dtype=np.int32), (len(ids), 1))
    found = model(rows | {"masked_lm_positions": places})
    states = found["sequence_output"].numpy()[mask == 1]
    np.testing.assert_allclose(wanted["hidden_states"], states, atol=1e-5)
    row, place = wanted["mask_places"].T
    assert len(row) == exported.record.formats["hugging_face"].check.masks
    assert (ids[row, place] == TOKENS.index("[MASK]")).all()
    logits = found["mlm_logits"].numpy()[row, place, : len(TOKENS)]
    np.testing.assert_allclose(wanted["logits"], logits, atol=1e-5)


def test_the_folder_of_hugging_face_has_what_a_masked_language_model_needs(
    exported: Exported,
) -> None:
    folder = exported.folder("hugging_face")
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
    assert config["architectures"] == ["BertForMaskedLM"]
    assert (config["vocab_size"], config["hidden_act"]) == (320, "gelu")
    assert config["tie_word_embeddings"] is True
    tensors = load_file(folder / "model.safetensors")
    embedding = tensors["bert.embeddings.word_embeddings.weight"]
    assert (embedding.shape, embedding.dtype) == ((320, 32), np.float32)
    assert tensors["bert.encoder.layer.0.intermediate.dense.weight"].shape == (64, 32)
    # Tied to the input's, and never trained.
    assert not any("decoder" in name or "pooler" in name for name in tensors)
    tokens = (folder / "vocab.txt").read_text().removesuffix("\n").split("\n")
    assert tokens == TOKENS


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_the_tensors_compute_the_same_by_the_rules_of_hugging_face(
    tmp_path: Path, activation: str
) -> None:
    pairs = {"masking__packing": "segment_pair", "model__hidden_act": activation}
    config = tiny_config(**pretrained.SETTINGS, **pairs)
    model = build_model(config)
    random = np.random.default_rng(1)
    for variable in model.variables:
        variable.assign_add(random.normal(0, 0.3, variable.shape).astype(np.float32))
    values = {name: v.numpy() for name, v in named_variables(model).items()}
    hugging_face.write_weights(tmp_path, config.model, values, pooler=True, next_sentence=True)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors.keys() == pretrained.bert_weights().keys()

    gelu = pretrained.exact_gelu if activation == "gelu" else pretrained.tanh_gelu
    rows = pretrained.batch()
    wanted, found = pretrained.bert_outputs(tensors, rows, gelu), model(rows)
    for name, value in wanted.items():
        assert np.abs(np.stack(found[name]) - value).max() < 1e-4, name


@pytest.mark.thorough
def test_the_saved_model_needs_nothing_but_tensorflow_text(
    exported: Exported, tmp_path: Path
) -> None:
    code = f"""
import tensorflow as tf
folder = {str(exported.folder("saved_model"))!r}
try:
    tf.saved_model.load(folder)
except Exception as error:
    print("without:", type(error).__name__)
import tensorflow_text
fill = tf.saved_model.load(folder).signatures["fill_mask"]
found = fill(text=tf.constant(["w7 w8 [MASK] w10"]))
print(found["tokens"].shape, found["tokens"].numpy()[0, 0, 0].decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    without, words = done.stdout.splitlines()
    assert without.startswith("without:")
    assert words.startswith("(1, 1, 5) w")


def test_signatures_of_the_saved_model(exported: Exported, two_days: TwoDays) -> None:
    signatures = tf.saved_model.load(str(exported.folder("saved_model"))).signatures
    assert sorted(signatures) == ["encode", "fill_mask", "mlm_logits", "serving_default"]
    texts = tf.constant(["w7 w8 [MASK] w10", "[MASK] w9 [MASK]", "w5", "w6 " * 99 + "[MASK]"])
    filled = signatures["fill_mask"](text=texts)
    assert filled["tokens"].shape == filled["probabilities"].shape == (4, 2, 5)
    empty = (filled["tokens"].numpy() == b"").all(axis=2)
    # The last mask is beyond the 32 positions that the model has.
    assert empty.tolist() == [[False, True], [False, False], [True, True], [True, True]]
    assert (filled["probabilities"].numpy() == 0).all(axis=2).tolist() == empty.tolist()

    encoded = signatures["encode"](text=texts)
    assert encoded["sequence_output"].shape == (4, 32, 32)
    assert encoded["pooled_output"].shape == (4, 32)
    assert encoded["input_mask"].numpy().sum(axis=1).tolist() == [6, 5, 3, 32]

    model = build_model(tiny_config())
    load_weights(model, two_days.first.training.root)
    row = {
        "input_word_ids": encoded["input_word_ids"][:1],
        "input_mask": encoded["input_mask"][:1],
        "input_type_ids": tf.zeros([1, 32], tf.int32),
    }
    everywhere = tf.range(32)[tf.newaxis]
    wanted = model(row | {"masked_lm_positions": everywhere})["mlm_logits"]
    found = signatures["mlm_logits"](**row)["mlm_logits"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    best = np.argsort(-wanted.numpy()[0, 3, : len(TOKENS)])[:5]
    assert [TOKENS[number].encode() for number in best] == filled["tokens"].numpy()[0, 0].tolist()


def exchange(first: str, second: str) -> Callable[..., None]:
    """Return a writer of weights that takes one tensor for another."""
    write = hugging_face.write_weights

    def write_wrongly(folder: Path, model: Any, variables: Any, **options: Any) -> None:
        names = {end: next(n for n in variables if n.endswith(end)) for end in (first, second)}
        exchanged = variables | {names[first]: variables[names[second]]}
        write(folder, model, exchanged, **options)

    return write_wrongly


def test_a_wrong_tensor_is_found_before_anything_is_committed(
    fresh: Exported, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    wrong = exchange("/query/kernel", "/key/kernel")
    monkeypatch.setattr(hugging_face, "write_weights", wrong)
    assert fresh.export() == BAD_DATA
    assert "hugging_face is not the model: hidden states differ by" in capsys.readouterr().err
    assert not Path(fresh.layout.root).exists()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        pytest.param(
            "bert_encoder/pooler_transform/bias",
            "saved_model is not the model: hidden",
            marks=pytest.mark.thorough,
        ),
        ("bert/cls/predictions/output_bias/bias", "and logits by 1.0e-03"),
    ],
)
def test_a_wrong_saved_model_is_found_before_anything_is_committed(
    exported: Exported,
    fresh: Exported,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    *,
    weight: str,
    message: str,
) -> None:
    def write_what_was_right_before(folder: Path, model: Any, rows: Any, tokens: Any) -> None:
        # Writing takes most of an export's time, and here it is about what is found after that.
        shutil.copytree(exported.folder("saved_model"), folder)
        changed = named_variables(model)[weight]
        changed.assign_add(tf.fill(changed.shape, 0.001))

    monkeypatch.setattr(exporter, "write_saved_model", write_what_was_right_before)
    # The other format, written first, is right; its bytes are not stored either.
    assert fresh.export("--format", "hugging_face", "--format", "saved_model") == BAD_DATA
    assert message in capsys.readouterr().err
    assert not Path(fresh.layout.root).exists()


def test_a_saved_model_of_other_tokens_is_found_before_anything_is_committed(
    fresh: Exported, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    write, reversed_tokens = saved_model.write_saved_model, [*TOKENS[:5], *reversed(TOKENS[5:])]

    def write_wrongly(folder: Path, model: Any, rows: Any, tokens: Any) -> None:
        text_ops = WordPieceText(reversed_tokens, do_lower_case=True, normalization="NFC")
        write(folder, model, exporter.RowBuilder(text_ops, reversed_tokens, 32), tokens)

    monkeypatch.setattr(exporter, "write_saved_model", write_wrongly)
    assert fresh.export("--format", "saved_model") == BAD_DATA
    assert "makes other tokens of" in capsys.readouterr().err
    assert not Path(fresh.layout.root).exists()


def test_a_dry_run_stores_nothing(fresh: Exported, capsys: Capture) -> None:
    assert fresh.export("--format", "hugging_face", "--dry-run") == 0
    assert json.loads(capsys.readouterr().out)["hugging_face"]["max_logit_difference"] < 1e-4
    assert not Path(fresh.layout.root).exists()


def test_a_process_that_lost_the_run_commits_nothing(
    fresh: Exported, two_days: TwoDays, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    holder = str(tmp_path / "holder.json")
    Holder(sequence=1, generation=1, attempt=2, token="another").write(holder)  # noqa: S106
    monkeypatch.setenv("REPRETRAIN_HOLDER_URI", holder)
    monkeypatch.setenv("REPRETRAIN_TOKEN", "mine")
    assert fresh.export("--format", "hugging_face") == FAILED
    assert not Path(fresh.layout.record).exists()


def test_bytes_of_other_tries_are_swept(fresh: Exported) -> None:
    stray = Path(fresh.layout.format_files("earlier", "saved_model"), "saved_model.pb")
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"of a try that died")
    assert fresh.export("--format", "hugging_face") == 0
    assert not stray.exists()
    assert fresh.folder("hugging_face").exists()


def test_what_exists_of_something_else_is_refused(
    fresh: Exported, two_days: TwoDays, capsys: Capture
) -> None:
    assert fresh.export("--format", "hugging_face") == 0
    before = all_files(fresh.layout.root)
    assert fresh.export() == USER_ERROR
    assert "formats are ['hugging_face'] there and" in capsys.readouterr().err
    other = Exported(two_days.store, two_days.second.root, Path(fresh.layout.root))
    assert other.export("--format", "hugging_face") == USER_ERROR
    assert "the model is" in capsys.readouterr().err
    assert all_files(fresh.layout.root) == before

    path = fresh.folder("hugging_face") / "vocab.txt"
    path.write_bytes(path.read_bytes()[::-1])
    assert fresh.export("--format", "hugging_face") == BAD_DATA
    assert "vocab.txt is damaged" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formats",
    [["hugging_face"], ["hugging_face", "saved_model"]],
    ids=str,
)
def test_a_model_is_exported_in_float32_without_dropout_whatever_it_was_trained_with(
    tiny: TinyStore, tmp_path: Path, formats: list[str]
) -> None:
    config = tiny_config(
        training__mixed_precision_dtype="bfloat16",
        training__residual_dtype="bfloat16",
        training__train_steps=2,
        optimizer__warmup_steps=0,
        model__hidden_dropout_prob=0.1,
        model__hidden_act="gelu_new",
        masking__packing="segment_pair",
        promotion__export_formats=formats,
    )
    store = tiny.using(config)
    run = store.run("mixed", config)
    assert train(store, run, store.partition("2026-01-01")) == 0
    exported = Exported(store, run.root, tmp_path / "exports")
    assert exported.export() == 0
    assert sorted(exported.record.formats) == formats
    folder = exported.folder("hugging_face")
    described = json.loads((folder / "config.json").read_text())
    assert (described["hidden_dropout_prob"], described["hidden_act"]) == (0.1, "gelu_new")
    # Both were trained, as in Google's BERT.
    tensors = load_file(folder / "model.safetensors")
    assert tensors["bert.pooler.dense.weight"].shape == (32, 32)
    assert tensors["cls.seq_relationship.weight"].shape == (2, 32)


def test_without_the_shards_of_the_training_there_is_nothing_to_try_it_on(
    two_days: TwoDays, tmp_path: Path, capsys: Capture
) -> None:
    elsewhere = TinyStore.create(tmp_path / "elsewhere")
    exported = Exported(elsewhere, two_days.first.root, tmp_path / "exports")
    assert exported.export() == BAD_DATA
    assert "its exports cannot be tried out" in capsys.readouterr().err


def test_weights_of_others_are_no_model_to_export(
    exported: Exported, two_days: TwoDays, capsys: Capture
) -> None:
    words = ["--store", two_days.store.layout.root, "--output", "o", "--config"]
    words += [two_days.first.config, "--model", str(exported.folder("hugging_face"))]
    assert export_model.main(words) == USER_ERROR
    assert "is not a model" in capsys.readouterr().err


def test_exports_go_to_a_bucket_too(two_days: TwoDays, cloud_storage: GcsState) -> None:
    exported = Exported(two_days.store, two_days.first.root, "gs://bucket/exports")
    assert exported.export("--format", "hugging_face") == 0
    names = {file.path for file in exported.record.formats["hugging_face"].files}
    assert {"config.json", "model.safetensors", "tokenizer.json"} < names
    # Again: what is there is read and verified.
    assert exported.export("--format", "hugging_face") == 0


@pytest.mark.thorough
def test_a_sentencepiece_vocabulary_has_no_folder_of_hugging_face(
    tiny: TinyStore, tmp_path: Path, capsys: Capture
) -> None:
    lineage = tiny.layout.lineage("default")
    vocabulary = train_sentencepiece(docstrings(50_000), size=300, do_lower_case=True)
    assert vocabulary.model is not None
    uris.write(lineage.vocabulary, vocabulary.to_bytes())
    uris.write(lineage.sentencepiece_model, vocabulary.model)
    VocabularyInfo(
        vocabulary_kind="sentencepiece",
        sha256=vocabulary.sha256,
        tokens_sha256=vocabulary.tokens_sha256,
        size=len(vocabulary.tokens),
        do_lower_case=True,
        source="test",
    ).write(lineage.vocabulary_info)
    run = tiny.run("pieces")
    assert train(tiny, run, tiny.partition("2026-01-01")) == 0
    exported = Exported(tiny, run.root, tmp_path / "exports")
    assert exported.export() == 0
    assert "hugging_face is left out: the vocabulary is a SentencePiece" in capsys.readouterr().err
    assert sorted(exported.record.formats) == ["saved_model"]
    assert "SentencePiece" in exported.record.left_out["hugging_face"]
    assert exported.export() == 0

    signatures = tf.saved_model.load(str(exported.folder("saved_model"))).signatures
    text = "Return a [MASK] of the object."
    ids = signatures["encode"](text=tf.constant([text]))["input_word_ids"].numpy()[0]
    parts, _ = make_tokenizer(vocabulary, True).encode(["Return a", "of the object."])
    mask = vocabulary.ids["[MASK]"]
    assert [number for number in ids[1:-1] if number != mask] == parts.tolist()
    words = signatures["fill_mask"](text=tf.constant([text]))["tokens"].numpy()
    assert {word.decode() for word in words.flat} <= set(vocabulary.tokens)

    uris.write(lineage.sentencepiece_model, b"damaged")
    again = Exported(tiny, run.root, tmp_path / "again")
    assert again.export() == BAD_DATA
    assert "sentencepiece.model is damaged" in capsys.readouterr().err


def test_tf_models_task_starts_from_our_checkpoint(two_days: TwoDays) -> None:
    from official.nlp.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

    config = tiny_config(training__random_seed=77)
    manifest = artifacts.result_checkpoint(two_days.first.training.root)
    prefix = str(Path(two_days.first.training.root, manifest.prefix))
    model = build_model(config)
    MaskedLMTask(MaskedLMConfig(init_checkpoint=prefix)).initialize(model)
    assert weights_sha256(model) == result(two_days.first).weights_sha256
