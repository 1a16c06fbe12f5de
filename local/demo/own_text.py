"""Turns a user's own text into partitions: files unchanged, or one file split between documents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from corpus.text.documents import parse_documents
from corpus.text.drops import Rejected, RejectedFileError
from corpus.text.inputs import COMPRESSED_SUFFIXES, InputFormat, format_of_name
from corpus.text.reading import read_lines
from corpus.text.shard_contents import DocumentCounts, read_contents
from pipeline_config.data_schema import CorpusConfig

_SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv", ".parquet", *COMPRESSED_SUFFIXES)
_CORPUS = CorpusConfig()


class CorpusError(Exception):
    """There is no usable text; the message names the folder, pattern or file."""


def find_files(source: str) -> list[Path]:
    """Return the files of a folder or glob pattern, sorted by name.

    :raises CorpusError: there are none, or they may not be read.
    """
    try:
        return _find_files(source)
    except PermissionError as error:
        raise CorpusError(
            f"{error.filename}: it may not be read; change its permissions."
        ) from None


def _find_files(source: str) -> list[Path]:
    path = Path(source).expanduser()
    if path.is_dir():
        entries = sorted(entry for entry in path.iterdir() if entry.is_file())
        files = [entry for entry in entries if entry.suffix in _SUFFIXES]
        if not entries:
            raise CorpusError(f"folder {path} has no files.")
        if not files:
            raise CorpusError(
                f"folder {path} has no file that ends in {', '.join(_SUFFIXES)}, only others such "
                f"as {entries[0].name}."
            )
        return files
    base = Path(path.anchor or ".")
    pattern = str(path.relative_to(path.anchor)) if path.anchor else str(path)
    files = sorted(entry for entry in base.glob(pattern) if entry.is_file())
    if not files:
        raise CorpusError(f"{source}: no such folder, and no file matches it as a pattern.")
    return files


def count_documents(path: Path) -> int:
    """Return the number of readable documents in a file.

    :raises CorpusError: it is binary, truncated or damaged, or no document in it can be read.
    """
    counts = DocumentCounts()
    rejects: list[Rejected] = []
    try:
        with path.open("rb") as stream:
            contents = read_contents(
                stream,
                format_of_name(path.name),
                _CORPUS,
                split_sentences=False,
                counts=counts,
                reject=rejects.append,
            )
            usable = sum(1 for _ in contents)
    except RejectedFileError as error:
        raise CorpusError(f"{path}: {error.reason}: {error.detail}.") from error
    except PermissionError:
        raise CorpusError(f"{path}: it may not be read; change its permissions.") from None
    if rejects and not usable:
        raise CorpusError(f"{path}: no document can be read; {_where(rejects[0])}.")
    return usable


def copy_files(files: Sequence[Path], folder: Path) -> None:
    """Copy files into a folder; a numeric prefix keeps equal names distinct."""
    folder.mkdir(parents=True)
    for number, path in enumerate(files):
        shutil.copyfile(path, folder / f"{number:05d}-{path.name}")


def split_file(path: Path, folders: Sequence[Path]) -> None:
    """Split a file between documents into one file per folder; a table becomes JSON lines.

    :raises CorpusError: it has fewer documents than there are folders, or a table has unreadable
        records.
    """
    name, documents = _documents(path)
    total = sum(1 for _ in documents)
    if total < len(folders):
        raise CorpusError(
            f"{path} has {total} documents, which is not enough for {len(folders)} partitions; in "
            "text a blank line ends a document."
        )
    _, documents = _documents(path)
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        share = total * (number + 1) // len(folders) - total * number // len(folders)
        with (folder / name).open("wb") as file:
            file.writelines(islice(documents, share))


def _documents(path: Path) -> tuple[str, Iterator[bytes]]:
    """Return the name for the parts of a file, and the bytes of each of its documents."""
    name = path.name.removesuffix(path.suffix) if path.suffix in COMPRESSED_SUFFIXES else path.name
    input_format = format_of_name(path.name)
    if input_format in ("text", "jsonl"):
        return name, _cut(path, input_format)
    return f"{Path(name).stem}.jsonl", _rows(path, input_format)


def _cut(path: Path, input_format: InputFormat) -> Iterator[bytes]:
    """Yield each document's bytes, with the line ends that separate it from the next."""
    block: list[bytes] = []
    with path.open("rb") as stream:
        for line in read_lines(stream):
            if line.data is None:
                raise CorpusError(f"{path}: line {line.number} is longer than 16 MiB.")
            if line.data.strip():
                block.append(line.data + b"\n")
            if block and (input_format == "jsonl" or not line.data.strip()):
                yield b"".join([*block, b"\n"])
                block = []
    if block:
        yield b"".join([*block, b"\n"])


def _rows(path: Path, input_format: InputFormat) -> Iterator[bytes]:
    """Yield each record of a table as a JSON line."""
    with path.open("rb") as stream:
        for found in parse_documents(stream, input_format, _CORPUS):
            if isinstance(found, Rejected):
                raise CorpusError(f"{path}: {_where(found)}.")
            yield json.dumps({_CORPUS.text_field: found.text}).encode() + b"\n"


def _where(rejected: Rejected) -> str:
    place = f"line {rejected.line}" if rejected.line else f"row {rejected.offset}"
    return f"{place}: {rejected.detail}"
