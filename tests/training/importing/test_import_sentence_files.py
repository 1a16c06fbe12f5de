"""Files of sentence-transformers: kept where they are what they should be, refused otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.marked_files import MARK, heard
from trained_models.errors import UserError
from trained_models.importing.sentence_transformers import LARGEST_BYTES, sentence_files

TYPES = "sentence_transformers.models"
TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": f"{TYPES}.Transformer"}
POOLING = {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{TYPES}.Pooling"}


def write(folder: Path, **files: object) -> str:
    """Write files as JSON, or as they are; ``__`` in a name is a slash."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(folder)


def test_without_modules_there_is_nothing(tmp_path: Path) -> None:
    assert sentence_files(write(tmp_path, sentence_bert_config={})) == ({}, ())


def test_those_that_are_there_are_kept(tmp_path: Path) -> None:
    modules = [TRANSFORMER, POOLING | {"type": "sentence_transformers.base.modules.Pooling"}]
    pooling = {"pooling_mode_mean_tokens": True}
    folder = write(tmp_path, modules=modules, **{"1_Pooling__config": pooling, "config": {}})
    found = {"modules.json": modules, "1_Pooling/config.json": pooling}
    assert sentence_files(folder) == (found, ())


@pytest.mark.parametrize(
    "modules",
    [
        [TRANSFORMER, POOLING | {"type": f"{TYPES}.Dense"}],
        [TRANSFORMER, POOLING | {"type": "os.Pooling"}],
        [TRANSFORMER | {"path": "0_BERT"}, POOLING],
        [POOLING, TRANSFORMER],
    ],
)
def test_modules_with_weights_or_programs_are_not_kept(
    tmp_path: Path, modules: list[object]
) -> None:
    files, (note,) = sentence_files(write(tmp_path, modules=modules))
    assert files == {}
    assert "is not kept" in note


@pytest.mark.parametrize(
    "files",
    [
        {"modules": {}},
        {"modules": []},
        {"modules": [MARK]},
        {"modules": [TRANSFORMER] * 9},
        {"modules": [TRANSFORMER, POOLING | {"path": f"../{MARK}"}]},
        {"modules": [TRANSFORMER, POOLING | {"path": f"/{MARK}"}]},
        {"modules": [TRANSFORMER, POOLING | {"type": [MARK]}]},
        {"modules": b"[" * 5000},
        {"modules": b"[" + b" " * LARGEST_BYTES + b"]"},
        {"modules": [TRANSFORMER], "sentence_bert_config": [MARK]},
        {"modules": [TRANSFORMER], "sentence_bert_config": f'{{"{MARK}": NaN}}'.encode()},
        {"modules": [TRANSFORMER, POOLING], "1_Pooling__config": b"\xff" + MARK.encode()},
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, files: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"cannot be|can be kept: .*remove modules\.json") as caught:
        sentence_files(write(tmp_path, **files))
    assert not heard(str(caught.value))
