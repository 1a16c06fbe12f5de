"""Builds the demo's corpus: real English text in dated partitions.

python -m local.demo.corpus --output DIR [--partitions 2026-01-01,2026-01-02] [--max-mb 6]
python -m local.demo.corpus --output DIR --source 'my texts/*.txt'
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from local.demo.installed_text import Harvest, topics
from local.demo.own_text import CorpusError, copy_files, count_documents, find_files, split_file
from pipeline_config.command_line import command_parser

__all__ = ["CorpusError", "Part", "build", "from_folder"]

PARTITIONS = ("2026-01-01", "2026-01-02")
SHARDS_PER_PARTITION = 4
MAX_MB = 6.0


@dataclass(frozen=True)
class Part:
    """One partition's files."""

    partition: str
    files: int
    documents: int
    bytes: int

    def __str__(self) -> str:
        """Return one line for people."""
        size = f"{self.bytes / 1e6:.1f} MB"
        return f"{self.partition}: {self.documents:,} documents in {self.files} files, {size}"


def build(
    folder: Path, *, partitions: Sequence[str] = PARTITIONS, max_mb: float = MAX_MB
) -> list[Part]:
    """Write the text of the installed Python packages below ``folder/<partition>/``.

    The partitions alternate between two topics: the standard library and services, then numerics.
    The same installation yields the same files. No paragraph occurs twice.

    :param max_mb: size of all partitions together, in millions of bytes.
    :raises CorpusError: a partition's folder exists, or there is too little text.
    """
    folders = [_new_folder(folder, partition) for partition in partitions]
    characters = int(max_mb * 1e6 / len(partitions))
    harvest = Harvest()
    parts: dict[Path, list[str]] = {}
    for number, groups in enumerate(topics()):
        mine = folders[number::2]
        documents = sorted(harvest.collect(groups, characters * len(mine)), key=_order)
        for turn, target in enumerate(mine):
            parts[target] = documents[turn :: len(mine)]
    return [_write(target, parts[target]) for target in folders]


def _order(document: str) -> bytes:
    """Return a sort key that mixes the packages reproducibly."""
    return hashlib.sha256(document.encode()).digest()


def _new_folder(folder: Path, partition: str) -> Path:
    target = folder / partition
    if target.exists():
        raise CorpusError(f"{target} exists already; remove it or choose another folder.")
    return target


def _write(folder: Path, documents: list[str]) -> Part:
    if len(documents) < SHARDS_PER_PARTITION:
        raise CorpusError(
            f"the packages of {sys.prefix} have only {len(documents)} documents for {folder.name}; "
            "use your own text instead: --corpus FOLDER."
        )
    folder.mkdir(parents=True)
    size = 0
    for shard in range(SHARDS_PER_PARTITION):
        name = f"docs-{shard:05d}-of-{SHARDS_PER_PARTITION:05d}.txt"
        text = "\n\n".join(documents[shard::SHARDS_PER_PARTITION]) + "\n"
        size += (folder / name).write_bytes(text.encode())
    return Part(folder.name, SHARDS_PER_PARTITION, len(documents), size)


def from_folder(source: str, folder: Path, *, partitions: Sequence[str] = PARTITIONS) -> list[Part]:
    """Copy a user's text files unchanged into ``folder/<partition>/``.

    The first files by name become the first partition, and so on; a single file is split between
    documents.

    :param source: a folder with files in the formats that the data job reads, or a pattern with
        ``*`` and ``?``.
    :raises CorpusError: no file is found, or one cannot be read as text.
    """
    files = find_files(source)
    documents: dict[Path, int] = {}
    unusable: list[str] = []
    for path in files:
        try:
            documents[path] = count_documents(path)
        except CorpusError as error:
            unusable.append(str(error))
    if unusable:
        # All at once, so that the demo need not be started again after each file is fixed.
        raise CorpusError("\n".join(unusable))
    if not any(documents.values()):
        raise CorpusError(f"{source}: {len(files)} files, but no document in them.")
    folders = [_new_folder(folder, partition) for partition in partitions]
    if len(files) == 1:
        split_file(files[0], folders)
        return [_part(target) for target in folders]
    if len(files) < len(folders):
        raise CorpusError(
            f"{source}: {len(files)} files for {len(folders)} partitions; give one file, or at "
            "least as many as there are partitions."
        )
    borders = [len(files) * step // len(folders) for step in range(len(folders) + 1)]
    shares = [files[first:last] for first, last in pairwise(borders)]
    for target, share in zip(folders, shares, strict=True):
        if not any(documents[path] for path in share):
            raise CorpusError(f"partition {target.name} would get no document; give more text.")
    for target, share in zip(folders, shares, strict=True):
        copy_files(share, target)
    return [_part(target) for target in folders]


def _part(folder: Path) -> Part:
    files = sorted(folder.iterdir())
    documents = sum(map(count_documents, files))
    return Part(folder.name, len(files), documents, sum(path.stat().st_size for path in files))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser("local.demo.corpus", __doc__)
    parser.add_argument(
        "--output", type=Path, required=True, help="folder that gets one folder per partition"
    )
    parser.add_argument(
        "--partitions", default=",".join(PARTITIONS), help="ids, separated by commas"
    )
    parser.add_argument("--max-mb", type=float, default=MAX_MB, help="size of the whole corpus")
    parser.add_argument("--source", help="your own files instead: a folder or a pattern")
    options = parser.parse_args(argv)
    partitions = options.partitions.split(",")
    try:
        if options.source:
            parts = from_folder(options.source, options.output, partitions=partitions)
        else:
            parts = build(options.output, partitions=partitions, max_mb=options.max_mb)
    except CorpusError as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 1
    for part in parts:
        print(part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
