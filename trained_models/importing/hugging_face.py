"""Weights in a Hugging Face folder: safetensors, in one file or several.

https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from pipeline_config.unquoted import fault
from trained_models.errors import BadDataError, UserError
from trained_models.importing.readers import Reader, StoredTensor
from trained_models.weight_names import Layout, Weight

_ENCODER = "bert."
# Numbers of positions and segments, which some versions of the library stored.
_COUNTERS = {"embeddings.position_ids", "embeddings.token_type_ids"}
# Second names of the same tensor.
_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


class HuggingFaceReader(Reader):
    """The tensors of a folder.

    :param uri: of the folder, for messages.
    :param paths: its files of weights, on this machine.
    :raises BadDataError: a file is damaged.
    :raises UserError: input and output embeddings are different, or a tensor has two values.
    """

    def __init__(self, uri: str, paths: list[Path]) -> None:
        self.uri, self.paths, self.notes = uri, paths, []
        self._files: dict[str, Path] = {}
        self._tensors: dict[str, StoredTensor] = {}
        for path in paths:
            self._list(path)
        for second, first in _TIED.items():
            self._join(second, first)
        self.names = {tensor.name for tensor in self._tensors.values()}

    def find(self, weight: Weight) -> StoredTensor | None:
        """Return the tensor of a weight, if there is one."""
        return self._tensors.get(weight.tensor)

    def sizes(self) -> dict[str, int]:
        """Return nothing: the architecture is in config.json, without which this is no folder."""
        raise UserError(f"{self.uri} has no config.json; get it from where the weights come from.")

    def value(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor as it is stored."""
        path = self._files[name]
        with _readable(path, self.uri), safe_open(path, framework="np") as file:
            return file.get_tensor(name)

    def _list(self, path: Path) -> None:
        with _readable(path, self.uri), safe_open(path, framework="np") as file:
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        for name, shape in found.items():
            key = _current(name.removeprefix(_ENCODER))
            if key in _COUNTERS:
                continue
            if key in self._tensors:
                raise UserError(
                    f"{self.uri} has a tensor twice, by its old name and its new one or with and "
                    f"without {_ENCODER!r} before it; it is not clear which one counts. Save the "
                    "model again."
                )
            self._files[name] = path
            self._tensors[key] = StoredTensor(name, shape, Layout.TRANSPOSED)

    def _join(self, second: str, first: str) -> None:
        """Take a second name of a tensor away, or use it if it is the only one."""
        tensor = self._tensors.pop(second, None)
        if tensor is None:
            return
        if first not in self._tensors:
            self._tensors[first] = tensor
            return
        other = self._tensors[first]
        if not np.array_equal(self.value(tensor.name), self.value(other.name)):
            raise UserError(
                f"{self.uri}: {second} differs from {first}, which here are one weight, as in "
                "BERT. A model with both cannot be used."
            )


def _current(name: str) -> str:
    """Return a tensor's name as it is now; old models have TensorFlow's names of layer norms."""
    head, _, last = name.rpartition(".")
    return f"{head}.{ {'gamma': 'weight', 'beta': 'bias'}.get(last, last) }" if head else name


@contextmanager
def _readable(path: Path, uri: str) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise BadDataError(
            f"{path.name} of {uri} cannot be read as safetensors ({fault(error)}): it is damaged "
            "or was not copied completely. Get it again; a Git LFS pointer is not the file itself."
        ) from None
