"""Shared code of the peers: a command line, reading the corpus, and a WordPiece tokenizer.

The tokenizer is BERT's, from Hugging Face's library.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

CHUNK_CHARACTERS = 1 << 20
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def parse(description: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed options ``vocabulary``, ``unit``, ``output`` and ``shards``."""
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
    """Yield consecutive parts of a list of texts, each about a million characters."""
    start = characters = 0
    for end, text in enumerate(texts, start=1):
        characters += len(text)
        if characters >= CHUNK_CHARACTERS or end == len(texts):
            yield texts[start:end]
            start, characters = end, 0


def train(text: Path, vocabulary: Path, size: int) -> None:
    """Learn a lowercase vocabulary from a text; write it, one token per line."""
    tokenizer = _around(WordPiece(unk_token="[UNK]"))  # noqa: S106 - no secret
    trainer = WordPieceTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL_TOKENS),
        limit_alphabet=1000,
        show_progress=False,
    )
    lines = text.read_text().split("\n")
    tokenizer.train_from_iterator(lines, trainer)
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    aside = vocabulary.with_suffix(".new")
    aside.write_text("".join(f"{token}\n" for token, _ in tokens))
    aside.rename(vocabulary)


def load(vocabulary: Path) -> Tokenizer:
    """Return the tokenizer of a vocabulary file."""
    tokens = vocabulary.read_text().split("\n")[:-1]
    ids = {token: number for number, token in enumerate(tokens)}
    return _around(WordPiece(ids, unk_token="[UNK]"))  # noqa: S106 - no secret


def _around(model: WordPiece) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


def measure_tokenizer(
    description: str | None,
    argv: Sequence[str] | None,
    load_encoder: Callable[[Path], Callable[[Sequence[str]], int]],
) -> int:
    """Print the number of tokens and the seconds spent on them, without start-up.

    :param load_encoder: returns, for a vocabulary, a function that tokenizes texts and returns
        their number of tokens.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    options = parse(description, argv)
    encode = load_encoder(options.vocabulary)
    texts = list((lines if options.unit == "line" else documents)(options.shards))
    began, began_cpu = time.perf_counter(), time.process_time()
    tokens = sum(map(encode, chunks(texts)))
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    print(json.dumps({"tokens": tokens, "seconds": seconds, "cpu_seconds": cpu}))
    return 0
