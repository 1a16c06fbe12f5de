"""The weights of a T5 model: tf-models' variables, and their names in Hugging Face folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trained_models.errors import UserError
from trained_models.importing.hugging_face import HuggingFaceReader
from trained_models.importing.sources import local_files, weight_files
from trained_models.text_to_text.sizes import CLASS, Sizes
from trained_models.weight_names import SHARED_EMBEDDING, Layout, Weight, alike

Values = dict[str, npt.NDArray[np.float32]]

_SHARED = "shared.weight"
_OUTPUT = "lm_head.weight"
_EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
LEFT_OUT = frozenset({"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"})
"""A tensor that the first T5 models were written with, and that nothing has ever used."""


@dataclass(frozen=True)
class _Names:
    """Names for :class:`trained_models.importing.hugging_face.HuggingFaceReader`."""

    tied: Mapping[str, str]
    prefix: str = ""
    masked_lm: str = CLASS
    left_out: frozenset[str] = LEFT_OUT

    def known_name(self, name: str) -> str:
        """Return a tensor's name unchanged: there were never old names."""
        return name


def weights(sizes: Sizes) -> list[Weight]:
    """Return all weights; the names of variables are the ends of tf-models' names."""
    found = [alike(SHARED_EMBEDDING, _SHARED, (sizes.vocab_size, sizes.d_model))]
    for side, layers in (("encoder", sizes.num_layers), ("decoder", sizes.num_decoder_layers)):
        buckets = (sizes.relative_attention_num_buckets, sizes.num_heads)
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found.append(alike(f"{side}/relative_posemb/rel_embedding/embedding", bias, buckets))
        for number in range(layers):
            found += _block(side, number, sizes)
        found.append(_scale(f"{side}/final_layer_norm", f"{side}.final_layer_norm", sizes))
    if sizes.has_own_output:
        found.append(_kernel("decoder/logits", "lm_head", sizes.d_model, sizes.vocab_size))
    return found


def _block(side: str, number: int, sizes: Sizes) -> Iterator[Weight]:
    mine, theirs = f"{side}/{side}_block_{number}", f"{side}.block.{number}.layer"
    attentions = [("self_attention", "SelfAttention")]
    if side == "decoder":
        attentions.append(("cross_attention", "EncDecAttention"))
    inner = sizes.num_heads * sizes.d_kv
    for place, (variable, tensor) in enumerate(attentions):
        for name in "qkv":
            ends = (f"{mine}/{variable}/attention/{name}", f"{theirs}.{place}.{tensor}.{name}")
            yield _kernel(*ends, sizes.d_model, inner)
        ends = (f"{mine}/{variable}/attention/o", f"{theirs}.{place}.{tensor}.o")
        yield _kernel(*ends, inner, sizes.d_model)
        yield _scale(f"{mine}/{variable}/layer_norm", f"{theirs}.{place}.layer_norm", sizes)
    last = f"{theirs}.{len(attentions)}"
    for name in ("wi_0", "wi_1") if sizes.form == "1.1" else ("wi",):
        ends = (f"{mine}/ffn/{name}", f"{last}.DenseReluDense.{name}")
        yield _kernel(*ends, sizes.d_model, sizes.d_ff)
    yield _kernel(f"{mine}/ffn/wo", f"{last}.DenseReluDense.wo", sizes.d_ff, sizes.d_model)
    yield _scale(f"{mine}/ffn_layer_norm", f"{last}.layer_norm", sizes)


def _kernel(variable: str, tensor: str, rows: int, columns: int) -> Weight:
    shape = (rows, columns)
    return Weight(f"{variable}/kernel", f"{tensor}.weight", shape, shape)


def _scale(variable: str, tensor: str, sizes: Sizes) -> Weight:
    return alike(f"{variable}/scale", f"{tensor}.weight", (sizes.d_model,))


def tied(sizes: Sizes) -> dict[str, str]:
    """Return the first names of tensors by their second names."""
    names = (*_EMBEDDINGS, *(() if sizes.has_own_output else (_OUTPUT,)))
    return dict.fromkeys(names, _SHARED)


def read_weights(folder: str, sizes: Sizes) -> Values:
    """Return the weights of a Hugging Face folder, by the ends of variables' names.

    An output layer that the folder does not have is the input embedding, as transformers ties them.

    :param sizes: sizes of the model in the folder.
    :raises UserError: weights are missing, left over or of another shape; the message names them.
    :raises BadDataError: a file is damaged, or a value is not finite.
    """
    names = weight_files(folder)
    with local_files(folder, names) as local:
        reader = HuggingFaceReader(folder, [local / name for name in names], _Names(tied(sizes)))
        found = weights(sizes)
        sources = {w.variable: reader.find(_tied_output(w, reader)) for w in found}
        problems = [f"{w.tensor} is missing" for w in found if sources[w.variable] is None]
        problems += [
            f"{w.tensor} is {source.shape} and has to be {Layout.TRANSPOSED.shape(w)}"
            for w in found
            if (source := sources[w.variable]) and source.shape != Layout.TRANSPOSED.shape(w)
        ]
        used = {source.name for source in sources.values() if source is not None}
        problems += [f"{name} is no weight of a T5 {sizes.form}" for name in reader.names - used]
        if problems:
            named = "; ".join(sorted(problems)[:5])
            raise UserError(
                f"{folder} is not the T5 that its config.json tells of: {named} ({len(problems)} "
                "in all). Get a folder whose files belong together."
            )
        return {
            weight.variable: reader.read(weight, source)
            for weight in found
            if (source := sources[weight.variable]) is not None
        }


def _tied_output(weight: Weight, reader: HuggingFaceReader) -> Weight:
    """Return the weight itself, or for a missing output layer the input embedding."""
    if weight.tensor != _OUTPUT or reader.find(weight) is not None:
        return weight
    return weight._replace(tensor=_SHARED)


def tensors(sizes: Sizes, values: Mapping[str, npt.NDArray[np.float32]]) -> Values:
    """Return weights by the names and in the layouts of Hugging Face; undoes reading.

    :param values: values by the ends of variables' names.
    """
    return {
        weight.tensor: np.ascontiguousarray(
            Layout.TRANSPOSED.store(weight, values[weight.variable])
        )
        for weight in weights(sizes)
    }
