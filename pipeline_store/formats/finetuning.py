"""Stored files of fine-tuning: prepared tasks, trials, and their results."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pipeline_store.formats.base import FormatError, StoredFile
from pipeline_store.formats.data import FileDigest


class TaskSplit(StrEnum):
    """The splits of a task's examples."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    PREDICT = "predict"


class TaskInput(BaseModel):
    """An input file of a task, with its size and hash when it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str
    sha256: str
    bytes: int


LabelKind = Literal["classification", "multi_label", "regression"]


class TaskRecords(BaseModel):
    """The examples of one split: a TFRecord file, and where their texts are, for predictions.

    The offset index is like that of :class:`pipeline_store.formats.RecordFile`. Records are in
    order of ``example_id``, which counts from 0. For text-to-text tasks the file has JSON lines of
    ``task``, ``text`` and ``target``, and labels are named ``<task>.<label>``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: FileDigest
    index: FileDigest
    sources: FileDigest = Field(
        description="where each record comes from: flat little-endian int64 [records, 2], the "
        "number of its file in TaskManifest.files and its line there (of Parquet the row), from 1"
    )
    records: int
    labels: dict[str, int] = Field(description="examples by label; of a regression empty")
    truncated: int = Field(
        description="examples cut to max_seq_length; from text to text, to either length"
    )
    tokens: int = Field(description="real tokens, padding excluded")


class TaskManifest(StoredFile):
    """``tasks/<name>/prepared/<key>/manifest.json``: a task as records; commits the preparation."""

    kind = "task-manifest"
    has_checksum = True

    name: str
    key: str = Field(description="hash of inputs, settings, vocabulary and max_seq_length")
    task: dict[str, JsonValue] = Field(description="the TaskConfig, or the TextMixture")
    task_kind: LabelKind | Literal["text_to_text"]
    compared_by: str = Field(description="metric that models are compared by")
    labels: list[str] = Field(description="in order of their ids; of a regression empty")
    vocabulary_sha256: str
    max_seq_length: int = Field(description="from text to text, of the texts")
    inputs: dict[TaskSplit, list[TaskInput]]
    splits: dict[TaskSplit, TaskRecords]
    dropped: dict[str, int] = Field(description="examples not used, by reason")
    dead_letter: FileDigest | None
    warnings: list[str] = Field(description="what people should know: balance, leaks, truncation")

    @property
    def label_kind(self) -> LabelKind:
        """Return the kind of a classifier's labels.

        :raises FormatError: it is a text-to-text task.
        """
        if self.task_kind == "text_to_text":
            raise FormatError(
                f"Task {self.name!r} is from text to text, which a T5 learns and no classifier. "
                "Name a task that has a task.toml, prepared as such."
            )
        return self.task_kind

    @property
    def files(self) -> list[str]:
        """Return the URIs of all input files, split by split."""
        return [found.uri for split in TaskSplit for found in self.inputs.get(split, [])]

    @property
    def content_sha256(self) -> str:
        """Return the SHA-256 of the content, which is the same for all copies of a manifest.

        It leaves out the record's own checksum, which manifests of earlier releases do not have.
        """
        return hashlib.sha256(self.content_bytes()).hexdigest()


class TaskOverlap(StoredFile):
    """``overlaps/<lineage_id>/<partition>/<manifest_id>.json`` of a preparation.

    Names the test examples whose text is a document on the training side of one manifest. Neither
    input ever changes, so the search is done once.
    """

    kind = "task-overlap"

    task: str
    lineage_id: str
    partition: str
    manifest_id: str
    examples: int = Field(description="of the test split")
    exact: list[int] | None = Field(
        description="example_id of those whose text is a document; none: the manifest has no "
        "index of its documents"
    )
    near: list[int] | None = Field(
        description="of those that are only similar to a document; none: the index has no MinHash"
    )
    near_threshold: float = Field(description="share of five-word shingles that similar texts have")


class Trial(BaseModel):
    """One training of a fine-tuning run: a model, a task, a learning rate and a seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trial_id: str = Field(description="folder name: <task>.<model>.<rate>.<seed>")
    task: str
    model: str = Field(description="key of FinetuningPlan.models")
    learning_rate: float
    random_seed: int


class EncoderSource(BaseModel):
    """The source of an encoder's weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str | None = Field(description="version folder or imported weights; none: random weights")
    version_id: str | None = Field(description="none: it is no version of the lineage")
    files_sha256: str | None = Field(
        default=None, description="of a model of ours, as :class:`ModelScore` has it"
    )


class FinetuningPlan(StoredFile):
    """``finetuning_plan.json``: all trials of a run. Decided once; a repeated task finds it."""

    kind = "finetuning-plan"
    has_checksum = True

    lineage_id: str
    models: dict[str, EncoderSource] = Field(
        description="model, and of those compared: previous, start"
    )
    manifests: dict[str, str] = Field(description="TaskManifest URI by task")
    trials: list[Trial] = Field(description="in the order in which they are trained")
    created: datetime

    def shares(self, tpus: int) -> list[list[Trial]]:
        """Return the trials of each TPU, assigned round-robin; no TPU gets an empty share.

        :param tpus: the maximum number of TPUs.
        """
        count = min(tpus, len(self.trials))
        return [self.trials[number::count] for number in range(count)]


class MetricInterval(BaseModel):
    """A metric's interval, for examples like those that it was measured on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: float
    high: float


class TrialScores(BaseModel):
    """Scores of a fine-tuned model on one split; text-to-text metrics are ``<task>.<metric>``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    examples: int
    loss: float
    metrics: dict[str, float]
    intervals: dict[str, MetricInterval] = Field(
        default={},
        exclude_if=lambda found: not found,
        description="from text to text: 2.5 and 97.5 % quantiles over resamples of the examples",
    )
    per_label: dict[str, dict[str, float]] = Field(
        default={}, description="precision, recall, f1, examples by label"
    )
    confusion: list[list[int]] = Field(
        default=[], description="classification: rows are the right labels, columns the predicted"
    )
    predictions: FileDigest = Field(
        description="predictions-<split>.npz beside result.json: `labels` [N] or [N, L] and "
        "`outputs` [N, L] (logits; of a regression [N, 1]), in order of example_id. From text to "
        "text: JSON lines of task, text, target, place and output"
    )


class TrialResult(StoredFile):
    """``trials/<trial_id>/result.json``: a trial is done. Its existence is the commit."""

    kind = "trial-result"

    trial: Trial
    task_manifest_sha256: str
    encoder: EncoderSource
    settings: dict[str, JsonValue] = Field(description="the RecipeConfig")
    train_examples: int
    train_steps: int = Field(description="of the chosen checkpoint")
    train_steps_total: int = Field(description="that were trained; fewer than planned: early stop")
    train_loss: float
    weights_sha256: str
    resumed_from: list[int]
    seconds: float
    examples_per_second: float
    scores: dict[TaskSplit, TrialScores]


class MetricSummary(BaseModel):
    """A metric over seeds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: float
    deviation: float = Field(description="sample standard deviation over seeds; of one seed 0")
    values: list[float] = Field(description="by seed, in the order of the seeds")

    @property
    def in_words(self) -> str:
        """The mean, with the standard deviation if there is more than one seed."""
        spread = f" ± {self.deviation:.4f}" if len(self.values) > 1 else ""
        return f"{self.mean:.4f}{spread}"


class TaskSummary(BaseModel):
    """One model on one task, over all seeds, at the learning rate that validation chose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    model: str
    learning_rate: float
    random_seeds: list[int]
    best_trial: str = Field(description="trial whose validation score is the best")
    metrics: dict[str, MetricSummary] = Field(description="on the test split")
    validation: dict[str, MetricSummary]
    majority: dict[str, float] = Field(
        description="the metrics of always predicting the most frequent training label (of a "
        "regression the mean), on the test split"
    )


class PaidVerdict(StrEnum):
    """Whether re-pretraining helped on a task; these strings are shown and stored."""

    HELPED = "helped"
    NO_EVIDENCE = "no evidence"
    HURT = "hurt"


class CleanComparison(BaseModel):
    """A comparison on the test examples that were not found in the training text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model_mean: float
    reference_mean: float
    difference: float
    low: float
    high: float
    verdict: PaidVerdict


class TrainingTextFindings(BaseModel):
    """Test examples whose texts occur in the training text of the compared models."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exact: int = Field(description="test examples whose text is a training document")
    near: int = Field(description="further ones, similar to a training document")
    partitions: list[str] | None = Field(
        description="that the models have seen; none: it is not recorded what they have seen"
    )
    unknown: list[str] = Field(
        description="those of the partitions that could not be searched, as they have no "
        "signatures or came later than the task was prepared"
    )
    near_unknown: list[str] = Field(description="those that were searched for equal texts only")
    verdict: PaidVerdict = Field(description="on all test examples")
    clean: CleanComparison | None = Field(
        description="without the examples found; none: none were, or too few others are left"
    )

    @property
    def found(self) -> int:
        """Return the number of test examples found in the training text."""
        return self.exact + self.near


class ModelComparison(BaseModel):
    """The fine-tuned model compared with another one on the same test examples and seeds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    reference: str = Field(description="previous, start or baseline")
    metric: str
    examples: int
    seeds: int
    model_mean: float
    reference_mean: float
    difference: float = Field(description="model minus reference")
    low: float = Field(
        description="lower end of the paired bootstrap interval over examples and seeds"
    )
    high: float
    confidence: float
    verdict: PaidVerdict
    sentence: str
    training_text: TrainingTextFindings | None = Field(
        default=None,
        exclude_if=lambda found: found is None,
        description="none: it was not looked for, as before there was this key",
    )


class FinetuningReport(StoredFile):
    """``training_summary.json``: the results of a fine-tuning run. A page is made from it."""

    kind = "finetuning-report"

    run_key: str
    models: dict[str, EncoderSource]
    tasks: list[TaskSummary]
    comparisons: list[ModelComparison]
    created: datetime


class ProbeReport(StoredFile):
    """``probes/<baseline|none>.json``: a candidate and the model in use on labeled tasks.

    Part of the promotion gate.
    """

    kind = "probe-report"

    candidate_uri: str
    candidate_sha256: str
    baseline_version: str | None
    mode: Literal["frozen", "full"]
    manifests: dict[str, str] = Field(description="SHA-256 of the TaskManifest, by task")
    tasks: list[TaskSummary]
    comparisons: list[ModelComparison]
    created: datetime
