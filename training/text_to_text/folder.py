"""A T5 model as a Hugging Face folder: read into a model, and written of one.

https://huggingface.co/docs/transformers/model_doc/t5
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from trained_models.importing.sources import HUGGING_FACE_CONFIG, file_names
from trained_models.text_to_text.sizes import EOS, PAD, Sizes, configuration
from trained_models.text_to_text.weights import tensors
from training.exporting.hugging_face import save_tensors, write_json
from training.text_to_text.rows import SENTENCEPIECE, read_sentencepiece

# What else transformers reads the tokenizer from, where it is there.
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def write_folder(
    folder: Path,
    sizes: Sizes,
    values: Mapping[str, npt.NDArray[np.float32]],
    *,
    dropout_rate: float,
    source: str,
) -> None:
    """Write everything that transformers needs into an empty folder of this machine.

    :param values: by the ends of variables' names.
    :param source: folder that the vocabulary is copied from: a model here never has another one.
    :raises UserError: the source has no SentencePiece model.
    """
    write_json(folder / HUGGING_FACE_CONFIG, configuration(sizes, dropout_rate))
    write_json(
        folder / "generation_config.json",
        {"decoder_start_token_id": PAD, "eos_token_id": EOS, "pad_token_id": PAD},
    )
    save_tensors(folder, tensors(sizes, values))
    (folder / SENTENCEPIECE).write_bytes(read_sentencepiece(source))
    for name in set(_TOKENIZER) & set(file_names(source)):
        (folder / name).write_bytes(uris.read(uris.join(source, name)))
