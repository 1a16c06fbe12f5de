"""Settings of a labeled task: where its examples are, what they mean, and tolerated defects.

A task is described once, in ``tasks/<name>/task.toml`` of the store. Fine-tuning runs and the
probes of the promotion gate refer to it by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from pipeline_config.sections import Fraction, Mark, Section

TaskKind = Literal["classification", "multi_label", "regression"]
MetricName = Literal["accuracy", "macro_f1", "micro_f1", "matthews", "pearson", "spearman"]

METRICS: dict[TaskKind, tuple[MetricName, ...]] = {
    "classification": ("accuracy", "macro_f1", "micro_f1", "matthews"),
    "multi_label": ("accuracy", "macro_f1", "micro_f1"),
    "regression": ("pearson", "spearman"),
}
"""Metrics of each kind of task; models are compared by the first one, unless the task names
another. With several labels, ``accuracy`` requires all of them to be correct."""

MIN_COMPARED_EXAMPLES = 2
"""Minimum number of test examples to compare two models."""

MIN_JUDGED_EXAMPLES = 20
"""Minimum number of test examples for a verdict from a comparison."""

ColumnName = Annotated[str, Field(min_length=1, max_length=200)]


class TaskConfig(Section):
    """A labeled task."""

    kind: TaskKind = Field(
        "classification",
        description="classification: one of two or more labels. multi_label: any number of them. "
        "regression: a number.",
    )
    train: Annotated[str, Mark.TEXT_PATH] = Field(
        "train.*",
        min_length=1,
        description="Files to learn from: patterns with * and ?, separated by commas, relative to "
        "the task's folder, or absolute or gs:// below REPRETRAIN_INPUT_ROOTS.",
    )
    validation: Annotated[str | None, Mark.TEXT_PATH] = Field(
        None,
        description="Files to choose by: the best checkpoint, the learning rate. Empty: "
        "validation_fraction of the training examples.",
    )
    test: Annotated[str | None, Mark.TEXT_PATH] = Field(
        None, description="Files to judge by. Empty: test_fraction of the training examples."
    )
    predict: Annotated[str | None, Mark.TEXT_PATH] = Field(
        None, description="Files without labels, for finetuning.mode predict. Empty: none."
    )
    validation_fraction: Fraction = Field(
        0.1, description="Share of the training examples, without validation files."
    )
    test_fraction: Fraction = Field(
        0.1, description="Share of the training examples, without test files."
    )
    input_format: Literal["auto", "tsv", "csv", "jsonl", "parquet"] = Field(
        "auto", description="auto: by the end of the name, also before .gz, .bz2, .zst, .xz."
    )
    columns: list[ColumnName] = Field(
        [],
        max_length=1000,
        description="Names of the columns of tsv and csv files that have no header line.",
    )
    quotechar: Literal['"', ""] = Field(
        '"',
        description="What fields of tsv and csv files are quoted by. Empty: nothing, a quote is "
        "text, as in GLUE's files.",
    )
    unicode_normalization: Literal["NFC", "NFKC", "none"] = Field(
        "NFC",
        description="Of the texts, before they become tokens. As corpus.unicode_normalization of "
        "the model's own text.",
    )
    text_column: ColumnName = Field("text", description="Column of the text, or the first of two.")
    text_pair_column: ColumnName | None = Field(
        None, description="Column of the second text. Empty: single texts."
    )
    label_column: ColumnName = Field("label", description="Column of the label.")
    label_separator: str = Field(
        ",", min_length=1, max_length=5, description="multi_label: what stands between labels."
    )
    labels: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        [],
        max_length=10_000,
        description="All labels, in order of their ids. Empty: those of the training examples, "
        "sorted.",
    )
    metric: Literal["auto", MetricName] = Field(
        "auto", description="What models are compared by. auto: the first of the kind."
    )
    max_bad_fraction: Fraction = Field(
        0.0,
        description="Share of a split's examples that may be unusable before the task is refused. "
        "They go to a dead-letter file with line and reason. Examples without text go there too, "
        "but do not count.",
    )
    max_leak_fraction: Fraction = Field(
        0.0,
        description="Share of a validation or test split's examples whose text may also be in "
        "another split. Allowed ones are left out of the training split.",
    )
    max_label_in_text: Fraction = Field(
        0.95,
        description="How well the labels may be told by which of them stands in the text, from 0 "
        "to 1: mean share by label; of multi_label the F1, of regression the share whose first or "
        "last number is the label. Above it the text gives the answer away. 1: not checked.",
    )
    max_truncated_fraction: Fraction = Field(
        0.5, description="Share of a split's examples that may be cut to max_seq_length."
    )
    min_examples_per_label: int = Field(
        2, ge=1, le=1_000_000, description="Fewest training examples of each label."
    )

    @property
    def compared_by(self) -> MetricName:
        """Return the metric that models are compared by."""
        return METRICS[self.kind][0] if self.metric == "auto" else self.metric

    @property
    def sha256(self) -> str:
        """Return the hash of all settings."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


ONE_LABEL_ALONE = (
    "there is one label only, which is a choice of two: set kind to 'classification' and write one "
    "of two labels for every example, such as 'spam' and 'not spam'"
)
"""Error text: why a multi_label task needs more than one label, and what to write instead."""


def task_violations(task: TaskConfig) -> Iterator[str]:
    """Yield a line for every violated rule that combines several of a task's settings.

    No free-text value is quoted: see :mod:`pipeline_config.unquoted`.
    """
    if task.metric != "auto" and task.metric not in METRICS[task.kind]:
        yield (
            f"metric: {task.metric!r} is none of a {task.kind} task; use one of "
            f"{', '.join(METRICS[task.kind])}."
        )
    yield from _wrong_labels(task)
    fractions = (0.0 if task.validation else task.validation_fraction) + (
        0.0 if task.test else task.test_fraction
    )
    if fractions >= 1.0:
        yield (
            f"validation_fraction, test_fraction: together {fractions:g}, which leaves nothing to "
            "learn from; make them smaller, or name files."
        )
    settings = ("text_column", "text_pair_column", "label_column")
    named = {name: column for name in settings if (column := getattr(task, name)) is not None}
    if len(set(named.values())) < len(named):
        yield f"{', '.join(named)}: they have to name different columns."
    missing = [name for name, column in named.items() if column not in task.columns]
    if task.columns and missing:
        yield f"columns: of its {len(task.columns)} none is what {', '.join(missing)} names."


def _wrong_labels(task: TaskConfig) -> Iterator[str]:
    labels = task.labels
    if task.kind == "regression" and labels:
        yield "labels: a regression task has numbers and no labels; leave it empty."
    if again := [n for n, label in enumerate(labels, 1) if label in labels[: n - 1]]:
        yield f"labels: given more than once, the first again as number {again[0]} of the list."
    if task.kind == "classification" and len(labels) == 1:
        yield "labels: one alone leaves nothing to decide; give at least two."
    if task.kind != "multi_label":
        return
    if len(labels) == 1:
        yield f"labels: {ONE_LABEL_ALONE}."
    if cut := [n for n, label in enumerate(labels, 1) if task.label_separator in label]:
        yield f"labels: number {cut[0]} of the list contains the label_separator."
