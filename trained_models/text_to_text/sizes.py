"""Reads and writes the sizes and form in ``config.json`` of a T5 model; counts FLOPs of a row.

T5 1.0 (arXiv 1910.10683) has ReLU, and its input embedding, scaled, is its output layer. T5 1.1 (as
mT5 and Flan-T5) has a gated GELU and an output layer of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline_config.unquoted import UNPARSABLE, fault
from pipeline_store import request_paths, uris
from trained_models.errors import UserError
from trained_models.importing.sources import HUGGING_FACE_CONFIG

Form = Literal["1.0", "1.1"]

PAD, EOS = 0, 1
"""Ids in every T5 vocabulary. A target begins after a pad."""

SOURCE, TARGET = "source", "target"
"""Names of a batch's ids, int32 [R, S] and [R, T]: of whole texts with ``</s>``, padded with 0."""

CLASS = "T5ForConditionalGeneration"
"""The class of these models in the library transformers."""

_MODEL_TYPES = ("t5", "mt5")
_FORMS: dict[str, Form] = {"relu": "1.0", "gated-gelu": "1.1"}
EPSILON = 1e-6
FIXED = {
    "layer_norm_epsilon": EPSILON,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "decoder_start_token_id": PAD,
}
"""Settings that are constant in tf-models' model or in T5 itself."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model, by their names in ``config.json``, and its form."""

    form: Form
    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_layers: int
    num_decoder_layers: int
    num_heads: int
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128

    @property
    def has_own_output(self) -> bool:
        """Return whether the output layer is another matrix than the input embedding."""
        return self.form == "1.1"


def describe(folder: str) -> Sizes:
    """Return the sizes of the model in a Hugging Face folder.

    :raises UserError: there is no ``config.json``, or the model computes something other than T5 as
        it is built here.
    """
    uri = uris.join(folder, HUGGING_FACE_CONFIG)
    data = request_paths.read_or_none(uri, model=True)
    if data is None:
        raise UserError(f"{uri} does not exist; give the folder of a T5 model of transformers.")
    try:
        content = json.loads(data)
    except UNPARSABLE as error:
        raise UserError(f"{uri} is no configuration of a T5 ({fault(error)}).") from None
    return sizes_in(content, uri)


def sizes_in(content: Mapping[str, Any], uri: str) -> Sizes:
    """Return the sizes in the content of a ``config.json``.

    :param uri: URI of the file, for messages.
    :raises UserError: as :func:`describe`.
    """
    try:
        return _sizes(content, uri)
    except UNPARSABLE as error:
        raise UserError(f"{uri} is no configuration of a T5 ({fault(error)}).") from None


def _sizes(content: Mapping[str, Any], uri: str) -> Sizes:
    if content.get("model_type") not in _MODEL_TYPES:
        raise UserError(
            f"{uri}: its model_type is none of {', '.join(_MODEL_TYPES)}. Text-to-text fine-tuning "
            "begins with a T5; encoders are fine-tuned by the DAG bert_finetuning."
        )
    form = _FORMS.get(content.get("feed_forward_proj", "relu"))
    if form is None:
        raise UserError(f"{uri}: feed_forward_proj has to be one of {', '.join(_FORMS)}.")
    for name, value in FIXED.items():
        if content.get(name, value) != value:
            raise UserError(f"{uri}: {name} has to be {value:g}, as in every published T5.")
    # transformers 5 has a setting of its own for what tied embeddings once implied.
    scaled = content.get("scale_decoder_outputs", content.get("tie_word_embeddings", True))
    if bool(scaled) is (form == "1.1"):
        raise UserError(
            f"{uri}: T5 {form} {'does not scale' if form == '1.1' else 'scales'} what its output "
            "layer gets, and tie_word_embeddings or scale_decoder_outputs say otherwise."
        )
    found = {name: content[name] for name in ("vocab_size", "d_model", "d_kv", "d_ff")}
    layers = content["num_layers"]
    return Sizes(
        form=form,
        **found,
        num_layers=layers,
        num_decoder_layers=content.get("num_decoder_layers") or layers,
        num_heads=content["num_heads"],
        relative_attention_num_buckets=content.get("relative_attention_num_buckets", 32),
        relative_attention_max_distance=content.get("relative_attention_max_distance", 128),
    )


def configuration(sizes: Sizes, dropout_rate: float) -> dict[str, Any]:
    """Return the content of ``config.json``; :func:`describe` returns the same sizes for it."""
    projections = {form: name for name, form in _FORMS.items()}
    own = asdict(sizes)
    return {
        "model_type": _MODEL_TYPES[0],
        "architectures": [CLASS],
        "is_encoder_decoder": True,
        "feed_forward_proj": projections[own.pop("form")],
        "dropout_rate": dropout_rate,
        # From this, transformers derives whether the output is scaled, and has its own embedding.
        "tie_word_embeddings": not sizes.has_own_output,
        **FIXED,
        **own,
    }


def forward_flops(sizes: Sizes, source: int, target: int) -> int:
    """Return the forward FLOPs of a row: matrix products alone, 2mnk each.

    :param source: tokens of the text.
    :param target: tokens of the target.
    """
    width, inner = sizes.d_model, sizes.num_heads * sizes.d_kv
    projections = 2 if sizes.form == "1.0" else 3
    feed_forward = 2 * projections * width * sizes.d_ff

    def attention(queries: int, keys: int) -> int:
        # Queries and outputs; keys and values; scores and their sums.
        return 4 * width * inner * (queries + keys) + 4 * queries * keys * inner

    encoder = attention(source, source) + source * feed_forward
    decoder = attention(target, target) + attention(target, source) + target * feed_forward
    output = 2 * target * width * sizes.vocab_size
    return sizes.num_layers * encoder + sizes.num_decoder_layers * decoder + output
