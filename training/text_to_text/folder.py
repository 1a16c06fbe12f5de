"""Writes a T5 model as a Hugging Face folder, and reads its weights again.

https://huggingface.co/docs/transformers/model_doc/t5
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from trained_models.errors import BadDataError
from trained_models.importing.sources import HUGGING_FACE_CONFIG, SENTENCEPIECE, file_names
from trained_models.text_to_text.sizes import EOS, PAD, Sizes, configuration, sizes_in
from trained_models.text_to_text.weights import Values, read_weights, tensors
from training.exporting.hugging_face import save_tensors, write_json
from training.text_to_text.rows import read_sentencepiece

# Further files from which transformers reads the tokenizer, if they exist.
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def write_folder(
    folder: Path,
    sizes: Sizes,
    values: Mapping[str, npt.NDArray[np.float32]],
    *,
    dropout_rate: float,
    files: Mapping[str, bytes],
) -> None:
    """Write everything that transformers needs into an empty local folder.

    :param values: weights by name suffix of the variables.
    :param files: files of the vocabulary, by name.
    """
    write_json(folder / HUGGING_FACE_CONFIG, configuration(sizes, dropout_rate))
    write_json(
        folder / "generation_config.json",
        {"decoder_start_token_id": PAD, "eos_token_id": EOS, "pad_token_id": PAD},
    )
    save_tensors(folder, tensors(sizes, values))
    for name, data in files.items():
        (folder / name).write_bytes(data)


def vocabulary_files(source: str) -> dict[str, bytes]:
    """Return the files of a folder's vocabulary by name; fine-tuned models keep them unchanged.

    :raises UserError: the folder has no SentencePiece model.
    """
    names = set(_TOKENIZER) & set(file_names(source))
    read = {name: uris.read(uris.join(source, name)) for name in sorted(names)}
    return {SENTENCEPIECE: read_sentencepiece(source), **read}


def read_again(folder: Path) -> Values:
    """Return the weights of a folder that was written here, by name suffix of the variables."""
    # The configuration is read directly: no request may name a model in this folder.
    config = folder / HUGGING_FACE_CONFIG
    return read_weights(str(folder), sizes_in(json.loads(config.read_bytes()), str(config)))


def require_equal(folder: Path, values: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Read a written folder again and compare its weights, bit for bit.

    :param values: the weights that were written.
    :raises BadDataError: they differ.
    """
    found = read_again(folder)
    differing = [name for name, value in values.items() if not np.array_equal(found[name], value)]
    if differing:
        raise BadDataError(f"{len(differing)} weights were not written as they are: {differing[0]}")
