"""What cannot begin a lineage is named by the command that looks and by the task that imports.

Both come before a TPU is rented. What validate says of the same is in tests/preflight.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from model_registry import registry
from pipeline_store import uris
from tests.training.corpora import TOKENS
from tests.training.damages import flip
from tests.training.importing.test_import_hugging_face import only
from tests.training.importing.test_import_torch import Command, as_torch
from tests.training.importing.test_import_version import Beginning
from tests.training.jobs import BAD_DATA, USER_ERROR
from tests.training.pretrained import bert_weights, write_google, write_hugging_face
from tests.training.torch_files import write_archive
from training import import_model


@dataclass(frozen=True)
class Fault:
    """Weights that cannot be used, and what is said of them.

    :ivar write: makes them in a new folder; returns what is named.
    :ivar imported: exit code of the import, and words of its message.
    :ivar looked: the same of the command that looks; None: only the numbers are wrong, which it
        does not read.
    :ivar settings: of the lineage.
    """

    write: Callable[[Path], str]
    imported: tuple[int, str]
    looked: tuple[int, str] | None
    settings: dict[str, Any]


def hugging_face(folder: Path, **config: Any) -> str:
    return write_hugging_face(folder, bert_weights(), config)


def cut_short(folder: Path) -> str:
    source = hugging_face(folder)
    file = Path(source, "model.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    return source


def flipped(folder: Path) -> str:
    prefix = write_google(folder, bert_weights())
    flip(Path(f"{prefix}.data-00000-of-00001"))
    return prefix


def flipped_in_torch(folder: Path) -> str:
    source = as_torch(hugging_face(folder))
    flip(Path(source, "pytorch_model.bin"))
    return source


def malicious(folder: Path) -> str:
    source = as_torch(hugging_face(folder))
    program = pickle.dumps({"weight": Command(folder / "ran")}, protocol=2)
    write_archive(Path(source, "pytorch_model.bin"), program, {})
    return source


GELU = {"model__hidden_act": "gelu_new"}
SIZES_SAID = "model.num_attention_heads is 8 there and 4 here"
FAULTS = {
    "another architecture": Fault(
        lambda folder: hugging_face(folder, model_type="electra"),
        (USER_ERROR, "model_type is another than 'bert'"),
        (USER_ERROR, "model_type is another than 'bert'"),
        {},
    ),
    "other sizes": Fault(
        lambda folder: hugging_face(folder, num_attention_heads=8),
        (USER_ERROR, SIZES_SAID),
        # Its settings are what the command finds out.
        (0, "num_attention_heads = 8"),
        {},
    ),
    "more layers described than there are": Fault(
        lambda folder: hugging_face(folder, num_hidden_layers=3),
        (USER_ERROR, "new        transformer/layer_2/self_attention/query/kernel"),
        (USER_ERROR, "new        transformer/layer_2/self_attention/query/kernel"),
        {"model__num_hidden_layers": 3},
    ),
    "a vocabulary of another size": Fault(
        lambda folder: write_hugging_face(
            folder, bert_weights(), tokens=[*TOKENS, *(f"x{number}" for number in range(30))]
        ),
        (USER_ERROR, "330 tokens"),
        (USER_ERROR, "330 tokens"),
        {},
    ),
    "no masked-LM head": Fault(
        lambda folder: write_hugging_face(folder, only(bert_weights(), "bert.")),
        (USER_ERROR, "the first training then trains the head alone before the whole model"),
        (0, "The first training trains the head alone before the whole model"),
        {},
    ),
    "a file that was cut short": Fault(
        cut_short,
        (BAD_DATA, "it is damaged or was not copied completely"),
        (BAD_DATA, "it is damaged or was not copied completely"),
        {},
    ),
    "a flipped bit in a TensorFlow checkpoint": Fault(
        flipped, (BAD_DATA, "cannot be read as a TensorFlow checkpoint"), None, GELU
    ),
    "a flipped bit in a file of PyTorch": Fault(
        flipped_in_torch, (BAD_DATA, "cannot be read as a file of PyTorch"), None, {}
    ),
    "a program in a file of PyTorch": Fault(
        malicious,
        (USER_ERROR, "Nothing of it was run"),
        (USER_ERROR, "Nothing of it was run"),
        {},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_import_names_it_and_leaves_nothing(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fault = FAULTS[name]
    beginning = Beginning(tmp_path / "store", fault.write(tmp_path / "source"), **fault.settings)
    run = beginning.begin()
    assert run is not None
    code, words = fault.imported
    assert beginning.load(run) == code
    assert words in capfd.readouterr().err
    assert not uris.exists(run.training.result)
    assert not (tmp_path / "source" / "ran").exists()
    assert registry.production(beginning.lineage) is None


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.looked])
def test_the_command_that_looks_names_it(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fault = FAULTS[name]
    assert fault.looked is not None
    code, words = fault.looked
    assert import_model.main([fault.write(tmp_path / "source")]) == code
    assert words in capfd.readouterr().out
