"""Gathers the data benchmark's text from this machine: each paragraph once, in shards.

    python -m verification.benchmarks.data.corpus [--state-dir .local]

Nothing is downloaded and no module is imported. The same installation gives the same files. They
stay in the state folder until the installation changes.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.benchmarks.data.blocks import Block, Part
from verification.benchmarks.data.sources import (
    Source,
    find_sources,
    fingerprint,
    installation_roots,
    read_blocks,
)

RECIPE_VERSION = 5
SHARD_BYTES = 5_000_000
# Each of the other parts is at most this share of the whole.
OTHER_SHARE = 0.1
# If less than this is left of a file without its repeats, it is a fragment and not a document.
_MIN_DOCUMENT_CHARACTERS = 700
_MAX_DOCUMENT_CHARACTERS = 2_000_000
# About one in this many documents is kept out of the corpus, for learning the vocabulary.
_HELD_OUT_EVERY = 16


@dataclass
class Found:
    """Sizes of one part, in bytes of UTF-8."""

    documents: int = 0
    bytes: int = 0


@dataclass
class Corpus:
    """A gathered corpus, stored as ``corpus.json`` next to its shards."""

    fingerprint: str
    shards: list[str]
    bytes: int
    documents: int
    lines: int
    parts: dict[str, Found]
    sources: dict[str, int]
    new_text_share: float
    unique_documents_share: float
    unique_lines_share: float
    folder: Path = field(default=Path(), compare=False)

    def take(self, megabytes: int | None) -> list[Path]:
        """Return the first shards, at least the given number of megabytes, or all of them.

        :raises CorpusTooSmallError: the corpus is smaller than that.
        """
        paths = [self.folder / name for name in self.shards]
        if megabytes is None:
            return paths
        if megabytes * 1e6 > self.bytes:
            raise CorpusTooSmallError(
                f"this machine's text is {self.bytes / 1e6:.0f} MB, not {megabytes} MB."
            )
        taken: list[Path] = []
        missing = int(megabytes * 1e6)
        while missing > 0:
            taken.append(paths[len(taken)])
            missing -= taken[-1].stat().st_size
        return taken

    @property
    def held_out(self) -> Path:
        """The file of text that is in no shard; the vocabulary is learned from it."""
        return self.folder / "held-out.txt"

    @property
    def vocabulary(self) -> Path:
        """The vocabulary file, which exists once the vocabulary is learned."""
        return self.folder / "vocab.txt"

    @property
    def bpe_vocabulary(self) -> Path:
        """The vocabulary file of byte-level BPE, which exists once it is learned."""
        return self.folder / "tokenizer.json"

    def __str__(self) -> str:
        """Return a summary in a few readable lines."""
        parts = [
            f"  {name:<13} {found.bytes / 1e6:7.1f} MB  {found.bytes / self.bytes:6.1%}  "
            f"{found.documents:7,} documents"
            for name, found in self.parts.items()
        ]
        head = f"corpus: {self.bytes / 1e6:.1f} MB, {self.documents:,} documents"
        unique = (
            f"  unique: {self.unique_documents_share:.1%} of the documents, "
            f"{self.unique_lines_share:.1%} of the text by lines; of all text that was found "
            f"{self.new_text_share:.1%} was taken, the rest repeats"
        )
        return "\n".join([head, *parts, unique])


class CorpusTooSmallError(RuntimeError):
    """An error: the machine has less text than requested."""


class Gatherer:
    """Documents joined from the blocks of files, without text that occurred before."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.found_bytes = 0
        self.new_bytes = 0
        self.sources: Counter[str] = Counter()
        self.documents: list[tuple[bytes, Part, str]] = []

    def add(self, source: Source, blocks: Iterable[Block]) -> None:
        """Add the text of a file that no earlier file had."""
        texts: dict[Part, list[str]] = {part: [] for part in Part}
        for block in blocks:
            self.found_bytes += sum(map(len, block.lines))
            if lines := self._new_lines(block):
                self.new_bytes += sum(map(len, lines))
                texts[block.part].append("\n".join(lines))
        for part, pieces in texts.items():
            for document in _documents(pieces):
                order = hashlib.sha256(document.encode()).digest()
                self.documents.append((order, part, document))
                self.sources[source.group] += len(document)

    def _new_lines(self, block: Block) -> list[str]:
        """Return a block's lines that did not occur before; none if only short ones are left."""
        if block.key in self._seen:
            return []
        if block.key:
            self._seen.add(block.key)
        lines: list[str] = []
        is_new = not any(block.keys)
        for line, key in zip(block.lines, block.keys, strict=True):
            if key not in self._seen:
                lines.append(line)
            if key:
                is_new = is_new or key not in self._seen
                self._seen.add(key)
        return lines if is_new else []


def _documents(pieces: list[str]) -> Iterator[str]:
    """Yield the joined pieces of one file; a very long file becomes several documents."""
    lines: list[str] = []
    size = 0
    for piece in pieces:
        lines.append(piece)
        size += len(piece) + 1
        if size >= _MAX_DOCUMENT_CHARACTERS:
            yield "\n".join(lines)
            lines, size = [], 0
    if size >= _MIN_DOCUMENT_CHARACTERS:
        yield "\n".join(lines)


def gather(roots: dict[str, list[Path]], folder: Path, *, shard_bytes: int = SHARD_BYTES) -> Corpus:
    """Return the corpus of the roots, gathered now or already in ``folder``.

    :param roots: folders to read, by group name.
    :raises CorpusTooSmallError: there is no text.
    """
    folder = folder.resolve()
    sources = find_sources(roots)
    mark = hashlib.sha256(f"{RECIPE_VERSION} {shard_bytes} {fingerprint(sources)}".encode())
    target = folder / mark.hexdigest()[:16]
    if not (target / "corpus.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        store(_read_all(sources), target, mark.hexdigest(), shard_bytes)
    return load(target)


def store(gatherer: Gatherer, target: Path, mark: str, shard_bytes: int) -> None:
    """Write the gathered documents as a corpus; :func:`load` can read it once it is complete."""
    corpus = _write(gatherer, target, mark, shard_bytes)
    (target / "corpus.json").write_text(json.dumps(_to_json(corpus), indent=1))


def load(folder: Path) -> Corpus:
    """Read a corpus that was gathered before."""
    stored = json.loads((folder / "corpus.json").read_text())
    parts = {name: Found(**found) for name, found in stored.pop("parts").items()}
    return Corpus(**stored, parts=parts, folder=folder)


def _to_json(corpus: Corpus) -> dict[str, object]:
    stored = asdict(corpus)
    del stored["folder"]
    return stored


def _read_all(sources: list[Source]) -> Gatherer:
    gatherer = Gatherer()
    began = time.monotonic()
    # Not forked: a process that inherits a SIGTERM handler would not stop when it is told to.
    with multiprocessing.get_context("spawn").Pool() as pool:
        for number, blocks in enumerate(pool.imap(read_blocks, sources, chunksize=64)):
            gatherer.add(sources[number], blocks)
            if number % 20_000 == 0:
                _progress(number, len(sources), gatherer.new_bytes, began)
    _progress(len(sources), len(sources), gatherer.new_bytes, began)
    return gatherer


def _progress(done: int, files: int, size: int, began: float) -> None:
    spent = time.monotonic() - began
    print(
        f"gathering: {done:,} of {files:,} files, {size / 1e6:.0f} MB of new text, {spent:.0f} s",
        file=sys.stderr,
        flush=True,
    )


def _write(gatherer: Gatherer, target: Path, mark: str, shard_bytes: int) -> Corpus:
    """Write the documents in order of their hash, which mixes them evenly."""
    documents = sorted(set(gatherer.documents))
    if not documents:
        raise CorpusTooSmallError("there is no text in the folders that were looked at.")
    # A stopped run may have left a part of it.
    target.mkdir(parents=True, exist_ok=True)
    held_out = [text for order, _, text in documents if order[-1] % _HELD_OUT_EVERY == 0]
    (target / "held-out.txt").write_text("\n\n".join(held_out) + "\n")
    kept = _capped([entry for entry in documents if entry[0][-1] % _HELD_OUT_EVERY])
    shards: list[str] = []
    parts = {part.name.lower(): Found() for part in Part}
    pending: list[bytes] = []
    # The number of characters of each distinct line, by its hash.
    lines: dict[int, int] = {}
    line_count = line_characters = size = 0
    for number, (_, part, text) in enumerate(kept, start=1):
        data = text.encode()
        found = parts[part.name.lower()]
        found.documents += 1
        found.bytes += len(data)
        for line in text.split("\n"):
            lines[hash(line)] = len(line)
            line_count += 1
            line_characters += len(line)
        pending.append(data)
        size += len(data) + 2
        if size >= shard_bytes or number == len(kept):
            shards.append(f"shard-{len(shards):05d}.txt")
            (target / shards[-1]).write_bytes(b"\n\n".join(pending) + b"\n")
            pending, size = [], 0
    return Corpus(
        fingerprint=mark,
        shards=shards,
        bytes=sum(found.bytes for found in parts.values()),
        documents=len(kept),
        lines=line_count,
        parts=parts,
        sources=dict(gatherer.sources),
        new_text_share=round(gatherer.new_bytes / gatherer.found_bytes, 4),
        unique_documents_share=round(len({entry[0] for entry in kept}) / len(kept), 4),
        unique_lines_share=round(sum(lines.values()) / line_characters, 4),
    )


def _capped(documents: list[tuple[bytes, Part, str]]) -> list[tuple[bytes, Part, str]]:
    """Return the documents without those that would make the other parts exceed their share."""
    english = sum(len(text) for _, part, text in documents if part is Part.ENGLISH)
    limit = english * OTHER_SHARE / (1 - 2 * OTHER_SHARE)
    sizes: Counter[Part] = Counter()
    kept = []
    for entry in documents:
        _, part, text = entry
        if part is not Part.ENGLISH:
            if sizes[part] > limit:
                continue
            sizes[part] += len(text.encode())
        kept.append(entry)
    return kept


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser("verification.benchmarks.data.corpus", __doc__)
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    options = parser.parse_args(argv)
    corpus = gather(installation_roots(), corpus_folder(options.state_dir))
    print(corpus)
    for group, size in corpus.sources.items():
        print(f"  from {group}: {size / 1e6:.1f} MB")
    print(corpus.folder)
    return 0


def corpus_folder(state_dir: Path) -> Path:
    """Return the folder of the corpus."""
    return state_dir / "bench-data" / "corpus"


if __name__ == "__main__":
    sys.exit(main())
