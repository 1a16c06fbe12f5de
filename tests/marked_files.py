"""Files with a secret in every place where a reader could quote it, one table for each reader.

Whatever reads them has to say what is wrong, and none of them may be heard of it.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MARK = "zq7secret"
_BYTES = MARK.encode()
_NOT_UTF8 = b"\xff" + _BYTES + b"\xfe"
_DEEP = b"[" * 100_000 + _BYTES
"""Nested more deeply than any parser goes, of JSON, YAML and TOML."""
_NUMBER = b"4711" * 3000
"""More digits than Python makes a number of."""
_SOUND_CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "vocab_size": 8000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
}
"""A ``config.json`` of the architecture of the preset ``smoke``."""


def heard(text: str | bytes) -> bool:
    """Return whether a part of the secret is in a text or in a file, or in its ``repr``."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    return b"zq7" in data.lower()


def files_with_the_mark(folder: Path, but: set[Path]) -> list[Path]:
    """Return the files below a folder that hold the secret, by content or name."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and path not in but and heard(path.read_bytes() + str(path).encode())
    ]


def parquet(columns: dict[str, Any]) -> bytes:
    """Return a Parquet file."""
    data = io.BytesIO()
    pq.write_table(pa.table(columns), data)
    return data.getvalue()


def safetensors(header: object) -> bytes:
    """Return a file of weights with a header and nothing else."""
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(data)) + data


def _struct() -> Any:
    return pa.array([{MARK: 1}], pa.struct([(MARK, pa.int64())]))


_TABLE = parquet({"text": [MARK], MARK: [MARK]})

CORPUS: dict[str, tuple[str, bytes]] = {
    "first line of a table": ("a.csv", f"{MARK},b\n1,2\n".encode()),
    "one column": ("a.csv", f"{MARK}\n".encode()),
    "column twice": ("a.tsv", f"text\ttext\t{MARK}\n{MARK}\t{MARK}\t1\n".encode()),
    "too many columns": ("a.csv", f"text\n{MARK},{MARK}\n".encode()),
    "open quote": ("a.csv", f'text\n"{MARK}\n'.encode()),
    "stray quote": ("a.csv", f'text\n"{MARK}"{MARK}\n'.encode()),
    "table not UTF-8": ("a.csv", b"text\n" + _NOT_UTF8 + b"\n"),
    "header not UTF-8": ("a.csv", _NOT_UTF8 + b",b\n1,2\n"),
    "no JSON": ("a.jsonl", f"{MARK}\n".encode()),
    "JSON cut short": ("a.jsonl", f'{{"{MARK}": "{MARK}'.encode()),
    "JSON with a wrong escape": ("a.jsonl", f'{{"text": "\\q{MARK}"}}\n'.encode()),
    "key": ("a.jsonl", f'{{"{MARK}": "{MARK}"}}\n'.encode()),
    "text alone": ("a.jsonl", f'"{MARK}"\n'.encode()),
    "object for text": ("a.jsonl", f'{{"text": {{"{MARK}": "{MARK}"}}}}\n'.encode()),
    "half a surrogate pair": ("a.jsonl", f'{{"text": "{MARK}\\ud800"}}\n'.encode()),
    "JSON not UTF-8": ("a.jsonl", b'{"text": "' + _NOT_UTF8 + b'"}\n'),
    "JSON as text": ("a.txt", f'{{"{MARK}": 1}}\n'.encode()),
    "text not UTF-8": ("a.txt", _NOT_UTF8),
    "text with NUL": ("a.txt", (f"{MARK} " * 100 + "\0").encode()),
    "binary": ("a.txt", _BYTES + bytes(range(32)) * 20),
    "compressed, cut short": ("a.txt.gz", gzip.compress(_BYTES * 100)[:-9]),
    "compressed, damaged": ("a.txt.gz", gzip.compress(_BYTES)[:10] + _BYTES),
    "Parquet column": ("a.parquet", parquet({MARK: [MARK]})),
    "Parquet struct": ("a.parquet", parquet({"text": _struct()})),
    "Parquet with a zone": ("a.parquet", parquet({"text": pa.array([0], pa.timestamp("s", MARK))})),
    "Parquet values": ("a.parquet", parquet({"text": pa.array([_NOT_UTF8], pa.binary())})),
    "Parquet cut short": ("a.parquet", _TABLE[:-7]),
    "Parquet damaged": ("a.parquet", _TABLE.replace(b"text", b"t\xffxt")),
    "text as Parquet": ("a.parquet", b"zq7" + _BYTES),
}
"""Input files of a corpus, none of which holds a document: their names and contents."""

VOCABULARIES: dict[str, tuple[str, bytes]] = {
    "lines of something else": ("v.txt", f"{MARK}\n{MARK} {MARK}\n".encode()),
    "a token twice": (
        "v.txt",
        f"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{MARK}\n{MARK}\n".encode(),
    ),
    "not UTF-8": ("v.txt", _NOT_UTF8),
    "no model": ("v.model", _BYTES),
    "model with a piece that is no text": ("v.model", b"\x0a\x0d\x0a\x0b" + _NOT_UTF8),
    "model without special tokens": ("v.model", b"\x0a\x0b\x0a\x09" + _BYTES),
}
"""Files that ``vocabulary.uri`` may name."""

_SOUND = b"text\tlabel\n" + b"".join(b"text %d\tlabel %d\n" % (n, n % 2) for n in range(60))


def _tsv(*lines: str, header: str = "text\tlabel") -> bytes:
    return "".join(f"{line}\n" for line in (header, *lines)).encode()


TASKS: dict[str, dict[str, bytes]] = {
    "no TOML": {"task.toml": f"{MARK}\n".encode()},
    "TOML not UTF-8": {"task.toml": b'labels = ["' + _NOT_UTF8 + b'"]\n'},
    "TOML nested deeply": {"task.toml": b"x = " + _DEEP},
    "TOML with a long number": {"task.toml": b"x = " + _NUMBER},
    "TOML table twice": {"task.toml": f"[{MARK}]\n[{MARK}]\n".encode()},
    "TOML key twice": {"task.toml": f"x = {{{MARK} = 1, {MARK} = 2}}\n".encode()},
    "unknown setting": {"task.toml": f'{MARK} = "{MARK}"\n'.encode()},
    "unknown table": {"task.toml": f"[{MARK}]\n{MARK} = 1\n".encode()},
    "value of another kind": {
        "task.toml": f'kind = "{MARK}"\nmax_bad_fraction = "{MARK}"\n'.encode()
    },
    "list for text": {
        "task.toml": f'text_column = ["{MARK}"]\ncolumns = {{{MARK} = 1}}\n'.encode()
    },
    "label twice": {"task.toml": f'labels = ["{MARK}", "{MARK}"]\n'.encode()},
    "one label": {"task.toml": f'labels = ["{MARK}"]\n'.encode()},
    "label with a separator": {
        "task.toml": f'kind = "multi_label"\nlabels = ["a,{MARK}", "b"]\n'.encode()
    },
    "columns": {"task.toml": f'columns = ["{MARK}", "a"]\n'.encode()},
    "same column": {"task.toml": f'text_column = "{MARK}"\nlabel_column = "{MARK}"\n'.encode()},
    "column of the description": {
        "task.toml": f'text_column = "{MARK}"\n'.encode(),
        "train.tsv": _SOUND,
    },
    "label column of the description": {
        "task.toml": f'label_column = "{MARK}"\n'.encode(),
        "train.jsonl": b'{"text": "a"}\n',
    },
    "header": {"task.toml": b"", "train.tsv": _tsv(f"{MARK}\t1", header=f"{MARK}\tlabel")},
    "Parquet column of a task": {"task.toml": b"", "train.parquet": parquet({MARK: [MARK]})},
    "Parquet label": {
        "task.toml": b"",
        "train.parquet": parquet({"text": ["a"], "label": _struct()}),
    },
    "label that is no number": {
        "task.toml": b'kind = "regression"\n',
        "train.tsv": _tsv(f"a\t{MARK}", f"b\t{MARK}"),
    },
    "label not in the list": {
        "task.toml": b'labels = ["a", "b"]\n',
        "train.tsv": _tsv(f"a\t{MARK}", f"b\t{MARK}"),
    },
    "label of many characters": {"task.toml": b"", "train.tsv": _tsv(f"a\t{MARK * 50}")},
    "label that is an object": {
        "task.toml": b"",
        "train.jsonl": f'{{"text": "a", "label": {{"{MARK}": 1}}}}\n'.encode(),
    },
    "empty text": {"task.toml": b"", "train.tsv": _tsv(f"\t{MARK}")},
    "task not UTF-8": {"task.toml": b"", "train.tsv": b"text\tlabel\n" + _NOT_UTF8 + b"\tx\n"},
}
"""Folders of labelled tasks that show at once that they cannot be used."""

JOB_TASKS: dict[str, dict[str, bytes]] = {
    "one class": {"task.toml": b"", "train.tsv": _tsv(*(f"text {n}\t{MARK}" for n in range(60)))},
    "rare label": {"task.toml": b"", "train.tsv": _SOUND + f"rare\t{MARK}\n".encode()},
    "label that nobody has": {
        "task.toml": f'labels = ["label 0", "label 1", "{MARK}"]\n'.encode(),
        "train.tsv": _SOUND,
    },
    "label of test only": {
        "task.toml": b'test = "test.tsv"\n',
        "train.tsv": _SOUND,
        "test.tsv": _tsv(*(f"test {n}\t{MARK}" for n in range(30))),
    },
    "label in the text": {
        "task.toml": b"",
        "train.tsv": _tsv(*(f"{MARK}{n % 2} {n}\t{MARK}{n % 2}" for n in range(90))),
    },
    "text in two splits": {
        "task.toml": b'test = "test.tsv"\n',
        "train.tsv": _SOUND + f"{MARK}\tlabel 0\n".encode(),
        "test.tsv": _tsv(f"{MARK}\tlabel 0", *(f"x {n}\tlabel {n % 2}" for n in range(30))),
    },
    "some of many": {
        "task.toml": b"max_bad_fraction = 0.01\n",
        "train.tsv": _SOUND + f"\t{MARK}\na\tb\t{MARK}\n".encode(),
    },
}
"""The same of which only the data job can tell."""


# Of a masked-LM head, which validate looks for.
_HEAD = {"cls.predictions.bias": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}


def _model(**changes: object) -> dict[str, bytes]:
    config = json.dumps(_SOUND_CONFIG | changes).encode()
    return {"config.json": config, "model.safetensors": safetensors(_HEAD)}


def tf_models(params: bytes) -> dict[str, bytes]:
    parts = ("model.ckpt.index", "model.ckpt.data-00000-of-00001")
    return dict.fromkeys(parts, _BYTES) | {"params.yaml": params}


def encoder(*lines: str) -> bytes:
    """Return what tf-models says of an encoder, with lines among its settings."""
    start = "task:\n  model:\n    encoder:\n      bert:\n"
    return (start + "".join(f"        {line}\n" for line in lines)).encode()


def _stored(kind: str, **fields: object) -> bytes:
    return json.dumps({"format": kind, "format_version": 1} | fields).encode()


MODELS: dict[str, dict[str, bytes]] = {
    "nothing that is known": {"notes.txt": _BYTES},
    "configuration that is no JSON": {"config.json": _BYTES},
    "configuration not UTF-8": {"config.json": b'{"' + _NOT_UTF8 + b'": 1}'},
    "configuration nested deeply": {"config.json": b'{"a": ' + _DEEP},
    "configuration with a long number": {"config.json": b'{"a": ' + _NUMBER + b"}"},
    "configuration that is text": {"config.json": f'"{MARK}"'.encode()},
    "configuration of something else": {"config.json": f'{{"{MARK}": "{MARK}"}}'.encode()},
    **{f"{name} of another kind": _model(**{name: MARK}) for name in _SOUND_CONFIG},
    **{f"{name} that is a list": _model(**{name: [MARK]}) for name in _SOUND_CONFIG},
    "embedding_size": _model(embedding_size=MARK),
    "decoder": _model(is_decoder=MARK, position_embedding_type=MARK),
    "index that is no JSON": {"config.json": json.dumps(_SOUND_CONFIG).encode()}
    | {"model.safetensors.index.json": _NOT_UTF8},
    "index of other files": {"config.json": json.dumps(_SOUND_CONFIG).encode()}
    | {"model.safetensors.index.json": json.dumps({"weight_map": {MARK: MARK}}).encode()},
    "vocabulary not UTF-8": _model() | {"vocab.txt": _NOT_UTF8},
    "vocabulary of something else": _model() | {"vocab.txt": _BYTES},
    "tokenizer not UTF-8": _model() | {"tokenizer.json": _NOT_UTF8},
    "tokenizer of something else": _model()
    | {"tokenizer.json": json.dumps({"model": {"vocab": {MARK: MARK}}}).encode()},
    "tokenizer nested deeply": _model() | {"tokenizer.json": _DEEP},
    "tokenizer without a token": _model() | {"tokenizer.json": b'{"model": {"vocab": {}}}'},
    "tokenizer without a piece": _model() | {"tokenizer.json": b'{"model": {"vocab": []}}'},
    "added tokens nested deeply": _model() | {"vocab.txt": b"[PAD]\n", "added_tokens.json": _DEEP},
    "index nested deeply": {"config.json": json.dumps(_SOUND_CONFIG).encode()}
    | {"model.safetensors.index.json": b'{"weight_map": ' + _DEEP},
    "version nested deeply": {"model.json": _DEEP},
    "added tokens": _model() | {"vocab.txt": b"[PAD]\n", "added_tokens.json": _NOT_UTF8},
    "version not UTF-8": {"model.json": _NOT_UTF8},
    "version of something else": {"model.json": f'{{"format": "{MARK}"}}'.encode()},
    "version of another format": {"model.json": _stored(MARK)},
    "version of another version": {
        "model.json": json.dumps({"format": "model-version", "format_version": MARK}).encode()
    },
    "version with other fields": {"model.json": _stored("model-version", **{MARK: MARK})},
    "version with wrong values": {
        "model.json": _stored("model-version", version_id=MARK, files=[{MARK: MARK}], created=MARK)
    },
    "result of something else": {"result.json": _stored("training-result", **{MARK: MARK})},
    "TensorFlow with a description that is none": {
        "model.ckpt.index": _BYTES,
        "model.ckpt.data-00000-of-00001": _BYTES,
        "bert_config.json": f'{{"hidden_act": "{MARK}", "{MARK}": 1}}'.encode(),
    },
    "tf-models with a description that is none": tf_models(
        f"task: !!python/object:{MARK} {{}}\n".encode()
    ),
    "tf-models nested deeply": tf_models(b"task: " + _DEEP),
    "tf-models with a time that is none": tf_models(f"task: !!timestamp {MARK}\n".encode()),
    "tf-models with a number that is none": tf_models(f"task: !!int {MARK}\n".encode()),
    "tf-models with a long number": tf_models(b"task: " + _NUMBER),
    "tf-models with a time for a name": tf_models(encoder("2011-04-07: x")),
    "tf-models with a pair for a name": tf_models(encoder(f"? !!python/tuple [{MARK}, 1]", ": 2")),
    "tf-models of another kind": {
        "model.ckpt.index": _BYTES,
        "model.ckpt.data-00000-of-00001": _BYTES,
        "params.yaml": (
            f"task:\n  model:\n    mlm_activation: {MARK}\n    encoder:\n      type: {MARK}\n"
            f"      bert:\n        hidden_activation: gelu\n        {MARK}: {MARK}\n"
        ).encode(),
    },
}
"""Folders, or checkpoints, that ``model.init_checkpoint`` may name."""

WEIGHTS: dict[str, bytes] = {
    "no weights": _BYTES,
    "header that is no JSON": safetensors(_BYTES),
    "header not UTF-8": safetensors(_NOT_UTF8),
    "type of a tensor": safetensors({MARK: {"dtype": MARK, "shape": [1], "data_offsets": [0, 4]}}),
    "tensor beyond the end": safetensors(
        {MARK: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    ),
}
"""What ``model.safetensors`` of a Hugging Face folder may hold."""


def write_all(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a new folder."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
