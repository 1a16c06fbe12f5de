"""Weights in TensorFlow checkpoints: Google's BERT by name, tf-models' by its object graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from pipeline_config.unquoted import fault
from trained_models.errors import BadDataError, UserError
from trained_models.importing.checkpoint_index import (
    OBJECT_GRAPH,
    google_tensor,
    keys_in_graph,
    variables_named,
)
from trained_models.importing.descriptions import GOOGLE_CONFIG
from trained_models.importing.readers import Reader, StoredTensor
from trained_models.weight_names import NEXT_SENTENCE, Layout, Part, Weight

_GOOGLE_OPTIMIZER = re.compile(r"global_step|.*/(adam|lamb)_[mv]")


def open_checkpoint(prefix: Path, uri: str, paths: list[Path]) -> Reader:
    """Return the reader for a checkpoint.

    :param prefix: local prefix of the checkpoint.
    :param uri: original URI, for messages.
    :param paths: all files of the checkpoint.
    :raises BadDataError: its files are damaged, or one is missing.
    """
    with _readable(uri):
        reader = tf.train.load_checkpoint(str(prefix))
    if OBJECT_GRAPH in reader.get_variable_to_shape_map():
        return ObjectReader(uri, paths, reader)
    return GoogleReader(uri, paths, reader)


class _CheckpointReader(Reader):
    def __init__(self, uri: str, paths: list[Path], reader: tf.train.CheckpointReader) -> None:
        self.uri, self.paths, self.notes = uri, paths, []
        self._reader = reader
        self._shapes = reader.get_variable_to_shape_map()

    def value(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor as it is stored."""
        with _readable(self.uri):
            return self._reader.get_tensor(self._key(name))

    def _key(self, name: str) -> str:
        return name


class GoogleReader(_CheckpointReader):
    """The tensors of a TensorFlow 1 checkpoint of https://github.com/google-research/bert."""

    def __init__(self, uri: str, paths: list[Path], reader: tf.train.CheckpointReader) -> None:
        super().__init__(uri, paths, reader)
        self.names = {name for name in self._shapes if not _GOOGLE_OPTIMIZER.fullmatch(name)}
        if others := len(self._shapes) - len(self.names):
            self.notes.append(f"{others} tensors of its optimizer are not used.")

    def sizes(self) -> dict[str, int]:
        """Raise UserError: shapes do not show the number of attention heads."""
        raise UserError(
            f"{self.uri} has no {GOOGLE_CONFIG} beside it, which tells the number of heads and the "
            "activation; the weights do not. Copy it from where the checkpoint comes from."
        )

    def find(self, weight: Weight) -> StoredTensor | None:
        """Return the tensor of a weight, if there is one."""
        return google_tensor(weight, self._shapes)


class ObjectReader(_CheckpointReader):
    """The tensors of a ``tf.train.Checkpoint`` of tf-models, by the names of its variables.

    By names and not by objects, because the keys and classes of encoder and pretrainer differ
    between the ways in which tf-models saves them, while their variables have the same names.
    """

    def __init__(self, uri: str, paths: list[Path], reader: tf.train.CheckpointReader) -> None:
        super().__init__(uri, paths, reader)
        self._keys = keys_by_name(reader)
        self.names = set(self._keys)
        self._has_own_pooler = bool(self._ending(f"{NEXT_SENTENCE}/pooler_dense/kernel"))
        if self._has_own_pooler:
            self.names -= set(self._ending("pooler_transform/kernel"))
            self.names -= set(self._ending("pooler_transform/bias"))
            self.notes.append(
                "Its next-sentence head has a pooler of its own, which takes the place of the "
                "encoder's, as that one was not trained."
            )

    def find(self, weight: Weight) -> StoredTensor | None:
        """Return the tensor of a weight, if there is one."""
        variable = weight.variable
        if self._has_own_pooler and weight.part is Part.POOLER:
            variable = variable.replace("pooler_transform", f"{NEXT_SENTENCE}/pooler_dense")
        found = self._ending(variable)
        if len(found) > 1:
            raise BadDataError(
                f"{self.uri} has {len(found)} variables for {variable}. It holds more than one "
                "model; save the one that is meant alone."
            )
        return self._stored(found[0]) if found else None

    def sizes(self) -> dict[str, int]:
        """Return the architecture without the activation, which no shape tells."""
        words = self._shape("word_embeddings/embeddings")
        return {
            "vocab_size": words[0],
            "hidden_size": words[1],
            "num_hidden_layers": len({m[1] for m in map(_LAYER.search, self.names) if m}),
            "num_attention_heads": self._shape("transformer/layer_0/self_attention/query/bias")[0],
            "intermediate_size": self._shape("transformer/layer_0/intermediate/bias")[0],
            "max_position_embeddings": self._shape("position_embedding/embeddings")[0],
            "type_vocab_size": self._shape("type_embeddings/embeddings")[0],
        }

    def _shape(self, variable: str) -> tuple[int, ...]:
        names = self._ending(variable)
        if not names:
            raise UserError(
                f"{self.uri} has no variable {variable} among its {len(self.names)}, so it is no "
                "BERT of tf-models. Give another checkpoint."
            )
        return self._stored(names[0]).shape

    def _ending(self, variable: str) -> list[str]:
        return variables_named(variable, self._keys)

    def _stored(self, name: str) -> StoredTensor:
        return StoredTensor(name, tuple(self._shapes[self._key(name)]), Layout.VARIABLE)

    def _key(self, name: str) -> str:
        return self._keys[name]


_LAYER = re.compile(r"(?:^|/)transformer/layer_(\d+)/")


def keys_by_name(reader: tf.train.CheckpointReader) -> dict[str, str]:
    """Return the checkpoint key of each weight by variable name; optimizers are left out."""
    return keys_in_graph(reader.get_tensor(OBJECT_GRAPH))


@contextmanager
def _readable(uri: str) -> Iterator[None]:
    try:
        yield
    # The type depends on the damage: IndexError for a truncated file.
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        raise BadDataError(
            f"{uri} cannot be read as a TensorFlow checkpoint ({fault(error)}): a file of it is "
            "missing or damaged. Copy PREFIX.index and all of PREFIX.data-* again."
        ) from None
