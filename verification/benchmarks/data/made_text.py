"""Makes the data benchmark's fixed text: made-up documents, the same bytes on every machine.

    python -m verification.benchmarks.data.made_text [--megabytes 250] [--state-dir .local]

With it, the figures of two machines can be compared; with each machine's own documents they cannot.
In what costs time, it is as hard for a tokenizer as those: word frequencies follow Zipf's law, one
word in 25 is new to the document, some words are in other scripts, and a tenth of the documents is
not prose. It says nothing about how well rows can be filled or duplicates found.

The random choices use only integers and divisions, which give the same results everywhere; numpy
never changes the stream of its ``RandomState``.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline_config.command_line import command_parser
from verification.benchmarks.data.blocks import Part
from verification.benchmarks.data.corpus import SHARD_BYTES, Corpus, Gatherer, load, store

VERSION = 1
MEGABYTES = 260
_SEED = 20260101
_ONSETS = [*"bcdfghjklmnprstvwz", *(f"{letter}r" for letter in "bdgpt"), "ch", "qu", "sh", "th"]
_NUCLEI = [*"aeiou", "ai", "ea", "ou"]
_CODAS = ["", "", *"lmnrstx", "nk", "rt", "st"]
# First code points of blocks of letters, and their sizes: Greek, Cyrillic, Hebrew, Hangul, kanji.
_SCRIPTS = ((0x3B1, 24), (0x430, 32), (0x5D0, 26), (0xAC00, 400), (0x4E00, 800))
_WORDS, _FOREIGN_WORDS = 60_000, 12_000
# The shift in Mandelbrot's form of Zipf's law, for English.
_ZIPF_SHIFT = 2.7
_NEW_WORD_EVERY = 25
_COMMA_EVERY = 12
# One of these is drawn for each document.
_PARTS = (*(Part.ENGLISH,) * 8, Part.OTHER_SCRIPT, Part.NOISY)


class _Lexicon:
    """Words with their frequencies."""

    def __init__(self, words: list[str]) -> None:
        # All words, then all words with a comma, in the same order.
        self._words = np.array([*words, *(f"{word}," for word in words)], dtype=object)
        self._count = len(words)
        self._below = np.cumsum(1 / (np.arange(self._count) + _ZIPF_SHIFT))

    def draw(self, random: np.random.RandomState, count: int) -> list[str]:
        """Return ``count`` words, some with a comma."""
        places = np.searchsorted(self._below, random.random_sample(count) * self._below[-1])
        places = np.minimum(places, self._count - 1)
        places += self._count * (random.randint(_COMMA_EVERY, size=count) == 0)
        found: list[str] = self._words[places].tolist()
        return found


def documents(characters: int) -> Iterator[tuple[Part, str]]:
    """Yield documents, one sentence per line, at least ``characters`` characters in total."""
    random = np.random.RandomState(_SEED)
    prose = _Lexicon(sorted({_word(random) for _ in range(_WORDS)}, key=_order))
    foreign = _Lexicon(sorted({_foreign(random) for _ in range(_FOREIGN_WORDS)}, key=_order))
    made = 0
    while made < characters:
        part = _PARTS[random.randint(len(_PARTS))]
        if part is Part.NOISY:
            text = _noise(random)
        else:
            text = _prose(random, prose if part is Part.ENGLISH else foreign)
        made += len(text)
        yield part, text


def _order(word: str) -> tuple[int, bytes]:
    """Return the sort key of a word: short words come first, and are the frequent ones."""
    return len(word), hashlib.sha256(word.encode()).digest()


def _word(random: np.random.RandomState) -> str:
    syllables = random.randint(1, 5)
    return "".join(
        words[random.randint(len(words))]
        for _ in range(syllables)
        for words in (_ONSETS, _NUCLEI, _CODAS)
    )


def _foreign(random: np.random.RandomState) -> str:
    first, count = _SCRIPTS[random.randint(len(_SCRIPTS))]
    letters = random.randint(count, size=random.randint(2, 8))
    return "".join(chr(first + int(letter)) for letter in letters)


def _prose(random: np.random.RandomState, lexicon: _Lexicon) -> str:
    count = int(random.randint(120, 2200))
    words = lexicon.draw(random, count)
    for _ in range(count // _NEW_WORD_EVERY):
        words[random.randint(count)] = _word(random)
    for _ in range(count // 60):
        words[random.randint(count)] = str(random.randint(10_000))
    lines, start = [], 0
    for length in random.randint(5, 33, size=count // 5 + 1).tolist():
        line = " ".join(words[start : start + length]).rstrip(",")
        lines.append(f"{line[:1].upper()}{line[1:]}.")
        start += length
        if start >= count:
            break
    return "\n".join(lines)


def _noise(random: np.random.RandomState) -> str:
    lines = []
    for number in range(random.randint(20, 120)):
        a, b = random.randint(1 << 30, size=2).tolist()
        lines.append(
            f"{number:04d} | 0x{a:08x} | {b / 1000:.3f} | {_word(random)}_{a % 97} = [{b}]"
        )
    return "\n".join(lines)


def make(folder: Path, megabytes: int = MEGABYTES, *, shard_bytes: int = SHARD_BYTES) -> Corpus:
    """Return the made-up corpus, made now or already in ``folder``."""
    recipe = f"made {VERSION} {megabytes} {shard_bytes}"
    mark = hashlib.sha256(recipe.encode()).hexdigest()
    target = folder.resolve() / mark[:16]
    if not (target / "corpus.json").exists():
        gatherer = Gatherer()
        for part, text in documents(megabytes * 1_000_000):
            data = text.encode()
            gatherer.documents.append((hashlib.sha256(data).digest(), part, text))
            gatherer.sources["made"] += len(data)
        gatherer.found_bytes = gatherer.new_bytes = gatherer.sources["made"]
        store(gatherer, target, mark, shard_bytes)
    return load(target)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser("verification.benchmarks.data.made_text", __doc__)
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    options = parser.parse_args(argv)
    corpus = make(made_folder(options.state_dir), options.megabytes)
    print(json.dumps({"folder": str(corpus.folder), "bytes": corpus.bytes}))
    return 0


def made_folder(state_dir: Path) -> Path:
    """Return the folder of the made-up text."""
    return state_dir / "bench-data" / "made"


if __name__ == "__main__":
    sys.exit(main())
