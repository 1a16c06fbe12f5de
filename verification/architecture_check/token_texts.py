"""Makes texts of many kinds, and the tokenizers to compare on them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

from corpus.tokens.lineage_vocabulary import read_vocabulary
from corpus.tokens.tokenizing import Tokenizer, make_tokenizer
from corpus.tokens.vocabulary import Vocabulary
from corpus.tokens.wordpiece_training import train_wordpiece
from pipeline_config.training_schema import ModelConfig
from training.exporting.tokenizer_files import (
    TOKENIZER,
    bpe_tokenizer,
    wordpiece_tokenizer,
    write_tokenizer,
)

_SEED = 3
_SCRIPTS = (
    "na\u00efve \u00e9t\u00e9 Stra\u00dfe e\u0301",
    "\u0411\u044b\u0441\u0442\u0440\u0430\u044f \u043b\u0438\u0441\u0430",
    "\u4e2d\u6587\u6ca1\u6709\u7a7a\u683c\u3002\u65e5\u672c\u8a9e",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea",
    "\u0e44\u0e17\u0e22 \u0939\u093f\u0928\u094d\u0926\u0940",
)
_EMOJIS = "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f44d\U0001f3fd\u2764\ufe0f"
_SPACES = " \t\n\r\x0b\x0c\u00a0\u2003\u3000\u2028"
_CONTROLS = "\0\x01\x07\x1b\x1c\x7f\x85\u200b\u202e\ufeff"
_CLITICS = ("it's", "I'll", "'tis", "rock'n'roll", '"\'s"', "don't", "'" * 3)


class Made(NamedTuple):
    """Our tokenizer for a vocabulary, and a folder from which the library creates its own."""

    vocabulary: Vocabulary
    tokenizer: Tokenizer
    folder: Path


def make(count: int) -> list[str]:
    """Return various texts: plain English, and error-prone kinds."""
    draw = random.Random(_SEED)  # noqa: S311 - no secret
    words = " ".join(topics.values()).split()

    def english() -> str:
        start = draw.randrange(len(words) - 60)
        return " ".join(words[start : start + draw.randint(1, 60)])

    def among(signs: str) -> str:
        return "".join(draw.choice(signs) for _ in range(draw.randint(1, 6)))

    def any_characters() -> str:
        codes = (draw.randrange(0x110000) for _ in range(draw.randint(1, 40)))
        return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)

    kinds = (
        english,
        lambda: " " * draw.randint(1, 4) + english() + " " * draw.randint(0, 3),
        lambda: among(_SPACES).join([english(), english(), ""]),
        lambda: f"{english()}{among(_EMOJIS)} {draw.choice(_SCRIPTS)}{english()}",
        lambda: among(_CONTROLS).join([english(), english(), english()]),
        lambda: f"{draw.choice(_CLITICS)} {english()}{draw.choice(_CLITICS)} {draw.random()}",
        any_characters,
        lambda: draw.choice(_SCRIPTS) + among(_EMOJIS + _SPACES + _CONTROLS) + any_characters(),
    )
    return [kinds[number % len(kinds)]() for number in range(count)]


def tokenizers(name: str, folder: Path, python: Path, program: Path) -> Iterator[tuple[str, Made]]:
    """Yield the tokenizers of an architecture's models, by direction: import or export.

    :param program: writes the library's byte-level BPE tokenizer.
    """
    if ModelConfig.model_validate({"architecture": name}).has_byte_tokens:
        theirs = folder / "theirs"
        subprocess.run([python, program, "vocabulary", theirs], check=True, stdout=sys.stderr)
        vocabulary = read_vocabulary(str(theirs / TOKENIZER))
        yield "import", Made(vocabulary, make_tokenizer(vocabulary, False), theirs)
        library, lower = bpe_tokenizer(vocabulary, normalization="none"), False
    else:
        lower = True
        vocabulary = train_wordpiece([*topics.values(), *_SCRIPTS], size=8000, do_lower_case=lower)
        library = wordpiece_tokenizer(vocabulary.tokens, do_lower_case=lower, normalization="none")
    ours = folder / "ours"
    ours.mkdir()
    write_tokenizer(
        ours, vocabulary, library, do_lower_case=lower, max_seq_length=512, inputs=["input_ids"]
    )
    yield "export", Made(vocabulary, make_tokenizer(vocabulary, lower), ours)
