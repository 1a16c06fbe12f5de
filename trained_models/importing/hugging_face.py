"""Reads weights in a Hugging Face folder: safetensors or files of PyTorch, one or several.

https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from pipeline_config.unquoted import fault
from trained_models.errors import BadDataError, UserError
from trained_models.importing.readers import Reader, StoredTensor
from trained_models.importing.torch_files import TorchFile
from trained_models.weight_names import Layout, Weight


class _TensorFile(Protocol):
    """A file of tensors, by name."""

    def shapes(self) -> dict[str, tuple[int, ...]]: ...

    def value(self, name: str) -> npt.NDArray[Any]: ...


class TensorNames(Protocol):
    """The names of a model's tensors.

    See :class:`trained_models.architectures.architecture.HuggingFaceForm`.
    """

    @property
    def prefix(self) -> str:
        """Return the prefix that names of an encoder's tensors may have."""
        ...

    @property
    def tied(self) -> Mapping[str, str]:
        """Return the first names of tensors by their second names."""
        ...

    @property
    def left_out(self) -> frozenset[str]:
        """Return the names of tensors that are no weights, or of layers that are not built."""
        ...

    @property
    def masked_lm(self) -> str:
        """Return the class in the library transformers."""
        ...

    def known_name(self, name: str) -> str:
        """Return the current name of a tensor, without the prefix."""
        ...


class SafetensorsFile:
    """The tensors of one file of safetensors.

    :param path: path of the file, on this machine.
    :param uri: URI of its folder, for messages.
    """

    def __init__(self, path: Path, uri: str) -> None:
        self._path, self._uri = path, uri

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor by name.

        :raises BadDataError: the file is damaged.
        """
        with _readable(self._path, self._uri), safe_open(self._path, framework="np") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    def value(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor.

        :raises BadDataError: the file is damaged.
        """
        with _readable(self._path, self._uri), safe_open(self._path, framework="np") as file:
            return file.get_tensor(name)


class HuggingFaceReader(Reader):
    """The tensors of a folder.

    :param uri: URI of the folder, for messages.
    :param paths: its files of weights, on this machine.
    :param form: names of the tensors of their architecture.
    :raises BadDataError: a file is damaged.
    :raises UserError: input and output embeddings are different, a tensor has two values, or a file
        of PyTorch asks for more than tensors.
    """

    def __init__(self, uri: str, paths: list[Path], form: TensorNames) -> None:
        self.uri, self.paths, self.notes = uri, paths, []
        self._form = form
        self._files: dict[str, _TensorFile] = {}
        self._tensors: dict[str, StoredTensor] = {}
        for path in paths:
            self._list(path)
        for second, first in form.tied.items():
            self._join(second, first)
        self.names = {tensor.name for tensor in self._tensors.values()}

    def find(self, weight: Weight) -> StoredTensor | None:
        """Return the tensor of a weight, if there is one."""
        return self._tensors.get(weight.tensor)

    def sizes(self) -> dict[str, int]:
        """Raise UserError: the architecture is in config.json, which such a folder must have."""
        raise UserError(f"{self.uri} has no config.json; get it from where the weights come from.")

    def value(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor as it is stored."""
        return self._files[name].value(name)

    def _list(self, path: Path) -> None:
        kind = SafetensorsFile if path.suffix == ".safetensors" else TorchFile
        file: _TensorFile = kind(path, self.uri)
        for name, shape in file.shapes().items():
            key = self._form.known_name(name)
            if key in self._form.left_out:
                continue
            if key in self._tensors:
                raise UserError(
                    f"{self.uri} has a tensor twice, by its old name and its new one or with and "
                    f"without {self._form.prefix!r} before it; it is not clear which one counts. "
                    "Save the model again."
                )
            self._files[name] = file
            self._tensors[key] = StoredTensor(name, shape, Layout.TRANSPOSED)

    def _join(self, second: str, first: str) -> None:
        """Remove a second name of a tensor, or use it if it is the only one."""
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
                f"{self._form.masked_lm}. A model with both cannot be used."
            )


@contextmanager
def _readable(path: Path, uri: str) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise BadDataError(
            f"{path.name} of {uri} cannot be read as safetensors ({fault(error)}): it is damaged "
            "or was not copied completely. Get it again; a Git LFS pointer is not the file itself."
        ) from None
