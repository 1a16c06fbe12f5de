"""What a report or an export calls a model: a hash of its files, wherever they lie."""

from __future__ import annotations

from pipeline_store import uris
from pipeline_store.formats import FileDigest
from trained_models import artifacts
from trained_models.importing.sources import (
    BESIDE,
    HUGGING_FACE_CONFIG,
    SourceKind,
    checkpoint_files,
    file_names,
    source_kind,
    split,
    weight_files,
)


def files_sha256(uri: str) -> str:
    """Return the hash of names and contents of everything that decides what a model predicts.

    Of a model of ours that is :attr:`trained_models.artifacts.ModelFiles.sha256`. Of weights from
    elsewhere it is the same of the weights and of the files that tell architecture and vocabulary;
    they are read for it.

    :param uri: a model version folder, the ``training`` folder of a finished run, or weights from
        elsewhere.
    :raises UserError: nothing that can be read.
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
