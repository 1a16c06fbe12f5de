"""Finds out by its files what a URI of pretrained weights is, and a hash that names the model.

No TensorFlow: checks before a run.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from pipeline_config.unquoted import UNPARSABLE, fault
from pipeline_store import request_paths, uris
from pipeline_store.formats import FileDigest
from pipeline_store.layout import TrainingLayout, VersionLayout
from trained_models import artifacts
from trained_models.errors import UserError

HUGGING_FACE_CONFIG = "config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
TORCH_WEIGHTS = "pytorch_model.bin"
TORCH_INDEX = "pytorch_model.bin.index.json"
# Next to the weights of a TensorFlow checkpoint: its architecture, its vocabulary.
GOOGLE_CONFIG = "bert_config.json"
TF_MODELS_CONFIG = "params.yaml"
VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer.json"
VOCAB_JSON = "vocab.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SENTENCEPIECE = "spiece.model"
# Tokens that were added to the vocabulary of a Hugging Face tokenizer; ids by token.
ADDED_TOKENS = "added_tokens.json"
BESIDE = (GOOGLE_CONFIG, TF_MODELS_CONFIG, VOCABULARY, TOKENIZER, VOCAB_JSON, ADDED_TOKENS)
# Formats of the same library that are not read, and why.
_OTHERS = {
    "tf_model.h5": "it is TensorFlow's own export",
    "flax_model.msgpack": "it is Flax's own export",
}


class SourceKind(StrEnum):
    """The kinds of sources of weights."""

    OURS = "model of this project"
    HUGGING_FACE = "Hugging Face folder"
    TENSORFLOW = "TensorFlow checkpoint"


def source_kind(uri: str) -> SourceKind:
    """Return the kind of source that is at a URI.

    :raises UserError: nothing that can be read is there; the message says what is.
    """
    if any(map(uris.exists, (VersionLayout(uri).model, TrainingLayout(uri).result))):
        return SourceKind.OURS
    if uris.exists(f"{uri.rstrip('/')}.index"):
        return SourceKind.TENSORFLOW
    if uris.exists(uris.join(uri, HUGGING_FACE_CONFIG)):
        return SourceKind.HUGGING_FACE
    raise UserError(
        f"{uri} is not a model: expected a model version folder (with model.json), the training "
        "folder of a finished run (with result.json), a Hugging Face folder (with config.json and "
        "model.safetensors), or the prefix of a TensorFlow checkpoint (PREFIX.index exists). "
        f"{_hint(uri)}"
    )


def _hint(uri: str) -> str:
    path = uri.rstrip("/")
    for mark in (".index", ".meta", ".data-"):
        if mark in path.rpartition("/")[2]:
            return f"Give the prefix: {path[: path.rindex(mark)]}"
    names = file_names(path)
    prefixes = [uris.join(path, n.removesuffix(".index")) for n in names if n.endswith(".index")]
    if prefixes:
        return f"There are TensorFlow checkpoints in it; give {' or '.join(prefixes)}"
    if names:
        return f"The files in it are {', '.join(names[:10])}."
    return "There are no files in it."


def file_names(folder: str) -> list[str]:
    """Return the names of the files directly in a folder, sorted; an absent one is empty."""
    if uris.is_cloud(folder):
        start = uris.join(folder, "")
        below = [uri.removeprefix(start) for uri in uris.list_files(folder)]
        return sorted(name for name in below if "/" not in name)
    path = uris.for_library(folder)
    if not os.path.isdir(path):
        return []
    return sorted(entry.name for entry in os.scandir(path) if entry.is_file())


def split(uri: str) -> tuple[str, str]:
    """Return the folder of a file and its name."""
    folder, _, name = uri.rstrip("/").rpartition("/")
    return folder or ".", name


def checkpoint_files(prefix: str) -> list[str]:
    """Return the names of the files of a TensorFlow checkpoint, in the folder of its prefix."""
    folder, name = split(prefix)
    starts = f"{name}.data-"
    return [n for n in file_names(folder) if n == f"{name}.index" or n.startswith(starts)]


def require_model(uri: str) -> None:
    """Check that a request may read all files of a model, links followed.

    :raises OutsideRootsError: it may not. Links to folders inside of it are refused, wherever they
        lead: their content is not listed, and may have changed when it is read.
    """
    request_paths.require(uri, model=True)
    files = uris.list_files(uri)
    if uris.exists(f"{uri.rstrip('/')}.index"):
        folder, _ = split(uri)
        names = {file.rpartition("/")[2] for file in files_of_prefix(uri)}
        beside = [n for n in file_names(folder) if any(fnmatchcase(n, name) for name in names)]
        files = [*files, *(uris.join(folder, name) for name in beside)]
    if not uris.is_cloud(uri):
        _refuse_linked_folders(uris.for_library(uri))
    for file in files:
        request_paths.require(file, model=True)


def _refuse_linked_folders(folder: str) -> None:
    if request_paths.current() is None:
        return
    for path, folders, _ in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(path, name))]
        if linked:
            raise request_paths.OutsideRootsError(
                f"{os.path.join(path, linked[0])} is a link to a folder, which a model that a "
                "request names may not have; put the folder itself there."
            )


def files_of_prefix(prefix: str) -> list[str]:
    """Return the files of a TensorFlow checkpoint to read, as paths and patterns of paths."""
    folder, name = split(prefix)
    return [uris.join(folder, end) for end in (f"{name}.index", f"{name}.data-*", *BESIDE)]


def weight_files(folder: str, read: uris.Reader = uris.read) -> list[str]:
    """Return the names of the files that hold the weights of a folder.

    :param read: function that reads their index.
    :raises UserError: there are none, or none of a format that is read.
    """
    # If there are both, they are the same weights.
    for file, index in ((WEIGHTS, WEIGHTS_INDEX), (TORCH_WEIGHTS, TORCH_INDEX)):
        if uris.exists(uris.join(folder, file)):
            return [file]
        if uris.exists(uris.join(folder, index)):
            return _indexed_files(folder, index, read)
    raise UserError(_no_weights(folder))


def _indexed_files(folder: str, index: str, read: uris.Reader) -> list[str]:
    uri = uris.join(folder, index)
    content = read(uri)
    try:
        names = sorted(set(json.loads(content)["weight_map"].values()))
    except UNPARSABLE as error:
        raise UserError(
            f"{uri} is not an index of {index.partition('.')[2].removesuffix('.index.json')} files "
            f"({fault(error)}); get the file again."
        ) from None
    missing = set(names) - set(file_names(folder))
    if missing:
        raise UserError(
            f"{folder} lacks {len(missing)} of the {len(names)} files that {index} names. Get all "
            "its files."
        )
    return names


def _no_weights(folder: str) -> str:
    for name, reason in _OTHERS.items():
        if uris.exists(uris.join(folder, name)):
            return (
                f"{folder} has {name}, which is not read: {reason}. Where you trust it, write "
                f"safetensors once: AutoModelForMaskedLM.from_pretrained({folder!r})"
                ".save_pretrained(FOLDER) of the library transformers, and copy the vocabulary."
            )
    return (
        f"{folder} has no {WEIGHTS}, no {WEIGHTS_INDEX} and no {TORCH_WEIGHTS} beside its "
        "config.json. Get one."
    )


@contextmanager
def local_files(folder: str, names: Iterable[str]) -> Iterator[Path]:
    """Yield a folder of this machine that holds files of a folder of the store.

    :raises FileNotFoundError: one of them is missing.
    """
    if not uris.is_cloud(folder):
        yield Path(uris.for_library(folder))
        return
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            with Path(scratch, name).open("wb") as file:
                file.writelines(uris.chunks(uris.join(folder, name)))
        yield Path(scratch)


def files_sha256(uri: str) -> str:
    """Return the hash of names and contents of everything that decides what a model predicts.

    For a model of ours it is :attr:`trained_models.artifacts.ModelFiles.sha256`. For weights from
    elsewhere it is the same hash of the weights and of the files with architecture and vocabulary;
    they are read for it.

    :param uri: a model version folder, the ``training`` folder of a finished run, or weights from
        elsewhere.
    :raises UserError: nothing that can be read is there.
    """
    kind = source_kind(uri)
    if kind is SourceKind.OURS:
        return artifacts.model_files(uri).sha256
    if kind is SourceKind.HUGGING_FACE:
        folder, names = uri, [*weight_files(uri), HUGGING_FACE_CONFIG]
    else:
        folder, names = split(uri)[0], checkpoint_files(uri)
    names += [name for name in file_names(folder) if name in BESIDE]
    files = [_digest(folder, name) for name in names]
    return artifacts.ModelFiles(folder, "", files).sha256


def _digest(folder: str, name: str) -> FileDigest:
    uri = uris.join(folder, name)
    return FileDigest(path=name, bytes=uris.size(uri), sha256=uris.sha256(uri))
