"""What the trainer says of weights and texts that a request names: nothing of what they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pipeline_config import TaskConfig
from pipeline_store.formats import ExitKind
from tests import marked_files
from tests.marked_files import MARK, heard
from tests.training.corpora import TOKENS, tiny_config
from tests.training.pretrained import (
    HUGGING_FACE_CONFIG,
    SETTINGS,
    bert_weights,
    write_hugging_face,
)
from trained_models.artifacts import load_inputs, model_files
from training.finetuning.exporting.text_files import read_texts
from training.importing.loading import InitialModel, load_foreign
from training.runtime.job import run_job

REFUSED = {ExitKind.USER_ERROR.exit_code, ExitKind.BAD_DATA.exit_code}
MODEL = tiny_config(**SETTINGS).model


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Callable[[Callable[[], object]], str]:
    """Return what runs a job as the trainer's commands do; it has to end for its user's reasons."""

    def run(job: Callable[[], object]) -> str:
        code = run_job(lambda: job() and None)
        captured = capfd.readouterr()
        assert code in REFUSED, captured
        assert not heard(captured.out + captured.err)
        return captured.out

    return run


def load(uri: Path) -> object:
    return load_foreign({}, InitialModel(str(uri), MODEL, tuple(TOKENS)), next_sentence=False)


@pytest.mark.parametrize("name", marked_files.MODELS)
def test_a_model(tmp_path: Path, refused: Callable[[Callable[[], object]], str], name: str) -> None:
    files, folder = marked_files.MODELS[name], tmp_path / "model"
    marked_files.write_all(folder, files)
    if {"model.json", "result.json"} & files.keys():
        refused(lambda: load_inputs(model_files(str(folder))))
    else:
        refused(lambda: load(folder / "model.ckpt" if "model.ckpt.index" in files else folder))


@pytest.mark.parametrize("name", marked_files.WEIGHTS)
def test_weights(tmp_path: Path, refused: Callable[[Callable[[], object]], str], name: str) -> None:
    files = {
        "config.json": json.dumps(HUGGING_FACE_CONFIG).encode(),
        "model.safetensors": marked_files.WEIGHTS[name],
    }
    marked_files.write_all(tmp_path / "model", files)
    said = refused(lambda: load(tmp_path / "model"))
    assert "model.safetensors of" in said


def test_names_of_tensors(tmp_path: Path, refused: Callable[[Callable[[], object]], str]) -> None:
    one = np.ones(3, np.float32)
    query = "encoder.layer.0.attention.self.query.weight"
    for number, more in enumerate(
        (
            {MARK: one},
            {f"bert.{MARK}": one, f"{MARK}.weight": one},
            {query: one, MARK: one},
        )
    ):
        uri = write_hugging_face(tmp_path / str(number), bert_weights() | more)
        refused(lambda uri=uri: load(Path(uri)))  # type: ignore[misc]
    alone = write_hugging_face(tmp_path / "alone", {MARK: one})
    assert "among its 1 tensors" in refused(lambda: load(Path(alone)))


def test_variables_of_a_checkpoint(
    tmp_path: Path, refused: Callable[[Callable[[], object]], str]
) -> None:
    embeddings = "word_embeddings/embeddings"
    for number, names in enumerate(([MARK], [f"{MARK}/{embeddings}", f"b{MARK}/{embeddings}"])):
        variables = [tf.Variable([[1.0]], name=name) for name in names]
        prefix = tmp_path / str(number) / "model.ckpt"
        tf.train.Checkpoint(variables=variables).write(str(prefix))
        refused(lambda prefix=prefix: load(prefix))  # type: ignore[misc]


def test_a_checkpoint_without_a_description(
    tmp_path: Path, refused: Callable[[Callable[[], object]], str]
) -> None:
    marks = dict.fromkeys(("model.ckpt.index", "model.ckpt.data-00000-of-00001"), MARK.encode())
    marked_files.write_all(tmp_path / "model", marks)
    assert "TensorFlow checkpoint" in refused(lambda: load(tmp_path / "model" / "model.ckpt"))


@pytest.mark.parametrize("name", marked_files.CORPUS)
def test_texts_to_predict(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    """They are read as a task's; what cannot be used is a line of the answers, with the reason."""
    file, content = marked_files.CORPUS[name]
    path = tmp_path / file.replace(".txt", ".tsv")
    path.write_bytes(content)
    errors: list[str] = []
    code = run_job(lambda: errors.extend(row.error for row in read_texts(str(path), TaskConfig())))
    captured = capfd.readouterr()
    assert code in REFUSED or all(errors)
    assert not heard(captured.out + captured.err + "".join(errors))
