"""Chooses the layers of a model that a smaller one takes, and renames their weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

Value = TypeVar("Value")

_LAYER = re.compile(r"(?<=/layer_)(\d+)(?=/)")


def kept_layers(layers: int, kept: int) -> list[int]:
    """Return the numbers of layers that are kept: evenly spaced, with the first and the last.

    A single one is the last, whose states the classifier knows.

    :raises ValueError: ``kept`` is not from 1 to ``layers``.
    """
    if not 1 <= kept <= layers:
        raise ValueError(f"{kept} of {layers} layers cannot be kept")
    if kept == 1:
        return [layers - 1]
    return [round(number * (layers - 1) / (kept - 1)) for number in range(kept)]


def renamed(weights: Mapping[str, Value], kept: Sequence[int]) -> dict[str, Value]:
    """Return the weights of a model with only some of its layers, by their names there.

    :param weights: weights by variable name.
    :param kept: ascending numbers of layers.
    """
    places = {str(old): str(new) for new, old in enumerate(kept)}
    found = {}
    for name, value in weights.items():
        match = _LAYER.search(name)
        if match is None:
            found[name] = value
        elif match[0] in places:
            found[_LAYER.sub(places[match[0]], name)] = value
    return found
