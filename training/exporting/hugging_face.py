"""A folder that Hugging Face's ``transformers`` reads: configuration, weights, tokenizer, card.

https://huggingface.co/docs/transformers/model_doc/auto
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

from pipeline_config.schema import ModelConfig
from pipeline_store import uris
from trained_models.architectures.architecture import HuggingFaceForm, architecture_of, weights
from trained_models.importing.sources import WEIGHTS
from trained_models.weight_names import Layout, Part, Weight
from training.exporting.text_ops import CLS, MASK, MAX_WORD_CHARACTERS, SEP, UNK

PAD = "[PAD]"
TOKENIZER = "tokenizer.json"
_SPECIAL_TOKENS = {
    "pad_token": PAD,
    "unk_token": UNK,
    "cls_token": CLS,
    "sep_token": SEP,
    "mask_token": MASK,
}


def write_configuration(folder: Path, model: ModelConfig) -> None:
    """Write ``config.json`` of the class with a masked-LM head, such as ``BertForMaskedLM``."""
    name = architecture_of(model).hugging_face.masked_lm
    own = {"architectures": [name], "tie_word_embeddings": True}
    write_json(folder / "config.json", configuration(model) | own)


def configuration(model: ModelConfig) -> dict[str, Any]:
    """Return what ``config.json`` says of the encoder."""
    form = architecture_of(model).hugging_face
    names = {**form.settings, **form.dropouts}
    return {
        "model_type": form.model_type,
        **{theirs: getattr(model, ours) for ours, theirs in names.items()},
        **form.constants,
    }


def write_weights(
    folder: Path,
    model: ModelConfig,
    variables: Mapping[str, npt.NDArray[np.float32]],
    *,
    pooler: bool,
    next_sentence: bool,
) -> None:
    """Write ``model.safetensors`` with the names of the class with a masked-LM head.

    The pooler and the next-sentence head, which that class does not have, are written only if they
    are more than random numbers. The output embedding is the input's, so it is not written.

    :param variables: values by name, as :func:`training.architectures.models.named_variables` has
        them.
    :param pooler: whether the pooler was trained or imported.
    :param next_sentence: whether a next-sentence head was trained.
    """
    found = weights(model, next_sentence=next_sentence)
    if not pooler:
        found = [weight for weight in found if weight.part is not Part.POOLER]
    save_tensors(folder, tensors(found, variables, architecture_of(model).hugging_face))


def tensors(
    found: Iterable[Weight],
    variables: Mapping[str, npt.NDArray[np.float32]],
    form: HuggingFaceForm,
) -> dict[str, npt.NDArray[np.float32]]:
    """Return weights as Hugging Face's models have them, by the names they have there.

    :param variables: as :func:`write_weights` takes them.
    """
    values = {}
    for weight in found:
        ending = f"/{weight.variable}"
        (value,) = [value for name, value in variables.items() if f"/{name}".endswith(ending)]
        stored = Layout.TRANSPOSED.store(weight, value)
        values[form.full_name(weight)] = np.ascontiguousarray(stored)
    return values


def save_tensors(folder: Path, values: dict[str, npt.NDArray[np.float32]]) -> None:
    """Write ``model.safetensors``."""
    # The library that reads it asks which framework's layout this is.
    save_file(values, folder / WEIGHTS, metadata={"format": "pt"})


def write_tokenizer(
    folder: Path,
    tokens: Sequence[str],
    tokenizer: Tokenizer,
    *,
    do_lower_case: bool,
    max_seq_length: int,
    inputs: Sequence[str],
) -> None:
    """Write ``vocab.txt``, ``tokenizer.json`` and the two files that describe them.

    :param tokens: of the vocabulary, in order of id.
    :param tokenizer: see :func:`wordpiece_tokenizer`.
    :param max_seq_length: what a text is cut to if the caller asks for that.
    :param inputs: what the model takes, by the library's names.
    """
    is_berts_own = isinstance(tokenizer.normalizer, normalizers.BertNormalizer)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    tokenizer.save(str(folder / TOKENIZER))
    content = {
        # BertTokenizer makes its own cleaning steps, whatever tokenizer.json says.
        "tokenizer_class": "BertTokenizer" if is_berts_own else "PreTrainedTokenizerFast",
        "do_lower_case": do_lower_case,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": max_seq_length,
        "model_input_names": list(inputs),
        **_SPECIAL_TOKENS,
    }
    write_json(folder / "tokenizer_config.json", content)
    write_json(folder / "special_tokens_map.json", _SPECIAL_TOKENS)


def wordpiece_tokenizer(
    tokens: Sequence[str], *, do_lower_case: bool, normalization: str
) -> Tokenizer:
    """Return the data job's tokenizer, which here also knows special tokens, and adds them.

    :param tokens: WordPiece vocabulary, in order of id.
    :param normalization: ``NFC``, ``NFKC`` or ``none``; done first, as the data job does.
    """
    ids = {token: number for number, token in enumerate(tokens)}
    model = WordPiece(ids, unk_token=UNK, max_input_chars_per_word=MAX_WORD_CHARACTERS)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = _normalizer(do_lower_case, normalization)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing((SEP, ids[SEP]), (CLS, ids[CLS]))
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in _SPECIAL_TOKENS.values()]
    )
    return tokenizer


def _normalizer(do_lower_case: bool, normalization: str) -> normalizers.Normalizer:
    berts = normalizers.BertNormalizer(lowercase=do_lower_case)
    # Lower-casing decomposes characters anyway, so that composing them before changes nothing.
    if normalization == "none" or (normalization == "NFC" and do_lower_case):
        return berts
    form = {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC}[normalization]
    return normalizers.Sequence([form(), berts])


def write_sentence_transformers(folder: Path, files: Mapping[str, Any]) -> None:
    """Write the small files by which sentence-transformers reads the folder.

    :param files: content by path, as :class:`pipeline_store.formats.Heritage` has it.
    """
    for name, content in files.items():
        # Also refuses a path that would leave the folder.
        path = Path(uris.join(str(folder), name))
        path.parent.mkdir(exist_ok=True)
        write_json(path, content)


def write_json(path: Path, content: Any) -> None:
    """Write one of the folder's small files."""
    path.write_text(json.dumps(content, indent=2) + "\n")
