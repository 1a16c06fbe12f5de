"""BERT's WordPiece tokenizer as Hugging Face's library has it, shared by the peers."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def train(text: Path, vocabulary: Path, size: int) -> None:
    """Write a lower-case vocabulary of a text, one token a line."""
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
