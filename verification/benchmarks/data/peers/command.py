"""The command line that the peers share, and how they read the corpus."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

CHUNK_CHARACTERS = 1 << 20


def parse(description: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return ``vocabulary``, ``unit``, ``output`` and ``shards``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument(
        "--unit", choices=["line", "document"], default="document", help="what is tokenized at once"
    )
    parser.add_argument("--output", type=Path, help="folder for what is written")
    parser.add_argument("shards", type=Path, nargs="+")
    return parser.parse_args(argv)


def documents(shards: Sequence[Path]) -> Iterator[str]:
    """Yield the documents, each on one line."""
    for shard in shards:
        for document in shard.read_text().split("\n\n"):
            yield document.replace("\n", " ").strip()


def lines(shards: Sequence[Path]) -> Iterator[str]:
    """Yield the lines that are not blank."""
    for shard in shards:
        yield from filter(None, shard.read_text().split("\n"))


def chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list of texts into pieces of about a megabyte."""
    start = characters = 0
    for end, text in enumerate(texts, start=1):
        characters += len(text)
        if characters >= CHUNK_CHARACTERS or end == len(texts):
            yield texts[start:end]
            start, characters = end, 0
