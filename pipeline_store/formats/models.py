"""Stored files of training, evaluation and promotion."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.data import FileDigest


class CheckpointManifest(StoredFile):
    """``checkpoints/<step>.json``: the commit of a checkpoint. Only what it lists is trusted."""

    kind = "checkpoint"

    step: int
    holder_token: str
    prefix: str = Field(description="tf.train.Checkpoint prefix, relative to the model folder")
    files: list[FileDigest] = Field(description="paths relative to the model folder")
    config_sha256: str
    data_sha256: str = Field(description="fingerprint of the ordered training records")
    random_seed: int
    created: datetime
    loss: float = Field(
        description="mean masked-LM training loss of the loop before it, nats per token"
    )
    next_sentence_loss: float | None = Field(
        default=None, description="the same of next-sentence prediction, nats per row; none: off"
    )
    next_sentence_accuracy: float | None = None
    tokens: int = Field(description="real tokens seen since step 0")
    seconds: float = Field(description="spent training since step 0, in whichever process")
    resumed_from: list[int] = Field(description="step of each checkpoint that was resumed from")


class TrainingInputs(StoredFile):
    """``inputs.json`` among a checkpoint's files: what the hashes in its manifest stand for.

    It says what changed when a checkpoint is refused, and which architecture its weights need.
    """

    kind = "training-inputs"

    settings: dict[str, JsonValue] = Field(description="what the weights depend on, section.name")
    vocabulary_sha256: str
    records: dict[str, str] = Field(
        description="SHA-256 of the training records by shard key, in training order"
    )


class TrainingResult(StoredFile):
    """``result.json``: training reached train_steps."""

    kind = "training-result"

    train_steps: int
    tokens: int = Field(description="real tokens seen over all steps")
    final_loss: float = Field(description="mean masked-LM training loss of the last loop of steps")
    next_sentence_loss: float | None = Field(
        default=None, description="the same of next-sentence prediction, nats per row; none: off"
    )
    next_sentence_accuracy: float | None = None
    checkpoint: str = Field(description="path of the checkpoint manifest in the model folder")
    weights_sha256: str
    seconds: float
    resumed_from: list[int] = Field(description="step of each checkpoint that was resumed from")


class DocumentSetScore(BaseModel):
    """One model on one set of held-out documents. Sums, so that any mean can be formed later."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    set_name: str
    document_ids: list[str] = Field(description="16 hex digits each, in the same order as the sums")
    loss_sums: list[float] = Field(description="masked-LM loss in nats, summed over masked tokens")
    correct_sums: list[float]
    token_counts: list[float] = Field(description="masked tokens of the document")
    next_sentence_correct_sums: list[float] | None = Field(
        default=None, description="rows whose next-sentence prediction is right; none: not scored"
    )
    row_counts: list[float] | None = Field(
        default=None, description="rows of the document that have a next-sentence label"
    )

    @property
    def loss(self) -> float:
        """Return the token-weighted mean masked-LM loss, in nats."""
        return sum(self.loss_sums) / sum(self.token_counts)

    @property
    def accuracy(self) -> float:
        """Return the share of masked tokens whose most likely prediction is right."""
        return sum(self.correct_sums) / sum(self.token_counts)

    @property
    def next_sentence_accuracy(self) -> float | None:
        """Return the share of rows whose next-sentence prediction is right; None: not scored."""
        if self.next_sentence_correct_sums is None or self.row_counts is None:
            return None
        return sum(self.next_sentence_correct_sums) / sum(self.row_counts)


class ModelScore(BaseModel):
    """One model on every set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="candidate, or baseline")
    model_uri: str
    files_sha256: str = Field(
        description="hash of the names and contents of the model's files, wherever they lie"
    )
    sets: list[DocumentSetScore]


class EvaluationReport(StoredFile):
    """``evaluations/<baseline|unigram>.json``: all models on identical masks."""

    kind = "evaluation"

    partition: str
    current_set: str = Field(description="name of the set with this run's own held-out documents")
    evaluated: dict[str, str] = Field(description="SHA-256 of the partition manifest, by set")
    models: list[ModelScore]
    unigram_losses: dict[str, float] = Field(
        description="by set: loss in nats of predicting by token frequency in the training records"
    )


class VerdictKind(StrEnum):
    """What the gate says; these strings are shown, stored and searched for."""

    PROMOTED = "promoted"
    WORSE = "rejected: worse"
    NOT_ENOUGH_EVIDENCE = "rejected: not enough evidence"
    FORGETTING = "rejected: forgetting"


class Verdict(StoredFile):
    """``verdicts/<baseline|unigram>.json``: the decision with the numbers it rests on."""

    kind = "verdict"

    verdict: VerdictKind
    reason: str
    candidate_loss: float
    reference_loss: float = Field(description="the baseline's loss, or the unigram loss")
    reference: str = Field(description="baseline version, or unigram")
    documents: int
    improvement: float = Field(description="reference minus candidate, nats per token")
    improvement_low: float = Field(description="lower end of its bootstrap confidence interval")
    improvement_high: float


class ModelVersion(StoredFile):
    """``model.json``: an immutable version. Its existence is the commit of the version."""

    kind = "model-version"

    version_id: str
    lineage_id: str
    parent: str | None = Field(description="version that training started from")
    run_key: str
    partitions_seen: list[str]
    files: list[FileDigest] = Field(description="everything else in the version's folder")
    checkpoint_prefix: str = Field(description="relative to the version's folder")
    vocabulary_sha256: str
    train_steps_total: int
    metrics: dict[str, float]
    created: datetime


class ProductionPointer(StoredFile):
    """``production.json``: the version in use. Changed only by compare-and-set."""

    kind = "production-pointer"

    sequence: int = Field(description="grows by one with each change")
    version_id: str
    changed: datetime
    reason: str
    rolled_back: list[str] = Field(
        default=[],
        description="versions a person took out of use; no run puts them back by itself",
    )
