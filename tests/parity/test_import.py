"""Models that the library transformers wrote compute the same here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_config import load_preset, with_overrides
from tests.parity.conftest import RunTorch
from trained_models.importing.sources import SourceKind
from trained_models.importing.torch_files import TorchFile
from trained_models.importing.vocabulary import source_vocabulary
from trained_models.loaded_weights import LoadedWeights
from training import import_model
from training.architectures.models import build_model
from training.importing.loading import InitialModel
from training.model import checkpoints

pytestmark = pytest.mark.parity

CLOSE = 1e-4


@pytest.fixture(scope="module")
def models(run_torch: RunTorch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of models that transformers wrote."""
    folder = tmp_path_factory.mktemp("transformers")
    run_torch(Path(__file__).with_name("save_pretrained.py"), folder)
    return folder


def load(source: Path, tmp_path: Path) -> tuple[LoadedWeights, Any]:
    """Load a model with the settings that the command writes for it; return the table, too."""
    preset = tmp_path / "found.toml"
    assert import_model.main([str(source), "--write-preset", str(preset)]) == 0
    config = with_overrides(load_preset(str(preset)), {"masking.packing": "segment_pair"})
    tokens = source_vocabulary(str(source), SourceKind.HUGGING_FACE)
    assert tokens is not None
    model = build_model(config)
    initial = InitialModel(str(source), config.model, tokens.tokens)
    return checkpoints.load_weights(model, initial), model


def differences(source: Path, model: Any) -> dict[str, float]:
    """Return the largest difference of each output."""
    stored = dict(np.load(source / "outputs.npz"))
    rows = stored["input_ids"].shape
    outputs = model(
        {
            "input_word_ids": stored.pop("input_ids").astype(np.int32),
            "input_mask": stored.pop("attention_mask"),
            "input_type_ids": stored.pop("token_type_ids"),
            # Every position, as transformers predicts all.
            "masked_lm_positions": np.tile(np.arange(rows[1], dtype=np.int32), (rows[0], 1)),
        }
    )
    return {
        name: float(np.abs(np.stack(outputs[name]) - value).max()) for name, value in stored.items()
    }


@pytest.mark.parametrize(
    "name", ["pretraining", "masked_lm", "tanh", "sharded", "pickle", "encoder"]
)
def test_outputs_are_those_of_transformers(models: Path, tmp_path: Path, name: str) -> None:
    _, model = load(models / name, tmp_path)
    found = differences(models / name, model)
    print(name, found)
    wanted = {"encoder_outputs"} if name == "encoder" else {"encoder_outputs", "mlm_logits"}
    assert found.keys() >= wanted
    assert ("next_sentence" in found) == (name in {"pretraining", "sharded", "pickle"})
    assert max(found.values()) < CLOSE


def test_a_classifier_gives_its_encoder(models: Path, tmp_path: Path) -> None:
    table, model = load(models / "classifier", tmp_path)
    assert "2 tensors that have no place here" in table.dropped
    assert differences(models / "classifier", model)["encoder_outputs"] < CLOSE


def test_tensors_that_pytorch_saved_are_read_without_it(models: Path) -> None:
    file, wanted = TorchFile(models / "tensors.bin", str(models)), np.load(models / "tensors.npz")
    assert file.shapes() == {name: wanted[name].shape for name in wanted.files}
    for name in wanted.files:
        found = file.value(name)
        np.testing.assert_array_equal(found, wanted[name])
        assert found.dtype == wanted[name].dtype


def test_the_gelu_is_that_of_transformers(models: Path, tmp_path: Path) -> None:
    preset = tmp_path / "found.toml"
    assert import_model.main([str(models / "tanh"), "--write-preset", str(preset)]) == 0
    assert load_preset(str(preset)).model.hidden_act == "gelu_new"
