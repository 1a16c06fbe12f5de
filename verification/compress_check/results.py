"""The file of results, a line of JSON for each model, from which the check can resume."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verification.checks import Line, Lines


@dataclass(frozen=True)
class Results:
    """Measured lines, by task, seed and model."""

    path: Path

    def lines(self) -> list[Line]:
        """Return the lines measured so far."""
        return Lines(self.path).read()

    def has(self, task: str, seed: int, model: str) -> bool:
        """Return whether a model was measured."""
        wanted = (task, seed, model)
        return any((one["task"], one["seed"], one["model"]) == wanted for one in self.lines())

    def add(self, line: Line) -> None:
        """Store a line, and print it."""
        Lines(self.path).add(line)
        print(json.dumps(line), flush=True)


@dataclass(frozen=True)
class Criterion:
    """A number that must be on one side of a limit."""

    task: str
    name: str
    value: float
    limit: float
    is_most: bool

    @property
    def holds(self) -> bool:
        """Return whether the number is on the right side."""
        return self.value <= self.limit if self.is_most else self.value >= self.limit

    def as_dict(self) -> Line:
        """Return the criterion as it is printed."""
        sign = "<=" if self.is_most else ">="
        return {
            "task": self.task,
            "criterion": self.name,
            "value": round(self.value, 6),
            "limit": f"{sign} {self.limit:g}",
            "holds": self.holds,
        }


def criteria(lines: list[Line], task: str) -> Iterator[Criterion]:
    """Yield the criteria that the lines of a task allow to evaluate.

    Latencies are compared within one seed's table, as they were measured under the same load.
    """
    by_seed: dict[int, dict[str, Line]] = {}
    for line in lines:
        if line["task"] == task:
            by_seed.setdefault(line["seed"], {})[line["model"]] = line

    def mean(of: Callable[[dict[str, Line]], float], *needed: str) -> float | None:
        found = [of(models) for models in by_seed.values() if set(needed) <= set(models)]
        return statistics.fmean(found) if found else None

    def accuracy(name: str) -> Callable[[dict[str, Line]], float]:
        return lambda models: models[name]["accuracy"]

    def ratio(key: str, one: str, other: str) -> float | None:
        return mean(lambda models: models[one][key] / models[other][key], one, other)

    majority = next((line["accuracy"] for line in lines if _is(line, task, "majority")), None)
    beats = next((line for line in lines if _is(line, task, "tfidf")), None)
    if beats is not None:
        yield Criterion(task, "parent minus TF-IDF, low end", beats["interval"][0], 0.0, False)
    parent, student = mean(accuracy("parent"), "parent"), mean(accuracy("student"), "student")
    if majority is not None and parent is not None and student is not None:
        kept = (student - majority) / max(parent - majority, 1e-9)
        yield Criterion(task, "student's share of the parent's gain", kept, 0.97, False)
    found = {
        ("student's latency", 0.60, True): ratio("p50_ms", "student", "parent"),
        ("student minus undistilled", 0.0, False): mean(
            lambda models: models["student"]["accuracy"] - models["undistilled"]["accuracy"],
            *("student", "undistilled"),
        ),
        ("dynamic range: size", 0.26, True): ratio(
            "megabytes", "tflite_dynamic_range", "tflite_float32"
        ),
        ("dynamic range: latency", 0.25, True): ratio(
            "p50_ms", "tflite_dynamic_range", "tflite_float32"
        ),
        ("dynamic range: agreement", 0.995, False): mean(
            lambda models: models["tflite_dynamic_range"]["agreement_all"], "tflite_dynamic_range"
        ),
        ("trimmed: difference on covered text", 1e-4, True): mean(
            lambda models: models["trim"]["covered_difference"], "trim"
        ),
    }
    for (name, limit, is_most), value in found.items():
        if value is not None:
            yield Criterion(task, name, value, limit, is_most)


def _is(line: Line, task: str, model: str) -> bool:
    return bool(line["task"] == task and line["model"] == model)
