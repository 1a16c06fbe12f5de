"""Stored files of training, evaluation and promotion."""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.data import FileDigest
from pipeline_store.formats.finetuning import ModelComparison


def _perplexity(loss: float) -> float:
    """Return the exponential of a loss in nats; infinite for a model that is far off."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


class Rollback(BaseModel):
    """A return of training to an earlier checkpoint because its loss had left a sensible range."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    from_step: int = Field(description="end of the loop of steps whose loss was bad")
    to_step: int = Field(description="checkpoint that training went on from")
    reason: str


class HeldOutScore(BaseModel):
    """The score of a checkpoint on held-out rows of the partitions it is trained on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss: float = Field(description="mean masked-LM loss in nats, weighted by token")
    accuracy: float
    masked_tokens: int

    @property
    def perplexity(self) -> float:
        """Return the exponential of the loss."""
        return _perplexity(self.loss)

    @property
    def compared(self) -> float | None:
        """Return None: checkpoints are compared by the loss."""
        return None

    @property
    def scalars(self) -> dict[str, float]:
        """Return the values to plot, by name."""
        return {"loss": self.loss, "perplexity": self.perplexity, "accuracy": self.accuracy}

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of items that the scores are means over, by name."""
        return {"masked_tokens": self.masked_tokens}

    def __str__(self) -> str:
        return (
            f"held-out loss {self.loss:.4f}  perplexity {self.perplexity:.1f}  "
            f"accuracy {100 * self.accuracy:.1f}%"
        )


class ValidationScore(BaseModel):
    """The score of a fine-tuning checkpoint on the validation split of its task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss: float = Field(description="mean over examples, nats; of a regression squared error")
    metrics: dict[str, float]
    compared_by: str = Field(description="the one of metrics that checkpoints are compared by")
    examples: int

    @property
    def compared(self) -> float | None:
        """Return the metric that checkpoints are compared by; higher is better."""
        return self.metrics[self.compared_by]

    @property
    def scalars(self) -> dict[str, float]:
        """Return the values to plot, by name."""
        return {"loss": self.loss, **self.metrics}

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of items that the scores are means over, by name."""
        return {"examples": self.examples}

    def __str__(self) -> str:
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())
        return f"validation loss {self.loss:.4f}  {metrics}"


class BestCheckpoint(BaseModel):
    """The checkpoint with the best held-out score so far."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    loss: float
    compared: float | None = Field(
        default=None,
        description="the metric that checkpoints are compared by, higher is better; none: the loss",
    )
    evaluations_since: int = Field(description="checkpoints scored after it")


class CheckpointManifest(StoredFile):
    """``checkpoints/<step>.json``: the commit of a checkpoint. Only what it lists is trusted."""

    kind = "checkpoint"
    has_checksum = True

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
    rollbacks: list[Rollback] = Field(
        default=[], description="since step 0; the records of the steps gone back over are left out"
    )
    running_loss: float | None = Field(
        default=None, description="running mean of the loops' losses, what a spike is measured from"
    )
    held_out: HeldOutScore | ValidationScore | None = Field(
        default=None, description="none: rows_per_checkpoint is 0, or saved out of turn on SIGTERM"
    )
    best: BestCheckpoint | None = None


class NewHead(BaseModel):
    """How a new masked-LM head was trained, for a lineage whose initial weights had none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(description="in which it was trained alone, the encoder held still")
    loss: float | None = Field(
        default=None,
        description="mean masked-LM training loss of the last loop of these, nats per token; none: "
        "there were no such steps",
    )


class Heritage(BaseModel):
    """What a model keeps of its lineage's initial weights, besides what training changes.

    It has to be recorded: an imported pooler cannot be told from a random one by its numbers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pooler_from: str | None = Field(
        default=None, description="weights from elsewhere that its pooler was loaded from"
    )
    pooler_trained: bool = Field(
        default=False, description="whether next sentences have trained the pooler here"
    )
    sentence_transformers: dict[str, JsonValue] = Field(
        default={}, description="content of its small files beside those weights, by path"
    )
    new_head: NewHead | None = Field(
        default=None, description="none: its masked-LM head came with those weights"
    )

    @property
    def has_pooler(self) -> bool:
        """Return whether its pooler has trained rather than random weights."""
        return self.pooler_trained or self.pooler_from is not None


class TrainingInputs(StoredFile):
    """``inputs.json`` among a checkpoint's files: the inputs that the manifest's hashes cover.

    It shows what changed when a checkpoint is refused, and which architecture its weights need.
    """

    kind = "training-inputs"

    settings: dict[str, JsonValue] = Field(description="what the weights depend on, section.name")
    vocabulary_sha256: str
    records: dict[str, str] = Field(
        description="SHA-256 of the training records by shard key, in training order"
    )
    replay_records: dict[str, str] = Field(
        default={}, description="the same of the replayed partitions' shards"
    )
    extra_records: dict[str, str] = Field(
        default={}, description="the same as records, of the rows of the extra length"
    )
    extra_replay_records: dict[str, str] = Field(default={}, description="and of replayed ones")
    heritage: Heritage | None = Field(
        default=None, description="none: it was not recorded yet, or is of no interest"
    )

    @property
    def pools(self) -> dict[str, dict[str, str]]:
        """Return the records of every pool, by field name."""
        names = ("records", "replay_records", "extra_records", "extra_replay_records")
        return {name: getattr(self, name) for name in names}


class InitialWeights(StoredFile):
    """``initial_weights.json``: the initial weights of a training, variable by variable."""

    kind = "initial-weights"

    uri: str = Field(description="model version, training folder, or weights from elsewhere")
    loaded: list[str] = Field(description="variables that were set to weights from there")
    new: list[str] = Field(description="variables that began with random weights")
    dropped: list[str] = Field(description="of the source, not used; of some only how many")
    notes: list[str] = Field(description="hashes of the files, what became of the vocabulary, …")


class TrainingResult(StoredFile):
    """``result.json``: training is done, with this checkpoint as its result."""

    kind = "training-result"

    train_steps: int = Field(description="of the result's checkpoint")
    tokens: int = Field(description="real tokens seen until then")
    final_loss: float = Field(description="mean masked-LM training loss of the loop before it")
    next_sentence_loss: float | None = Field(
        default=None, description="the same of next-sentence prediction, nats per row; none: off"
    )
    next_sentence_accuracy: float | None = None
    checkpoint: str = Field(description="path of the checkpoint manifest in the model folder")
    weights_sha256: str
    seconds: float
    resumed_from: list[int] = Field(description="step of each checkpoint that was resumed from")
    rollbacks: list[Rollback] = Field(default=[], description="since step 0")
    held_out: HeldOutScore | ValidationScore | None = Field(
        default=None, description="of the result's checkpoint"
    )
    stopped_early: bool = Field(default=False, description="by training.early_stop_evaluations")
    steps_done: int | None = Field(
        default=None, description="of the whole training; none: not known, older than this field"
    )


class RetrievalScore(BaseModel):
    """How well a model retrieves a document's second half in a set by the first half's embedding.

    docs/operate/promotion.md defines the halves and how they are embedded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    document_ids: list[str] = Field(description="those with two halves, in the order of the ranks")
    ranks: list[float] = Field(
        description="of each second half among all by cosine; 1 is best, equal ones share places"
    )

    def recall(self, at: int) -> float | None:
        """Return the share of documents at the given rank or better; None: there are none."""
        if not self.ranks:
            return None
        return sum(rank <= at for rank in self.ranks) / len(self.ranks)

    @property
    def mrr(self) -> float | None:
        """Return the mean reciprocal rank; None: there are no documents."""
        if not self.ranks:
            return None
        return sum(1 / rank for rank in self.ranks) / len(self.ranks)


class RowScores(BaseModel):
    """Scores of one model on held-out documents, in rows of one length.

    They are sums by document, from which any mean can be computed later.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss_sums: list[float] = Field(description="masked-LM loss in nats, summed over masked tokens")
    correct_sums: list[float]
    reciprocal_rank_sums: list[float] = Field(
        description="1 / rank of the right token among all, summed over masked tokens"
    )
    token_counts: list[float] = Field(description="masked tokens of the document")

    @property
    def loss(self) -> float:
        """Return the token-weighted mean masked-LM loss, in nats."""
        return sum(self.loss_sums) / sum(self.token_counts)

    @property
    def accuracy(self) -> float:
        """Return the share of masked tokens whose most likely prediction is correct."""
        return sum(self.correct_sums) / sum(self.token_counts)

    @property
    def perplexity(self) -> float:
        """Return the exponential of the loss."""
        return _perplexity(self.loss)

    @property
    def mrr(self) -> float:
        """Return the mean reciprocal rank of the correct token over masked tokens."""
        return sum(self.reciprocal_rank_sums) / sum(self.token_counts)


class ExtraRowScores(RowScores):
    """Scores on the documents of a set in rows of ``masking.extra_max_seq_length``."""

    max_seq_length: int


class DocumentSetScore(RowScores):
    """Scores of one model on one set of held-out documents, in ``masking.max_seq_length`` rows."""

    set_name: str
    document_ids: list[str] = Field(description="16 hex digits each, in the same order as the sums")
    next_sentence_correct_sums: list[float] | None = Field(
        default=None, description="rows whose next-sentence prediction is right; none: not scored"
    )
    row_counts: list[float] | None = Field(
        default=None, description="rows of the document that have a next-sentence label"
    )
    retrieval: RetrievalScore | None = Field(
        default=None, description="none: not measured, older than this field"
    )
    units: list[int] | None = Field(
        default=None,
        exclude_if=lambda units: units is None,
        description="number of the file or group that each document was held out with; none: each "
        "was held out by itself, or this is not known of older partitions",
    )
    extra: ExtraRowScores | None = Field(
        default=None,
        exclude_if=lambda extra: extra is None,
        description="the same documents in longer rows, where the last steps train on these; "
        "none: they do not, or the partition has none",
    )

    @property
    def recall_at_1(self) -> float | None:
        """Return the share of documents whose second half is found first; None: not measured."""
        return None if self.retrieval is None else self.retrieval.recall(1)

    @property
    def next_sentence_accuracy(self) -> float | None:
        """Return the share of rows whose next-sentence prediction is correct; None: not scored."""
        if self.next_sentence_correct_sums is None or self.row_counts is None:
            return None
        return sum(self.next_sentence_correct_sums) / sum(self.row_counts)


class ModelScore(BaseModel):
    """Scores of one model on every set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="candidate, or baseline")
    model_uri: str
    files_sha256: str = Field(
        description="hash of the names and contents of the model's files, wherever they lie"
    )
    sets: list[DocumentSetScore]


class EvaluationReport(StoredFile):
    """``evaluations/<baseline|unigram>.json``: scores of all models on identical masks."""

    kind = "evaluation"
    has_checksum = True

    partition: str
    current_set: str = Field(description="name of the set with this run's own held-out documents")
    evaluated: dict[str, str] = Field(description="SHA-256 of the partition manifest, by set")
    models: list[ModelScore]
    unigram_losses: dict[str, float] = Field(
        description="by set: loss in nats of predicting by token frequency in the training records"
    )
    samples: dict[str, str] = Field(
        default={},
        description="by set: hash of its documents and masks, which the updates after this one "
        "keep; not there: they draw their own, as an import's are an excerpt, or older than this "
        "field",
    )
    scored_by: str = Field(
        default="", description="arithmetic of the scores; empty: older than this field"
    )


class BestScore(BaseModel):
    """The lowest loss of a lineage on one held-out set, and the version that has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version_id: str
    manifest_sha256: str = Field(description="of the partition's content, as in the evaluation")
    scores: DocumentSetScore


class BestRetrieval(BaseModel):
    """The highest recall@1 of a lineage on one held-out set, and the version that has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version_id: str
    manifest_sha256: str = Field(description="of the partition's content, as in the evaluation")
    retrieval: RetrievalScore


class BestProbe(BaseModel):
    """The best value of a lineage on one labeled task, and the version that has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version_id: str
    manifest_sha256: str = Field(description="of the TaskManifest, as in the probe report")
    mode: Literal["frozen", "full"]
    metric: str
    value: float = Field(description="mean over seeds")
    half_width: float = Field(
        description="half of the width of the intervals by which later versions differ, each from "
        "the one before, added in squares"
    )


class BestScores(StoredFile):
    """``best_scores.json`` of a version: the best scores of it and its ancestors on each set.

    Copied from version to version, so that it outlives ancestors that retention removes.
    """

    kind = "best-scores"

    sets: dict[str, BestScore] = Field(description="by set name")
    retrieval: dict[str, BestRetrieval] = Field(default={}, description="by set name")
    probes: dict[str, BestProbe] = Field(default={}, description="by task")
    left: list[str] = Field(
        default=[], description="sets that are not scored any more, to make room for others"
    )


class ForgettingScore(BaseModel):
    """A candidate compared with the best version of its lineage on one set, in nats per token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    set_name: str
    documents: int
    best_version: str
    best_loss: float
    candidate_loss: float
    forgotten: float = Field(description="candidate minus best; negative: it is the best now")
    low: float = Field(description="lower end of its bootstrap confidence interval")
    high: float


class RetrievalComparison(BaseModel):
    """Recall@1 of a candidate and the model in use, on the same documents of the run's own set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    documents: int
    candidate_recall: float
    reference_recall: float
    difference: float = Field(description="candidate minus reference")
    low: float = Field(description="lower end of its bootstrap confidence interval")
    high: float
    max_loss: float | None = Field(description="most that may be lost; none: only reported")


class TotalLoss(BaseModel):
    """A candidate compared with its lineage's best version, on retrieval in a set or on a task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="of the set, or of the task")
    metric: str = Field(description="recall@1, or the task's")
    count: int = Field(description="documents, or test examples")
    best_version: str
    best: float
    candidate: float
    difference: float = Field(description="candidate minus best; above 0: it is the best now")
    low: float = Field(description="lower end of its confidence interval")
    high: float
    max_loss: float | None = Field(description="most that may be lost in all; none: only reported")

    def is_too_much(self, fewest: int) -> bool:
        """Return whether the loss surely exceeds the limit.

        :param fewest: minimum number of documents or examples for the interval to be evidence.
        """
        return self.max_loss is not None and self.count >= fewest and self.high < -self.max_loss


class VerdictKind(StrEnum):
    """The promotion gate's decision; these strings are shown, stored and searched for."""

    PROMOTED = "promoted"
    WORSE = "rejected: worse"
    NOT_ENOUGH_EVIDENCE = "rejected: not enough evidence"
    FORGETTING = "rejected: forgetting"
    DOWNSTREAM = "rejected: downstream"
    RETRIEVAL = "rejected: retrieval"


class Verdict(StoredFile):
    """``verdicts/<baseline|unigram>.json``: the decision with the numbers it is based on."""

    kind = "verdict"
    has_checksum = True

    verdict: VerdictKind
    reason: str
    candidate_loss: float
    reference_loss: float = Field(description="the baseline's loss, or the unigram loss")
    reference: str = Field(description="baseline version, or unigram")
    documents: int
    improvement: float = Field(description="reference minus candidate, nats per token")
    improvement_low: float = Field(description="lower end of its bootstrap confidence interval")
    improvement_high: float
    probes: list[ModelComparison] = Field(
        default=[], description="candidate and baseline on labelled tasks; empty: none were asked"
    )
    forgetting: list[ForgettingScore] = Field(
        default=[],
        description="by earlier set, against the lineage's best version on it; empty: no such set",
    )
    retrieval: RetrievalComparison | None = Field(
        default=None, description="none: no model in use, or not measured"
    )
    retrieval_totals: list[TotalLoss] = Field(
        default=[], description="by earlier set, against the lineage's best version on it"
    )
    probe_totals: list[TotalLoss] = Field(
        default=[], description="by labelled task, against the lineage's best version on it"
    )


class ExportCheck(BaseModel):
    """A comparison of an exported format, loaded again, with its source model; all in float32."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int = Field(description="held-out rows that both were given")
    max_hidden_state_difference: float
    max_logit_difference: float
    masks: int = Field(
        description="[MASK] in them whose five most likely words are the same; of T5, whose logits "
        "are equal, tokens of their targets"
    )


class ClassifierCheck(BaseModel):
    """A comparison of an exported fine-tuned model, loaded again, with its source, in float32."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    examples: int = Field(description="of the task, that both were given")
    same_tokens: int = Field(description="of these: texts that the format cuts as the data job did")
    max_logit_difference: float
    max_output_difference: float | None = Field(
        description="of probabilities or values, for texts; none: the format ends with logits"
    )


class TextCheck(BaseModel):
    """A comparison of an exported fine-tuned T5, loaded again, with its source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: int = Field(description="arrays that are equal, bit for bit; 0: not compared so")
    texts: int = Field(description="for which both write the same; 0: not compared so")


class ExportedFormat(BaseModel):
    """One format that a model was exported to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str = Field(description="relative to exports.json")
    files: list[FileDigest] = Field(description="paths relative to that folder")
    check: ExportCheck | ClassifierCheck | TextCheck


class ModelExports(StoredFile):
    """``exports.json``: the commit of a model in other formats. Only what it lists counts."""

    kind = "model-exports"
    has_checksum = True

    files_sha256: str = Field(
        description="hash of the names and contents of the model's files, wherever they lie"
    )
    formats: dict[str, ExportedFormat] = Field(description="by name, the name of promotion's list")
    left_out: dict[str, str] = Field(
        description="formats that were asked for and cannot hold this model, with the reason"
    )
    created: datetime


class ModelVersion(StoredFile):
    """``model.json``: an immutable version. Its existence is the commit of the version."""

    kind = "model-version"
    has_checksum = True

    version_id: str
    lineage_id: str
    parent: str | None = Field(description="version that training started from")
    run_key: str
    partitions_seen: list[str]
    manifests: dict[str, FileDigest] = Field(
        default={},
        description="PartitionManifest by partition seen, paths relative to the lineage's folder; "
        "of one that is not there the version has a copy, as all have that are older than this "
        "field",
    )
    files: list[FileDigest] = Field(description="everything else in the version's folder")
    checkpoint_prefix: str = Field(description="relative to the version's folder")
    vocabulary_sha256: str
    train_steps_total: int
    metrics: dict[str, float]
    created: datetime


class EarlierModel(BaseModel):
    """A version that was in use before, and since when."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version_id: str
    since: datetime = Field(description="by the clock of the machine that changed the pointer")
    run_id: str | None = Field(
        default=None, description="run of model_rollback by which a person asked for it"
    )


class ProductionPointer(StoredFile):
    """``production.json``: the version in use. Changed only by compare-and-set."""

    kind = "production-pointer"
    has_checksum = True

    sequence: int = Field(description="grows by one with each change")
    version_id: str
    changed: datetime
    reason: str
    rolled_back: list[str] = Field(
        default=[],
        description="versions a person took out of use; no run puts them back by itself",
    )
    replaced: str | None = Field(default=None, description="version that was in use before")
    request: str | None = Field(
        default=None,
        description="key of the DAG run by which a person asked for it, so that its task, tried "
        "again, knows that it has been done",
    )
    run_id: str | None = Field(
        default=None,
        description="id of that DAG run, by which Airflow knows it",
    )
    changed_by: str | None = Field(
        default=None,
        description="the person who rolled back; none: a run promoted, or it is not known",
    )
    earlier: list[EarlierModel] = Field(
        default=[],
        description="versions in use before, the latest first; those of the last changes",
    )

    @property
    def stays(self) -> list[EarlierModel]:
        """Return the version in use and the earlier ones, the latest first."""
        now = EarlierModel(version_id=self.version_id, since=self.changed, run_id=self.run_id)
        return [now, *self.earlier]
