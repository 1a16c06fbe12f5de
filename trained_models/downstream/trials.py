"""Finished trials, as summaries and comparisons read them."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from pipeline_store.formats import FormatError, TaskSplit, TrialResult
from pipeline_store.layout import TrialLayout


@dataclass(frozen=True)
class FinishedTrial:
    """The result of a trial, and its place in the store."""

    place: TrialLayout
    result: TrialResult

    @classmethod
    def load(cls, place: TrialLayout) -> FinishedTrial:
        """Read a trial's result.

        :raises FileNotFoundError: the trial is not done.
        :raises FormatError: the result is damaged.
        """
        return cls(place, TrialResult.load(place.result))

    def metric(self, split: TaskSplit, name: str) -> float | None:
        """Return a metric on a split; None: it was not scored."""
        scores = self.result.scores.get(split)
        return None if scores is None else scores.metrics[name]

    def predictions(self, split: TaskSplit) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return a scored split's right labels and the model's outputs, verified.

        :returns: see :class:`pipeline_store.formats.TrialScores`.
        :raises FormatError: the file is absent or damaged.
        """
        digest = self.result.scores[split].predictions
        uri = uris.join(self.place.root, digest.path)
        try:
            data = uris.read(uri)
        except FileNotFoundError as error:
            raise FormatError(f"{uri} is missing; {self.place.result} names it.") from error
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 != digest.sha256:
            raise FormatError(
                f"{uri} is damaged: its SHA-256 is {sha256}; {self.place.result} says "
                f"{digest.sha256}."
            )
        with np.load(io.BytesIO(data)) as arrays:
            return arrays["labels"], arrays["outputs"]
