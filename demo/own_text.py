"""A user's own text as partitions: the files as they are, or one file cut between documents."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from beam_jobs.reading import RejectedFileError, read_lines
from beam_jobs.shard_contents import DocumentCounts, read_contents

_SUFFIXES = (".txt", ".jsonl", ".gz")
_TEXT_FIELD = "text"


class CorpusError(Exception):
    """There is no usable text; the message names the folder, pattern or file."""


def find_files(source: str) -> list[Path]:
    """Return the files of a folder or glob pattern, sorted by name.

    :raises CorpusError: there is none.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        entries = sorted(entry for entry in path.iterdir() if entry.is_file())
        files = [entry for entry in entries if entry.suffix in _SUFFIXES]
        if not entries:
            raise CorpusError(f"folder {path} has no files.")
        if not files:
            raise CorpusError(
                f"folder {path} has no .txt, .jsonl or .gz file, only others such as "
                f"{entries[0].name}."
            )
        return files
    base = Path(path.anchor or ".")
    pattern = str(path.relative_to(path.anchor)) if path.anchor else str(path)
    files = sorted(entry for entry in base.glob(pattern) if entry.is_file())
    if not files:
        raise CorpusError(f"{source}: no such folder, and no file matches it as a pattern.")
    return files


def count_documents(path: Path) -> int:
    """Return the number of different readable documents in a file.

    :raises CorpusError: it is binary, cut short or damaged, or nothing in it can be read.
    """
    counts = DocumentCounts()
    rejects: list[str] = []
    try:
        with path.open("rb") as stream:
            usable = sum(
                1
                for _ in read_contents(
                    stream,
                    _input_format(path),
                    _TEXT_FIELD,
                    counts=counts,
                    seen=set(),
                    reject=lambda found: rejects.append(f"line {found.line}: {found.detail}"),
                )
            )
    except RejectedFileError as error:
        raise CorpusError(f"{path}: {error.reason}: {error.detail}.") from error
    if counts.documents and not usable:
        raise CorpusError(f"{path}: no document can be read; {rejects[0]}.")
    return usable


def _input_format(path: Path) -> Literal["text", "jsonl"]:
    return "jsonl" if path.name.endswith((".jsonl", ".jsonl.gz")) else "text"


def copy_files(files: Sequence[Path], folder: Path) -> None:
    """Copy files into a folder; a number before the name keeps equal names apart."""
    folder.mkdir(parents=True)
    for number, path in enumerate(files):
        shutil.copyfile(path, folder / f"{number:05d}-{path.name}")


def split_file(path: Path, folders: Sequence[Path]) -> None:
    """Cut a file between documents into one for each folder.

    :raises CorpusError: it has fewer documents than there are folders.
    """
    total = sum(1 for _ in _raw_documents(path))
    if total < len(folders):
        raise CorpusError(
            f"{path} has {total} documents, which is not enough for {len(folders)} partitions; a "
            "blank line ends a document."
        )
    documents = _raw_documents(path)
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        share = total * (number + 1) // len(folders) - total * number // len(folders)
        with (folder / path.name.removesuffix(".gz")).open("wb") as file:
            file.writelines(islice(documents, share))


def _raw_documents(path: Path) -> Iterator[bytes]:
    """Yield each document's bytes, with the line ends that separate it from the next."""
    block: list[bytes] = []
    with path.open("rb") as stream:
        for line in read_lines(stream):
            if line.data is None:
                raise CorpusError(f"{path}: line {line.number} is longer than 16 MiB.")
            if line.data.strip():
                block.append(line.data + b"\n")
            if block and (_input_format(path) == "jsonl" or not line.data.strip()):
                yield b"".join([*block, b"\n"])
                block = []
    if block:
        yield b"".join([*block, b"\n"])
