"""The command that looks at weights, and a training that starts from them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_config import load_preset
from pipeline_store import uris
from pipeline_store.formats import InitialWeights
from tests.pipeline_store.gcs_server import GcsState
from tests.training.corpora import TOKENS, TinyStore, tiny_config
from tests.training.importing.test_import_hugging_face import only
from tests.training.jobs import PREEMPTED, ROOT, USER_ERROR, result, train, train_until
from tests.training.pretrained import (
    SETTINGS,
    SIZES,
    bert_weights,
    write_google,
    write_hugging_face,
    write_vocabulary,
)
from trained_models.importing.descriptions import check_description
from trained_models.importing.sources import SourceKind
from trained_models.importing.vocabulary import source_vocabulary
from training import import_model
from training.architectures.models import build_model, named_variables, weights_sha256
from training.exporting.hugging_face import write_configuration, write_weights
from training.importing.loading import InitialModel
from training.model.checkpoints import load_weights


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Return a Hugging Face folder."""
    return write_hugging_face(tmp_path / "hf", bert_weights())


def preset_of(source: str, tmp_path: Path, *arguments: str) -> Path:
    """Run the command and return the preset that it writes."""
    target = tmp_path / "found.toml"
    assert import_model.main([source, "--write-preset", str(target), *arguments]) == 0
    return target


def test_the_written_preset_fits(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_preset(str(preset_of(source, tmp_path)))
    assert {name: getattr(config.model, name) for name in SIZES} == SIZES
    assert config.model.init_checkpoint == source
    assert config.vocabulary.uri == f"{source}/vocab.txt"
    assert config.vocabulary.do_lower_case
    check_description(source, SourceKind.HUGGING_FACE, config.model)
    output = capsys.readouterr().out
    assert f"{source} is a Hugging Face folder, described by {source}/config.json" in output
    assert "44 variables loaded, 0 new, 2 dropped, 0 of another shape" in output
    assert 'hidden_act = "gelu"' in output


def test_a_checkpoint_of_googles_bert(tmp_path: Path) -> None:
    prefix = write_google(tmp_path / "google", bert_weights(), tokens=[*TOKENS, "Upper"])
    config = load_preset(str(preset_of(prefix, tmp_path)))
    assert config.model.hidden_act == "gelu_new"
    assert config.vocabulary.uri == f"{tmp_path}/google/vocab.txt"
    assert not config.vocabulary.do_lower_case


def test_an_encoder_alone_is_a_purpose_in_the_preset(tmp_path: Path) -> None:
    source = write_hugging_face(tmp_path / "hf", only(bert_weights(), "bert."))
    assert load_preset(str(preset_of(source, tmp_path))).model.init_encoder_only


def test_another_vocabulary_is_compared(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.txt"
    more.write_text("".join(f"{token}\n" for token in [*TOKENS, "w5", *"abcdefghijklmnopqrstu"]))
    config = load_preset(str(preset_of(source, tmp_path, "--vocabulary", str(more))))
    assert (config.model.vocab_size, config.vocabulary.uri) == (322, str(more))
    assert "21 at random, 0 of the source are dropped" in capsys.readouterr().out


def test_a_tokenizer_gives_a_vocabulary(tmp_path: Path) -> None:
    source = write_hugging_face(tmp_path / "hf", bert_weights(), tokens=None)
    vocab = {token: number for number, token in enumerate(TOKENS)}
    tokenizer = {"model": {"type": "WordPiece", "vocab": vocab}, "added_tokens": []}
    Path(source, "tokenizer.json").write_text(json.dumps(tokenizer))
    Path(source, "tokenizer_config.json").write_text('{"do_lower_case": false}')
    config = load_preset(str(preset_of(source, tmp_path)))
    assert not config.vocabulary.do_lower_case
    assert config.vocabulary.uri is not None
    assert uris.read(config.vocabulary.uri).decode().split() == TOKENS


def test_what_cannot_be_trained_from_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = bert_weights() | {"extra": bert_weights()["cls.predictions.bias"]}
    source = write_hugging_face(tmp_path / "hf", weights)
    target = tmp_path / "found.toml"
    assert import_model.main([source, "--write-preset", str(target)]) == USER_ERROR
    output = capsys.readouterr().out
    assert "dropped    1 tensors that have no place here" in output
    assert "Tensors that have no place here: extra" in output
    assert not target.exists()


def test_a_preset_is_never_written_over(source: str, tmp_path: Path) -> None:
    target = preset_of(source, tmp_path)
    before = target.read_text()
    assert import_model.main([source, "--write-preset", str(target)]) == USER_ERROR
    assert import_model.main([source, "--write-preset", str(tmp_path / "f.yaml")]) == USER_ERROR
    assert target.read_text() == before


def test_an_unknown_folder_is_answered_with_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_model.main([str(tmp_path)]) == USER_ERROR
    output = capsys.readouterr().out
    for part in ("model.json", "result.json", "config.json", "PREFIX.index", "no files in it"):
        assert part in output
    Path(tmp_path, "weights.pt").touch()
    assert import_model.main([str(tmp_path)]) == USER_ERROR
    assert "The files in it are weights.pt." in capsys.readouterr().out


def test_a_bucket_is_read(
    source: str, tmp_path: Path, cloud_storage: GcsState, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = "gs://bucket/public"
    prefix = write_google(tmp_path / "google", bert_weights())
    for folder in (source, str(Path(prefix).parent)):
        for path in Path(folder).iterdir():
            uris.upload(str(path), f"{bucket}/{Path(folder).name}/{path.name}")
    assert import_model.main([f"{bucket}/hf"]) == 0
    assert import_model.main([f"{bucket}/google/bert_model.ckpt"]) == 0
    assert capsys.readouterr().out.count("44 variables loaded") == 2
    assert import_model.main([f"{bucket}/google"]) == USER_ERROR
    assert f"give {bucket}/google/bert_model.ckpt" in capsys.readouterr().out


def test_hugging_face_folders_are_looked_at_without_tensorflow(source: str) -> None:
    program = (
        "import sys; from training import import_model; "
        f"assert import_model.main([{source!r}]) == 0; assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


# Training


def test_training_starts_from_it_and_keeps_the_table(
    source: str, tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS | {"masking__max_seq_length": 16, "model__init_checkpoint": source}
    config = tiny_config(**settings)
    store = tiny.using(config)
    manifest = store.partition("2026-01-01")
    run, interrupted = (store.run(name, config) for name in ("run", "interrupted"))
    assert train(store, run, manifest) == 0
    kept = InitialWeights.load(run.training.initial_weights)
    assert (kept.uri, len(kept.loaded), kept.new) == (source, 44, [])
    assert train_until(4, monkeypatch, store, interrupted, manifest) == PREEMPTED
    assert train(store, interrupted, manifest) == 0
    assert result(interrupted).weights_sha256 == result(run).weights_sha256
    assert InitialWeights.load(interrupted.training.initial_weights) == kept


def test_what_does_not_fit_is_refused_before_training(
    source: str, tiny: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    assert train(tiny, run, manifest, "--init-model", source) == USER_ERROR
    output = capsys.readouterr().out
    assert "model.num_attention_heads is 4 there and 2 here" in output
    assert f"python -m training.import_model {source} --write-preset FILE.toml" in output


def test_what_leaves_as_a_hugging_face_folder_comes_back_bit_for_bit(tmp_path: Path) -> None:
    config = tiny_config(masking__packing="segment_pair")
    model = build_model(config)
    values = {name: variable.numpy() for name, variable in named_variables(model).items()}
    write_configuration(tmp_path, config.model)
    write_weights(tmp_path, config.model, values, pooler=True, next_sentence=True)
    write_vocabulary(tmp_path, TOKENS)
    other = build_model(tiny_config(masking__packing="segment_pair", training__random_seed=9))
    assert weights_sha256(other) != weights_sha256(model)
    load_weights(other, InitialModel(str(tmp_path), config.model, tuple(TOKENS)))
    assert weights_sha256(other) == weights_sha256(model)


def test_the_vocabulary_is_found_beside_the_weights(source: str) -> None:
    found = source_vocabulary(source, SourceKind.HUGGING_FACE)
    assert found is not None
    assert found.tokens == tuple(TOKENS)
