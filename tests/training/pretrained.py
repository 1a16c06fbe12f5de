"""A small BERT with known weights, written in the formats of others, and its outputs by numpy.

Nothing here uses the code under test: names, layouts and arithmetic are written out once more.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.training.corpora import TOKENS

Array = npt.NDArray[Any]
Weights = dict[str, Array]

SIZES = {
    "vocab_size": 320,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}
SETTINGS = {f"model__{name}": size for name, size in SIZES.items()}
HUGGING_FACE_CONFIG = {"model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12} | SIZES


def bert_weights(seed: int = 0, sizes: Mapping[str, int] = SIZES, scale: float = 0.3) -> Weights:
    """Return the weights of ``BertForPreTraining`` under Hugging Face's names.

    :param sizes: as :data:`SIZES` names them.
    :param scale: standard deviation of each weight.
    """
    random = np.random.default_rng(seed)
    width, inner = sizes["hidden_size"], sizes["intermediate_size"]
    weights: Weights = {}

    def add(name: str, *shape: int, mean: float = 0.0) -> None:
        weights[name] = random.normal(mean, scale, shape).astype(np.float32)

    def dense(name: str, outputs: int, inputs: int) -> None:
        add(f"{name}.weight", outputs, inputs)
        add(f"{name}.bias", outputs)

    def norm(name: str) -> None:
        add(f"{name}.weight", width, mean=1.0)
        add(f"{name}.bias", width)

    add("bert.embeddings.word_embeddings.weight", sizes["vocab_size"], width)
    add("bert.embeddings.position_embeddings.weight", sizes["max_position_embeddings"], width)
    add("bert.embeddings.token_type_embeddings.weight", sizes["type_vocab_size"], width)
    norm("bert.embeddings.LayerNorm")
    for number in range(sizes["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            dense(f"{layer}.attention.{part}", width, width)
        norm(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", inner, width)
        dense(f"{layer}.output.dense", width, inner)
        norm(f"{layer}.output.LayerNorm")
    dense("bert.pooler.dense", width, width)
    add("cls.predictions.bias", sizes["vocab_size"])
    dense("cls.predictions.transform.dense", width, width)
    norm("cls.predictions.transform.LayerNorm")
    dense("cls.seq_relationship", 2, width)
    return weights


def batch(rows: int = 3, seed: int = 1) -> dict[str, Array]:
    """Return rows with padding and two segments, as a model takes them."""
    random, length = np.random.default_rng(seed), 16
    mask = (np.arange(length) < random.integers(8, length + 1, (rows, 1))).astype(np.int32)
    tokens = random.integers(5, SIZES["vocab_size"], (rows, length)) * mask
    return {
        "input_word_ids": tokens.astype(np.int32),
        "input_mask": mask,
        "input_type_ids": ((np.arange(length) > 5) * mask).astype(np.int32),
        "masked_lm_positions": random.integers(0, 8, (rows, 4)).astype(np.int32),
    }


def exact_gelu(x: Array) -> Array:
    """Return x times the normal distribution's integral."""
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def tanh_gelu(x: Array) -> Array:
    """Return the approximation of Google's BERT."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def bert_outputs(weights: Weights, rows: dict[str, Array], gelu: Any = exact_gelu) -> Weights:
    """Return hidden states, masked-LM logits and next-sentence logits, in double precision."""
    values = {name.removeprefix("bert."): w.astype(np.float64) for name, w in weights.items()}
    heads, length = SIZES["num_attention_heads"], rows["input_word_ids"].shape[1]

    def dense(name: str, x: Array) -> Array:
        return x @ values[f"{name}.weight"].T + values[f"{name}.bias"]

    def norm(name: str, x: Array) -> Array:
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * values[f"{name}.weight"] + values[f"{name}.bias"]

    def by_head(x: Array) -> Array:
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    words = values["embeddings.word_embeddings.weight"]
    x = words[rows["input_word_ids"]]
    x = x + values["embeddings.position_embeddings.weight"][:length]
    x = x + values["embeddings.token_type_embeddings.weight"][rows["input_type_ids"]]
    x = norm("embeddings.LayerNorm", x)
    hidden = []
    layers = [name for name in values if name.endswith(".attention.self.query.weight")]
    for number in range(len(layers)):
        layer = f"encoder.layer.{number}"
        parts = ("query", "key", "value")
        q, k, v = (by_head(dense(f"{layer}.attention.self.{part}", x)) for part in parts)
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        scores = np.where(rows["input_mask"][:, None, None, :] > 0, scores, -1e9)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        attended = (shares @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        attended = dense(f"{layer}.attention.output.dense", attended)
        x = norm(f"{layer}.attention.output.LayerNorm", x + attended)
        inner = gelu(dense(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", x + dense(f"{layer}.output.dense", inner))
        hidden.append(x)

    outputs = {"encoder_outputs": np.stack(hidden)}
    if "cls.predictions.bias" in values:
        masked = np.take_along_axis(x, rows["masked_lm_positions"][..., None], axis=1)
        masked = gelu(dense("cls.predictions.transform.dense", masked))
        masked = norm("cls.predictions.transform.LayerNorm", masked)
        outputs["mlm_logits"] = masked @ words.T + values["cls.predictions.bias"]
    if "cls.seq_relationship.bias" in values:
        pooled = np.tanh(dense("pooler.dense", x[:, 0]))
        outputs["next_sentence"] = dense("cls.seq_relationship", pooled)
    return outputs


def write_safetensors(path: Path, tensors: Weights) -> None:
    """Write a file by the description of the format: a JSON header, then the bytes."""
    types = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        content = np.ascontiguousarray(tensor).tobytes()
        header[name] = {
            "dtype": types[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def write_vocabulary(folder: Path, tokens: list[str]) -> None:
    """Write a ``vocab.txt``."""
    Path(folder, "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))


def write_hugging_face(
    folder: Path,
    weights: Weights,
    config: dict[str, Any] | None = None,
    *,
    tokens: list[str] | None = TOKENS,
    shards: int = 1,
) -> str:
    """Write a Hugging Face folder and return its path."""
    folder.mkdir(parents=True)
    Path(folder, "config.json").write_text(json.dumps(HUGGING_FACE_CONFIG | (config or {})))
    if tokens is not None:
        write_vocabulary(folder, tokens)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", weights)
        return str(folder)
    names = [f"model-{number + 1:05d}-of-{shards:05d}.safetensors" for number in range(shards)]
    places = {name: names[number % shards] for number, name in enumerate(weights)}
    for file in names:
        part = {name: tensor for name, tensor in weights.items() if places[name] == file}
        write_safetensors(folder / file, part)
    index = {"metadata": {}, "weight_map": places}
    Path(folder, "model.safetensors.index.json").write_text(json.dumps(index))
    return str(folder)


def google_weights(weights: Weights) -> Weights:
    """Return the same weights under the names and in the layouts of Google's BERT."""
    found = {}
    for name, value in weights.items():
        new = re.sub(r"\.layer\.(\d+)", r"/layer_\1", name).replace(".", "/")
        if "LayerNorm" in name:
            new = new.replace("/weight", "/gamma").replace("/bias", "/beta")
        elif name.startswith("cls.seq_relationship."):
            new = new.replace("/weight", "/output_weights").replace("/bias", "/output_bias")
        elif name == "cls.predictions.bias":
            new = "cls/predictions/output_bias"
        elif "_embeddings." in name:
            new = new.removesuffix("/weight")
        elif new.endswith("/weight"):
            new, value = new.replace("/weight", "/kernel"), value.T  # noqa: PLW2901
        found[new] = value
    return found


def write_google(
    folder: Path,
    weights: Weights,
    config: dict[str, Any] | None = None,
    *,
    tokens: list[str] | None = TOKENS,
) -> str:
    """Write what a zip file of Google's BERT holds and return the checkpoint's prefix."""
    import tensorflow as tf

    folder.mkdir(parents=True)
    prefix = str(folder / "bert_model.ckpt")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, initializer=value)
            for name, value in google_weights(weights).items()
        }
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(session, prefix)
    if tokens is not None:
        write_vocabulary(folder, tokens)
    content = {"hidden_act": "gelu", "initializer_range": 0.02} | SIZES | (config or {})
    Path(folder, "bert_config.json").write_text(json.dumps(content))
    return prefix
