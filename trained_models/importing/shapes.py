"""Whether weights have the shapes that their description says, before they are loaded.

By names and shapes alone, which the headers of files tell: no number is read, no TensorFlow needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipeline_config.schema import ModelConfig
from trained_models.architectures.architecture import HuggingFaceForm, weights
from trained_models.errors import UserError
from trained_models.importing.plan import stored_shape
from trained_models.importing.readers import StoredTensor
from trained_models.weight_names import Layout, Part, Weight

Find = Callable[[Weight], StoredTensor | None]


def in_hugging_face(shapes: Mapping[str, tuple[int, ...]], form: HuggingFaceForm) -> Find:
    """Return what finds the tensor of a weight in a Hugging Face folder.

    :param shapes: of the tensors of all its files.
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
    """Stop unless the encoder is there, and every tensor has the shape that its model says.

    A head that begins anew is not looked at, nor which parts may be missing.

    :param model: as the description has it.
    :param described_by: the file that says so.
    :param place_of: from a tensor's name to the file that it is in.
    :raises UserError: with the first tensor that is missing or has another shape.
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
            # In the names of variables there may be anything before a weight's own.
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
