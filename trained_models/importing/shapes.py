"""Checks whether weights have the shapes that their description says, before they are loaded.

By names and shapes alone, which are in the headers of files: no number is read, no TensorFlow used.
https://huggingface.co/docs/safetensors#format
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import BinaryIO

from pipeline_config.training_schema import ModelConfig
from pipeline_config.unquoted import UNPARSABLE
from trained_models.architectures.architecture import HuggingFaceForm, weights
from trained_models.errors import BadDataError, UserError
from trained_models.importing.plan import stored_shape
from trained_models.importing.readers import StoredTensor
from trained_models.weight_names import Layout, Part, Weight

Find = Callable[[Weight], StoredTensor | None]
LARGEST_HEADER = 100_000_000
"""Bytes, as in the library."""
_LENGTH_BYTES = 8
_METADATA = "__metadata__"


def in_hugging_face(shapes: Mapping[str, tuple[int, ...]], form: HuggingFaceForm) -> Find:
    """Return the function that finds the tensor of a weight in a Hugging Face folder.

    :param shapes: shapes of the tensors of all its files, by name.
    """
    by_name = {form.known_name(name): name for name in shapes}
    seconds = {first: second for second, first in form.tied.items()}

    def find(weight: Weight) -> StoredTensor | None:
        name = by_name.get(weight.tensor) or by_name.get(seconds.get(weight.tensor, ""))
        return None if name is None else StoredTensor(name, shapes[name], Layout.TRANSPOSED)

    return find


def refuse_other_shapes(
    find: Find, model: ModelConfig, described_by: str, place_of: Callable[[str], str]
) -> None:
    """Stop unless the encoder exists, and every tensor has the shape that its model says.

    Neither a head that is to be new is checked, nor which parts may be missing.

    :param model: the model by the description.
    :param described_by: the file with the description.
    :param place_of: function from a tensor's name to the file that it is in.
    :raises UserError: a tensor is missing or has another shape; the message names the first one.
    """
    wanted = [
        weight
        for weight in weights(model, next_sentence=True)
        if not (weight.part is Part.MASKED_LM and model.init_encoder_only)
    ]
    found = {weight: stored for weight in wanted if (stored := find(weight)) is not None}
    words = next((one for one in found if one.is_embedding), None)
    rows = model.vocab_size if words is None else found[words].shape[0]
    wrong = []
    for weight in wanted:
        stored = found.get(weight)
        if stored is None:
            if weight.part is Part.ENCODER:
                wrong.append(f"there is no tensor for {weight.variable} ({weight.tensor})")
            continue
        expected = stored_shape(weight, stored.layout, rows)
        if stored.shape != expected:
            # Names of variables may have any prefix before a weight's own name.
            name = weight.variable if stored.layout is Layout.VARIABLE else stored.name
            wrong.append(
                f"{name} in {place_of(stored.name)} has the shape {list(stored.shape)}, "
                f"and by {described_by} it should have {list(expected)}"
            )
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UserError(
            f"{wrong[0]}{more}. Description and weights are of different models, or a file is "
            "another than it should be: get all files of one model again."
        )


def tensor_shapes(stream: BinaryIO, size: int, place: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's tensors by their names.

    :param stream: the file, at its beginning.
    :param size: size of the file, in bytes.
    :param place: name of the file in messages.
    :raises BadDataError: it has no such header, or another size than the header says.
    """
    try:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if length > min(LARGEST_HEADER, size):
            raise ValueError
        header = json.loads(stream.read(length))
        tensors = {name: tensor for name, tensor in header.items() if name != _METADATA}
        shapes = {name: tuple(map(int, tensor["shape"])) for name, tensor in tensors.items()}
        end = max((int(tensor["data_offsets"][1]) for tensor in tensors.values()), default=0)
    except UNPARSABLE:
        raise BadDataError(
            f"{place} cannot be read as safetensors: its header is damaged, or it is another file, "
            "such as a Git LFS pointer. Get it again."
        ) from None
    if (whole := _LENGTH_BYTES + length + end) != size:
        raise BadDataError(
            f"{place} has {size:,} bytes, and by its header {whole:,}: it is damaged or was not "
            "copied completely. Get it again."
        )
    return shapes
