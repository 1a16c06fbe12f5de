"""A folder that Hugging Face's ``transformers`` reads: its configuration and its weights.

https://huggingface.co/docs/transformers/model_doc/auto
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from pipeline_config.training_schema import ModelConfig
from pipeline_store import uris
from trained_models.architectures.architecture import HuggingFaceForm, architecture_of, weights
from trained_models.importing.sources import WEIGHTS
from trained_models.weight_names import Layout, Part, Weight


def write_configuration(folder: Path, model: ModelConfig) -> None:
    """Write ``config.json`` of the class with a masked-LM head, such as ``BertForMaskedLM``."""
    name = architecture_of(model).hugging_face.masked_lm
    own = {"architectures": [name], "tie_word_embeddings": True}
    write_json(folder / "config.json", configuration(model) | own)


def configuration(model: ModelConfig) -> dict[str, Any]:
    """Return the encoder's settings for ``config.json``."""
    form = architecture_of(model).hugging_face
    values = {
        theirs: getattr(model, ours) for ours, theirs in {**form.settings, **form.dropouts}.items()
    }
    for ours, more in form.more.items():
        values[form.settings[ours]] += more
    return {"model_type": form.model_type, **values, **form.constants}


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
    are not random. The output embedding is tied to the input's, so it is not written.

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
    """Return weights in the layout and under the names of Hugging Face's models.

    :param variables: as for :func:`write_weights`.
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
    # The library that reads it requires the framework of the layout.
    save_file(values, folder / WEIGHTS, metadata={"format": "pt"})


def write_sentence_transformers(folder: Path, files: Mapping[str, Any]) -> None:
    """Write the small files by which sentence-transformers reads the folder.

    :param files: content by path, as :class:`pipeline_store.formats.Heritage` has it.
    """
    for name, content in files.items():
        # This also rejects a path that would leave the folder.
        path = Path(uris.join(str(folder), name))
        path.parent.mkdir(exist_ok=True)
        write_json(path, content)


def write_json(path: Path, content: Any) -> None:
    """Write one of the folder's small files."""
    path.write_text(json.dumps(content, indent=2) + "\n")
