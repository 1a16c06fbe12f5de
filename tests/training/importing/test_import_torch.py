"""``pytorch_model.bin``: the numbers are read, and nothing that the file asks for is run."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.marked_files import MARK, heard
from tests.training.importing.test_import_hugging_face import CLOSE, distance, load, without
from tests.training.pretrained import (
    Weights,
    batch,
    bert_outputs,
    bert_weights,
    write_hugging_face,
    write_safetensors,
)
from tests.training.torch_files import (
    DICT,
    name,
    number,
    numbers,
    state,
    tensor,
    text,
    write_archive,
    write_torch,
)
from trained_models.errors import BadDataError, UserError
from trained_models.importing import torch_files
from trained_models.importing.torch_files import TorchFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pytorch_model.bin"


def read(path: Path) -> Weights:
    file = TorchFile(path, "FOLDER")
    return {key: file.value(key) for key in file.shapes()}


def test_numbers_of_all_kinds_and_orders(path: Path) -> None:
    random = np.random.default_rng(0)
    whole = random.normal(size=(3, 4, 5)).astype(np.float32)
    weights: Weights = {
        "float32": whole,
        "transposed": whole[0],
        "float16": whole.astype(np.float16),
        "half transposed": whole[0].astype(np.float16),
        "int64": np.arange(7),
        "bfloat16": whole.astype(ml_dtypes.bfloat16),
        "one": np.float32([3.5]),
        "none": np.zeros((0, 4), np.float32),
        "\N{GREEK SMALL LETTER ALPHA}": whole,
    }
    write_torch(path, weights)
    found = read(path)
    assert found.keys() == weights.keys()
    for key, value in weights.items():
        wanted = value.astype(np.float32) if key == "bfloat16" else value
        np.testing.assert_array_equal(found[key], wanted)
        assert found[key].dtype == wanted.dtype


def test_views_of_one_storage(path: Path) -> None:
    values = np.arange(12, dtype=np.float32)
    views = {
        "rows": tensor("FloatStorage", "0", 12, (2, 4), (4, 1), offset=4),
        "column": tensor("FloatStorage", "0", 12, (3,), (4,), offset=1),
        "scalar": tensor("FloatStorage", "0", 12, (), (), offset=11),
    }
    write_archive(path, state(views), {"0": values.tobytes()})
    found = read(path)
    np.testing.assert_array_equal(found["rows"], values[4:].reshape(2, 4))
    np.testing.assert_array_equal(found["column"], [1, 5, 9])
    assert found["scalar"] == 11


def as_torch(uri: str, *, shards: int = 1) -> str:
    """Write the weights of a folder as files of PyTorch instead."""
    folder, weights = Path(uri), bert_weights()
    (folder / "model.safetensors").unlink()
    second = weights["bert.embeddings.word_embeddings.weight"]
    weights |= {"cls.predictions.decoder.weight": second}
    weights |= {"bert.embeddings.position_ids": np.arange(24)[None]}
    if shards == 1:
        write_torch(folder / "pytorch_model.bin", weights)
        return uri
    files = [f"pytorch_model-{n + 1:05d}-of-{shards:05d}.bin" for n in range(shards)]
    places = {key: files[n % shards] for n, key in enumerate(weights)}
    for file in files:
        part = {key: value for key, value in weights.items() if places[key] == file}
        write_torch(folder / file, part)
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return uri


@pytest.mark.parametrize("shards", [1, 3])
def test_outputs_are_those_of_the_source(tmp_path: Path, shards: int) -> None:
    uri = as_torch(write_hugging_face(tmp_path / "hf", bert_weights()), shards=shards)
    table, model = load(uri)
    assert len(table.loaded) == 44
    expected = without(bert_outputs(bert_weights(), batch()), "next_sentence")
    assert distance(model, expected) < CLOSE


def test_safetensors_come_first(tmp_path: Path) -> None:
    uri = as_torch(write_hugging_face(tmp_path / "hf", bert_weights()))
    Path(uri, "pytorch_model.bin").write_bytes(b"nothing")
    write_safetensors(Path(uri, "model.safetensors"), bert_weights())
    table, _ = load(uri)
    assert "model.safetensors: " in table.notes[0]


class Command:
    """Runs a program when it is unpickled by Python."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_program_is_refused_by_name_and_never_run(
    path: Path, tmp_path: Path, protocol: int
) -> None:
    target = tmp_path / "ran"
    data = pickle.dumps({"weight": Command(target)}, protocol)
    write_archive(path, data, {})
    with pytest.raises(UserError, match=r"is refused: it (asks for|has the instruction)") as caught:
        read(path)
    if protocol >= 2:
        assert "posix.system" in str(caught.value)
    assert not target.exists()
    # It is one, after all.
    pickle.loads(data)  # noqa: S301 - to show what it would do
    assert target.exists()


def stack_global(module: bytes, attribute: bytes) -> bytes:
    return b"\x80\x04" + module + attribute + b"\x93."


FUNCTION = name("torch._utils", "_rebuild_parameter")
REFUSED = {
    "builtins": (b"\x80\x02" + name("builtins", "eval") + b".", "builtins.eval"),
    "within an allowed module": (
        b"\x80\x02" + name("torch._utils", "os.system") + b".",
        "torch._utils.os.system",
    ),
    "behind an allowed name": (
        stack_global(text("torch._utils"), text("_rebuild_tensor_v2.__globals__")),
        "torch._utils._rebuild_tensor_v2.__globals__",
    ),
    "module with a dot more": (
        stack_global(text("collections.OrderedDict"), text("__init__")),
        "collections.OrderedDict.__init__",
    ),
    "another kind of number": (state({"w": tensor("DoubleStorage", "0", 1, (1,), (1,))}), "Double"),
    "state of a function": (
        b"\x80\x02" + FUNCTION + b"}" + text("__code__") + text("x") + b"sb.",
        "sets the state of what is no dictionary",
    ),
    "instance by name": (b"(" + text("x") + b"iposix\nsystem\n.", "the instruction INST"),
    "instance of a class": (b"\x80\x02(" + FUNCTION + text("x") + b"o.", "instruction OBJ"),
    "new object": (b"\x80\x02" + name("collections", "OrderedDict") + b")\x81.", "NEWOBJ"),
    "registered extension": (b"\x80\x02\x82\x01.", "instruction EXT1"),
    "persistent text": (b"P0\n.", "instruction PERSID"),
    "buffer": (b"\x80\x05\x97.", "instruction NEXT_BUFFER"),
    "list": (b"\x80\x02].", "instruction EMPTY_LIST"),
    "something else": (b"\x80\x02" + text(MARK) + b".", "something else than tensors by name"),
    "a tensor alone": (
        b"\x80\x02" + tensor("FloatStorage", "0", 1, (1,), (1,)) + b".",
        "else than",
    ),
    "nested": (state({MARK: state({})[2:-1]}), "something else than tensors by name"),
    "long name": (b"\x80\x02" + name("m" * 90, MARK) + b".", "asks for " + "m" * 80 + "…,"),
    "strange name": (stack_global(text("a\nb"), text("\N{SNOWMAN}")), r"asks for a\nb.\u2603,"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_whatever_is_no_tensor_is_refused(path: Path, case: str) -> None:
    data, message = REFUSED[case]
    write_archive(path, data, {"0": b"\0" * 8})
    with pytest.raises(UserError) as caught:
        read(path)
    assert message in str(caught.value)
    assert "pytorch_model.bin of FOLDER is refused" in str(caught.value)
    assert "save_pretrained" in str(caught.value)
    assert not heard(str(caught.value))


ONE = ("FloatStorage", "0", 4)
REBUILD = name("torch._utils", "_rebuild_tensor_v2")
DAMAGED = {
    "cut short": state({"w": tensor(*ONE, (4,), (1,))})[:-20],
    "no end": state({"w": tensor(*ONE, (4,), (1,))})[:-1],
    "nothing": b"",
    "beyond its storage": state({"w": tensor(*ONE, (5,), (1,))}),
    "beyond it by its offset": state({"w": tensor(*ONE, (4,), (1,), offset=1)}),
    "beyond it by its stride": state({"w": tensor(*ONE, (2,), (4,))}),
    "before its storage": state({"w": tensor(*ONE, (2,), (-1,), offset=3)}),
    "offset below 0": state({"w": tensor(*ONE, (1,), (1,), offset=-1)}),
    "shape below 0": state({"w": tensor(*ONE, (-1,), (1,))}),
    "huge by a stride of 0": state({"w": tensor(*ONE, (2**31 - 1,), (0,))}),
    "strides of another number": state({"w": tensor(*ONE, (2, 2), (1,))}),
    "nine dimensions": state({"w": tensor(*ONE, (1,) * 9, (1,) * 9)}),
    "storage of another size": state({"w": tensor("FloatStorage", "0", 5, (4,), (1,))}),
    "storage of another kind": state({"w": tensor("HalfStorage", "0", 4, (4,), (1,))}),
    "storage that is not there": state({"w": tensor("FloatStorage", "7", 4, (4,), (1,))}),
    "storage with a path": state({"w": tensor("FloatStorage", "../data.pkl", 4, (4,), (1,))}),
    "name that is no text": b"\x80\x02}(" + number(1) + tensor(*ONE, (4,), (1,)) + b"u.",
    "items of a tuple": b"\x80\x02)(" + text("a") + text("b") + b"u.",
    "half an item": b"\x80\x02}(" + text("a") + b"u.",
    "stack that is empty": b"\x80\x02R.",
    "mark that is not there": b"\x80\x02t.",
    "memo that is empty": b"\x80\x02h\x05.",
    "call of a text": b"\x80\x02" + text(MARK) + b")R.",
    "call of a storage": b"\x80\x02" + name("torch", "FloatStorage") + b")R.",
    "call with no tuple": b"\x80\x02" + REBUILD + b"}R.",
    "call with too little": b"\x80\x02" + REBUILD + b")R.",
    "dictionary of something": b"\x80\x02"
    + name("collections", "OrderedDict")
    + numbers((1,))
    + b"R.",
    "parameter of a text": b"\x80\x02" + FUNCTION + text(MARK) + b"\x85R.",
    "global without a text": b"\x80\x04" + number(1) + number(2) + b"\x93.",
    "storage that is a text": b"\x80\x02" + text(MARK) + b"Q.",
    "no UTF-8": b"\x80\x02X\x02\x00\x00\x00\xff\xfe.",
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_pytorch_does_not_write_is_damaged(path: Path, case: str) -> None:
    write_archive(path, DAMAGED[case], {"0": b"\0" * 16})
    with pytest.raises(BadDataError, match=r"pytorch_model\.bin of FOLDER cannot be") as caught:
        read(path)
    assert not heard(str(caught.value))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def change_a_number(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(np.float32(3.5).tobytes(), np.float32(4.5).tobytes(), 1))


def git_lfs_pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n")


def without_a_pickle(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", b"\0" * 4)


def two_pickles(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/data.pkl", state({}))


@pytest.mark.parametrize(
    "damage", [cut_short, change_a_number, git_lfs_pointer, without_a_pickle, two_pickles]
)
def test_damaged_archives(path: Path, damage: Callable[[Path], None]) -> None:
    write_torch(path, {"w": np.float32([3.5])})
    damage(path)
    with pytest.raises(BadDataError, match="it is damaged or was not copied completely"):
        read(path)


def test_the_format_before_1_6_is_refused_by_its_name(path: Path) -> None:
    magic = 0x1950A86A20F9469CFC6C
    path.write_bytes(pickle.dumps(magic, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2))
    with pytest.raises(UserError, match=r"legacy format of PyTorch before 1\.6.*safetensors"):
        read(path)


def test_what_is_compressed_is_refused_before_it_is_unpacked(path: Path) -> None:
    bomb = state({"w": tensor("FloatStorage", "0", 1 << 20, (1 << 20,), (1,))})
    write_archive(path, bomb, {"0": b"\0" * (4 << 20)}, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(UserError, match="a part of it is compressed"):
        read(path)


def test_a_long_description_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_torch(path, {"w": np.float32([3.5])})
    monkeypatch.setattr(torch_files, "LARGEST_PICKLE", 50)
    with pytest.raises(UserError, match=r"description of the tensors has .* bytes, more than 50"):
        read(path)


def test_other_byte_orders_are_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", state({}))
        archive.writestr("archive/byteorder", b"big")
    with pytest.raises(UserError, match="byte order of another kind"):
        read(path)


def test_a_state_dictionary_may_be_empty(path: Path) -> None:
    write_archive(path, b"\x80\x02" + DICT + b".", {})
    assert read(path) == {}
