"""The interface of readers of all formats: tensors by the weight that they hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trained_models.errors import BadDataError
from trained_models.weight_names import Layout, Weight


class StoredTensor(NamedTuple):
    """A tensor of a source, by the source's own name."""

    name: str
    shape: tuple[int, ...]
    layout: Layout


class Reader(ABC):
    """An open source of weights.

    :ivar uri: its name in messages.
    :ivar paths: its files on this machine.
    :ivar names: names of all tensors that matter: no optimizer state, counters or second names.
    :ivar notes: which of them were left out and why, a sentence each.
    """

    uri: str
    paths: list[Path]
    names: set[str]
    notes: list[str]

    @abstractmethod
    def find(self, weight: Weight) -> StoredTensor | None:
        """Return the tensor of a weight, if there is one."""

    @abstractmethod
    def value(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor as it is stored.

        :raises BadDataError: its bytes are damaged.
        """

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the sizes of the architecture that follow from the shapes of the tensors.

        :raises UserError: they do not follow.
        """

    def read(self, weight: Weight, stored: StoredTensor) -> npt.NDArray[np.float32]:
        """Return the value for a variable, with as many rows as the source has tokens.

        :raises BadDataError: it is damaged, or not all numbers are finite.
        """
        value = self.value(stored.name).astype(np.float32, copy=False)
        if not np.isfinite(value).all():
            raise BadDataError(
                f"{weight.tensor} of {self.uri} has values that are not finite; such a model "
                "cannot be trained. Get another copy, or an earlier checkpoint."
            )
        return stored.layout.load(weight, value)
