"""Measures the limit: Hugging Face's Rust tokenizer alone, one thread, on text in memory.

Nothing is read, cleaned, packed, masked or written, and the ids are not even copied to Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from verification.benchmarks.data.peers import command


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the tokenizer; return the exit status."""
    return command.measure_tokenizer(__doc__, argv, _encoder)


def _encoder(vocabulary: Path) -> Callable[[Sequence[str]], int]:
    if vocabulary.suffix == ".json":
        tokenizer = Tokenizer.from_file(str(vocabulary))
        # As in the data job: `<s>` in a text is ordinary text.
        tokenizer.encode_special_tokens = True
    else:
        tokenizer = command.load(vocabulary)

    def encode(chunk: Sequence[str]) -> int:
        return sum(map(len, tokenizer.encode_batch_fast(chunk, add_special_tokens=False)))

    return encode


if __name__ == "__main__":
    sys.exit(main())
