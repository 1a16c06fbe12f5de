"""Measures our tokenizer alone, one thread, on text in memory; the ids are numpy arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from corpus.tokens.lineage_vocabulary import read_vocabulary
from corpus.tokens.tokenizing import make_tokenizer
from verification.benchmarks.data.peers import command


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the tokenizer; return the exit status."""
    return command.measure_tokenizer(__doc__, argv, _encoder)


def _encoder(path: Path) -> Callable[[Sequence[str]], int]:
    vocabulary = read_vocabulary(str(path))
    tokenizer = make_tokenizer(vocabulary, do_lower_case=vocabulary.kind != "bpe")
    return lambda chunk: len(tokenizer.encode(chunk)[0])


if __name__ == "__main__":
    sys.exit(main())
