"""Renders the page on a fine-tuning run: one self-contained HTML file."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from pipeline_store.formats import (
    EncoderSource,
    FinetuningReport,
    ModelComparison,
    TaskManifest,
    TaskSplit,
    TaskSummary,
    TrialResult,
    TrialScores,
)

PICTURED_LABELS = 30
"""A picture of more cannot be read; the most frequent mistakes are listed instead."""
MISTAKES_LISTED = 20
_PLOT_WIDTH = 240.0
_ROOM = 1.1


@dataclass(frozen=True)
class Cell:
    """One field of the picture of a confusion matrix."""

    row: int
    column: int
    count: int
    share: float
    """Share of the examples of its row's label."""


@dataclass(frozen=True)
class Mistake:
    """Examples of one label that were taken for another."""

    label: str
    taken_for: str
    count: int


@dataclass(frozen=True)
class ModelOnTask:
    """One model on one task, with the details of its best trial."""

    summary: TaskSummary
    best: TrialScores | None
    labels: list[str]

    @property
    def cells(self) -> list[Cell]:
        """Return the fields of the picture; none if there is no picture to draw."""
        if self.best is None or len(self.best.confusion) > PICTURED_LABELS:
            return []
        return [
            Cell(row, column, count, count / max(sum(counts), 1))
            for row, counts in enumerate(self.best.confusion)
            for column, count in enumerate(counts)
        ]

    @property
    def mistakes(self) -> list[Mistake]:
        """Return the most frequent mistakes, if there are too many labels for a picture."""
        if self.best is None or len(self.best.confusion) <= PICTURED_LABELS:
            return []
        found = [
            Mistake(self.labels[row], self.labels[column], count)
            for row, counts in enumerate(self.best.confusion)
            for column, count in enumerate(counts)
            if count and row != column
        ]
        return sorted(found, key=lambda one: -one.count)[:MISTAKES_LISTED]


@dataclass(frozen=True)
class TaskSection:
    """All models on one task."""

    manifest: TaskManifest
    models: list[ModelOnTask]

    @property
    def metrics(self) -> list[str]:
        """Return the names of the metrics, the one that is compared by first."""
        names = {name for one in self.models for name in one.summary.metrics}
        return sorted(names, key=lambda name: (name != self.manifest.compared_by, name))

    @property
    def majority(self) -> Mapping[str, float]:
        """Return the metrics of the baseline that always gives the most frequent answer."""
        return self.models[0].summary.majority

    @property
    def not_learned(self) -> list[str]:
        """Return the models that are not better than the most frequent answer."""
        metric = self.manifest.compared_by
        return [
            one.summary.model
            for one in self.models
            if metric in self.majority
            and metric in one.summary.metrics
            and one.summary.metrics[metric].mean <= self.majority[metric]
        ]


@dataclass(frozen=True)
class Paid:
    """A comparison, and its interval in pixels of a drawing that all of them share."""

    comparison: ModelComparison
    low: float
    mean: float
    high: float


def render(
    report: FinetuningReport,
    manifests: Mapping[str, TaskManifest],
    results: Mapping[str, TrialResult],
) -> str:
    """Return the page as HTML; the same report gives the same page.

    :param manifests: by task.
    :param results: by trial.
    """
    sections = [
        TaskSection(
            manifest,
            [
                ModelOnTask(
                    summary,
                    results[summary.best_trial].scores.get(TaskSplit.TEST),
                    manifest.labels,
                )
                for summary in report.tasks
                if summary.task == name
            ],
        )
        for name, manifest in manifests.items()
    ]
    return _template().render(
        report=report,
        sections=[section for section in sections if section.models],
        paid=list(_paid(report.comparisons)),
        plot_width=_PLOT_WIDTH,
    )


def _paid(comparisons: Sequence[ModelComparison]) -> Iterator[Paid]:
    """Yield the comparisons with places; zero is in the middle."""
    farthest = max((abs(end) for one in comparisons for end in (one.low, one.high)), default=0.0)
    scale = _PLOT_WIDTH / 2 / (_ROOM * farthest or 1.0)
    for one in comparisons:
        low, mean, high = (
            _PLOT_WIDTH / 2 + scale * value for value in (one.low, one.difference, one.high)
        )
        yield Paid(one, low, mean, high)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": "{:.4f}".format,
        "source": _source,
        "in_training_text": _in_training_text,
    }
    return environment.get_template("page.html")


def _source(encoder: EncoderSource) -> str:
    return encoder.version_id or encoder.uri or "random weights"


def _in_training_text(comparison: ModelComparison) -> str:
    findings = comparison.training_text
    if findings is None or findings.partitions is None:
        return "not known"
    if findings.unknown and not findings.found:
        return (
            "partly not known" if len(findings.unknown) < len(findings.partitions) else "not known"
        )
    at_least = "at least " if findings.unknown else ""
    return f"{at_least}{findings.found} of {comparison.examples}"
