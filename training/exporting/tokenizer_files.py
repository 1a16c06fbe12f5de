"""Writes the tokenizer of a Hugging Face folder, which tokenizes like the data job.

https://huggingface.co/docs/transformers/main_classes/tokenizer
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

from corpus.tokens.bpe_model import ROBERTA_NAMES, ids_of, merges_of
from corpus.tokens.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary
from training.exporting.hugging_face import write_json
from training.exporting.text_ops import MAX_WORD_CHARACTERS

TOKENIZER = "tokenizer.json"
_ROLES = {"pad_token": PAD, "unk_token": UNK, "cls_token": CLS, "sep_token": SEP}
_SPECIAL_TOKENS = _ROLES | {"mask_token": MASK}


def write_tokenizer(
    folder: Path,
    vocabulary: Vocabulary,
    tokenizer: Tokenizer,
    *,
    do_lower_case: bool,
    max_seq_length: int,
    inputs: Sequence[str],
) -> None:
    """Write ``tokenizer.json``, the vocabulary, and the two files that describe them.

    :param vocabulary: WordPiece or byte-level BPE.
    :param tokenizer: see :func:`wordpiece_tokenizer` and :func:`bpe_tokenizer`.
    :param max_seq_length: length to which texts are truncated if the caller requests that.
    :param inputs: names of the model's inputs in the library.
    """
    tokenizer.save(str(folder / TOKENIZER))
    if vocabulary.kind == "bpe":
        special, own = _write_bpe(folder, vocabulary, tokenizer)
    else:
        special, own = _write_wordpiece(folder, vocabulary, tokenizer, do_lower_case)
    lengths = {"model_max_length": max_seq_length, "model_input_names": list(inputs)}
    write_json(folder / "tokenizer_config.json", own | lengths | special)
    write_json(folder / "special_tokens_map.json", special)


def _write_wordpiece(
    folder: Path, vocabulary: Vocabulary, tokenizer: Tokenizer, do_lower_case: bool
) -> tuple[dict[str, str], dict[str, Any]]:
    """Write the vocabulary; return special tokens by role, and the tokenizer's other settings."""
    (folder / "vocab.txt").write_bytes(vocabulary.to_bytes())
    is_berts_own = isinstance(tokenizer.normalizer, normalizers.BertNormalizer)
    return _SPECIAL_TOKENS, {
        # BertTokenizer applies its own cleaning steps and ignores those in tokenizer.json.
        "tokenizer_class": "BertTokenizer" if is_berts_own else "PreTrainedTokenizerFast",
        "do_lower_case": do_lower_case,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
    }


def _write_bpe(
    folder: Path, vocabulary: Vocabulary, tokenizer: Tokenizer
) -> tuple[dict[str, str], dict[str, Any]]:
    """Write a byte-level BPE vocabulary; return the same as :func:`_write_wordpiece`."""
    write_json(folder / "vocab.json", ids_of(vocabulary))
    lines = [f"{first} {second}\n" for first, second in merges_of(vocabulary)]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(lines))
    special = {role: ROBERTA_NAMES[token] for role, token in _SPECIAL_TOKENS.items()}
    special |= {"bos_token": special["cls_token"], "eos_token": special["sep_token"]}
    # RobertaTokenizer applies no Unicode normalization and ignores that in tokenizer.json.
    is_robertas_own = tokenizer.normalizer is None
    name = "RobertaTokenizer" if is_robertas_own else "PreTrainedTokenizerFast"
    return special, {"tokenizer_class": name, "add_prefix_space": False, "trim_offsets": True}


def wordpiece_tokenizer(
    tokens: Sequence[str], *, do_lower_case: bool, normalization: str
) -> Tokenizer:
    """Return the data job's tokenizer, extended to recognize and add special tokens.

    :param tokens: WordPiece vocabulary, in order of id.
    :param normalization: ``NFC``, ``NFKC`` or ``none``; applied first, as in the data job.
    """
    ids = {token: number for number, token in enumerate(tokens)}
    model = WordPiece(ids, unk_token=UNK, max_input_chars_per_word=MAX_WORD_CHARACTERS)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = _berts_normalizer(do_lower_case, normalization)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing((SEP, ids[SEP]), (CLS, ids[CLS]))
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in _SPECIAL_TOKENS.values()]
    )
    return tokenizer


def bpe_tokenizer(vocabulary: Vocabulary, *, normalization: str) -> Tokenizer:
    """Return the tokenizer of a byte-level BPE vocabulary.

    :param normalization: as for :func:`wordpiece_tokenizer`.
    """
    tokenizer = Tokenizer.from_str((vocabulary.model or b"").decode())
    if normalization != "none":
        tokenizer.normalizer = _FORMS[normalization]()
    return tokenizer


_FORMS = {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC}


def _berts_normalizer(do_lower_case: bool, normalization: str) -> normalizers.Normalizer:
    berts = normalizers.BertNormalizer(lowercase=do_lower_case)
    # Lower-casing decomposes characters anyway, so composing them before changes nothing.
    if normalization == "none" or (normalization == "NFC" and do_lower_case):
        return berts
    return normalizers.Sequence([_FORMS[normalization](), berts])
