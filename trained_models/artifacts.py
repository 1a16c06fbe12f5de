"""Finds, verifies, fetches and copies trained files, without TensorFlow."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pipeline_store import uris
from pipeline_store.formats import (
    CheckpointManifest,
    FileDigest,
    FormatError,
    ModelExports,
    ModelVersion,
    TrainingInputs,
    TrainingResult,
)
from pipeline_store.layout import TrainingLayout, VersionLayout
from trained_models.errors import UserError

INPUTS_FILE = "inputs.json"
VERSION_SUBFOLDER = "checkpoint"


class ModelFiles(NamedTuple):
    """Weights in the store: ``prefix`` is the tf.train.Checkpoint prefix relative to ``folder``."""

    folder: str
    prefix: str
    files: list[FileDigest]

    @property
    def inputs(self) -> str:
        """Path of the TrainingInputs, next to the weights."""
        return uris.join(_parent(self.prefix), INPUTS_FILE)

    @property
    def sha256(self) -> str:
        """Hash of names and contents: the same for a run's result and the version made from it."""
        lines = sorted(f"{file.path.rpartition('/')[2]} {file.sha256}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def result_checkpoint(training_uri: str) -> CheckpointManifest:
    """Return the manifest of the checkpoint that a finished training ended with, verified.

    :param training_uri: the ``training`` folder of a run.
    :raises FileNotFoundError: the training has no result, or its checkpoint is missing.
    :raises FormatError: a file of the checkpoint does not verify.
    """
    manifest = _result_manifest(training_uri)
    verify_files(training_uri, manifest.files)
    return manifest


def _result_manifest(training_uri: str, read: uris.Reader = uris.read) -> CheckpointManifest:
    place = TrainingLayout(training_uri).result
    checkpoint = uris.join(training_uri, TrainingResult.parse(read(place), place).checkpoint)
    return CheckpointManifest.parse(read(checkpoint), checkpoint)


def model_files(model_uri: str, read: uris.Reader = uris.read) -> ModelFiles:
    """Return where the weights of a model are; they are verified when they are fetched.

    :param model_uri: a model version folder, or the ``training`` folder of a finished run.
    :param read: function that reads its records.
    :raises UserError: it is neither.
    """
    place = VersionLayout(model_uri).model
    if uris.exists(place):
        version = ModelVersion.parse(read(place), place)
        folder = _parent(version.checkpoint_prefix)
        files = [file for file in version.files if _parent(file.path) == folder]
        return ModelFiles(model_uri, version.checkpoint_prefix, files)
    if not uris.exists(TrainingLayout(model_uri).result):
        raise UserError(
            f"{model_uri} is not a model of this project: expected a model version folder (with "
            "model.json) or the training folder of a finished run (with result.json). Weights from "
            "elsewhere can be trained from, by model.init_checkpoint, and scored, by "
            "training.evaluate."
        )
    manifest = _result_manifest(model_uri, read)
    return ModelFiles(model_uri, manifest.prefix, manifest.files)


def verify_files(folder_uri: str, files: list[FileDigest]) -> None:
    """Read files and compare them with the size and hash they must have.

    :param folder_uri: folder that the paths of the digests are relative to.
    :raises FormatError: a file is absent, has another size, or another content.
    """
    for file in files:
        verify_file(uris.join(folder_uri, file.path), file)


def load_inputs(model: ModelFiles) -> TrainingInputs:
    """Return the inputs that a model was trained with, verified.

    :raises FileNotFoundError: the file is missing.
    :raises FormatError: it is damaged.
    """
    uri = uris.join(model.folder, model.inputs)
    digest = next((file for file in model.files if file.path == model.inputs), None)
    if digest is not None:
        verify_file(uri, digest)
    return TrainingInputs.load(uri)


def verify_file(uri: str, digest: FileDigest) -> None:
    """Read one file and compare it with its digest.

    :raises FormatError: it is absent, has another size, or another content.
    """
    _check_size(uri, digest)
    _check_sha256(uri, digest, uris.sha256(uri))


def _check_size(uri: str, digest: FileDigest) -> None:
    try:
        size = uris.size(uri)
    except FileNotFoundError as error:
        raise FormatError(f"{uri} is missing; its manifest names it.") from error
    if size != digest.bytes:
        raise FormatError(f"{uri} has {size} bytes; its manifest says {digest.bytes}.")


def _check_sha256(uri: str, digest: FileDigest, sha256: str) -> None:
    if sha256 != digest.sha256:
        raise FormatError(
            f"{uri} is damaged: its SHA-256 is {sha256}; its manifest says {digest.sha256}."
        )


def fetch_file(uri: str, digest: FileDigest, target: Path) -> None:
    """Copy one file of the store to this machine, verifying the very bytes that are copied.

    :raises FormatError: it is absent, has another size, or another content.
    """
    _check_size(uri, digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        sha256 = _copy_hashing(uri, file)
    _check_sha256(uri, digest, sha256)


def _copy_hashing(uri: str, target: BinaryIO) -> str:
    hasher = hashlib.sha256()
    for chunk in uris.chunks(uri):
        hasher.update(chunk)
        target.write(chunk)
    return hasher.hexdigest()


def fetch_model(model: ModelFiles, target: Path) -> Path:
    """Copy a model's files to a folder of this machine and return the checkpoint prefix there.

    :raises FormatError: a file does not verify.
    """
    for file in model.files:
        fetch_file(uris.join(model.folder, file.path), file, target / file.path)
    return target / model.prefix


def version_prefix(model: ModelFiles) -> str:
    """Return the checkpoint prefix in the folder of the version that is made from a model."""
    return f"{VERSION_SUBFOLDER}/{_name(model.prefix)}"


def copy_checkpoint_files(training_uri: str, target_folder: str) -> tuple[list[FileDigest], str]:
    """Copy the files of a finished training's checkpoint into a model version folder.

    The whole checkpoint is copied, optimizer state included: tf-models and later trainings can
    continue from it.

    :param training_uri: the ``training`` folder of a run.
    :param target_folder: the version's folder; the files come below ``checkpoint/``.
    :returns: digests with paths relative to the target folder, and the checkpoint prefix, likewise.
    :raises FileNotFoundError: the training has no result.
    :raises FormatError: a file does not verify; files copied before it remain, uncommitted.
    """
    manifest = _result_manifest(training_uri)
    model = ModelFiles(training_uri, manifest.prefix, manifest.files)
    copied = [
        _copy_file(training_uri, file, target_folder, f"{VERSION_SUBFOLDER}/{_name(file.path)}")
        for file in model.files
    ]
    return copied, version_prefix(model)


def copy_exports(exports_uri: str, exports: ModelExports, target_folder: str) -> list[FileDigest]:
    """Copy a model's other formats into a model version folder, each below its name.

    :param exports_uri: folder of ``exports.json``.
    :returns: digests with paths relative to the target folder.
    :raises FormatError: a file does not verify; files copied before it remain, uncommitted.
    """
    return [
        _copy_file(
            uris.join(exports_uri, exported.folder), file, target_folder, f"{name}/{file.path}"
        )
        for name, exported in exports.formats.items()
        for file in exported.files
    ]


def _copy_file(folder: str, file: FileDigest, target_folder: str, path: str) -> FileDigest:
    """Copy a file that verifies; return its digest with the new path."""
    with tempfile.TemporaryDirectory() as scratch:
        local = Path(scratch, "file")
        fetch_file(uris.join(folder, file.path), file, local)
        uris.upload(str(local), uris.join(target_folder, path))
    return file.model_copy(update={"path": path})


def _name(path: str) -> str:
    return path.rpartition("/")[2]
