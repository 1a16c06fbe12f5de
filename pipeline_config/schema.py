"""Every setting of a run, with its meaning, limits and default.

The trigger form, the Beam job, the trainer, the command lines, the table in
``docs/reference/config.md`` and the ``config.json`` beside each model are all made from these
classes. Rules that join several settings are in :mod:`pipeline_config.rules`.
"""

from __future__ import annotations

import hashlib
import json
from enum import Enum
from typing import Annotated, Any, Literal, Protocol

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from pipeline_config import patterns
from pipeline_config.row_shapes import SpanCounts, span_counts

FORMAT_VERSION = 1
PARTITION_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"
"""A partition is a folder name and part of keys."""


class Mark(Enum):
    """What else is said of a setting, in the metadata of its field."""

    BY_INSTALLATION = "only the installation's preset sets it; a request that changes it is refused"
    TEXT_PATH = "path or patterns of text that a request may only choose below the allowed roots"
    MODEL_PATH = "as TEXT_PATH, or below a published version of any lineage"
    TASKS = (
        "names of labelled tasks; what their descriptions name is held to the roots of TEXT_PATH"
    )


Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
TaskName = Annotated[str, Field(pattern=patterns.NAME)]
_LARGEST_STEP = 100_000_000
_STEP_NUMBER = TypeAdapter(Annotated[int, Field(ge=1, le=_LARGEST_STEP)])


def _auto_or_number(value: object) -> object:
    """Refuse with one message: pydantic has one for each part of a union."""
    if value == "auto":
        return value
    try:
        return _STEP_NUMBER.validate_python(value)
    except ValidationError:
        raise PydanticCustomError(
            "step_count", f"Input should be auto, or a whole number from 1 to {_LARGEST_STEP:,}"
        ) from None


StepCount = Annotated[
    int | Literal["auto"],
    BeforeValidator(_auto_or_number),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": patterns.STEPS},
                {"type": "integer", "minimum": 1, "maximum": _LARGEST_STEP},
            ]
        }
    ),
]
"""Steps of a run. A form has a text field for them, and hands on what is typed as text."""
UserId = Annotated[str, Field(min_length=1, max_length=200)]
_EXTRA_ROWS = {"extra_max_seq_length", "extra_max_predictions_per_seq"}


class Section(BaseModel):
    """A group of settings. Unknown names are errors, not comments."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunConfig(Section):
    """What this run does with the settings below."""

    dry_run: bool = Field(
        False,
        description="Check everything, write the estimate of time and cost, and end without "
        "spending or changing anything.",
    )


class CorpusConfig(Section):
    """Which text this run learns from."""

    partition: str | None = Field(
        None,
        max_length=63,
        description="Part of the corpus to train on, such as 2026-01-31. Empty: the run's own "
        "partition key (by schedule, the day before), else the newest part that has files.",
    )
    input_pattern: Annotated[str, Mark.TEXT_PATH] = Field(
        "corpus/{partition}/*",
        min_length=1,
        description="Input files: patterns with * and ?, separated by commas; {partition} is "
        "filled in. A relative pattern lies below the store. An absolute one, or gs://, has to lie "
        "below REPRETRAIN_INPUT_ROOTS or what the preset names.",
    )
    input_format: Literal[
        "auto", "text", "sentences", "jsonl", "csv", "tsv", "parquet", "tfrecord"
    ] = Field(
        "auto",
        description="text: running text, a blank line ends a document. sentences: one sentence a "
        "line, a blank line ends a document (BERT's format). jsonl: one JSON object a line. csv, "
        "tsv: a header line, then one document a record. parquet: one document a row. tfrecord: "
        "rows of tokens of vocabulary.uri, as BERT's own scripts write them. auto: by the end of "
        "the name (.jsonl, .csv, .tsv, .parquet, .tfrecord, also before .gz, .bz2, .zst, .xz), "
        "else text.",
    )
    document: Literal["auto", "file", "blank_line", "line", "record"] = Field(
        "auto",
        description="What one document is; frozen for a lineage. file: a whole text file, as when "
        "blank lines end its paragraphs. blank_line: the text between blank lines. line: a line. "
        "record: an object or row of the other formats. auto: blank_line for text and sentences, "
        "else record.",
    )
    text_field: str = Field(
        "text", min_length=1, description="Field of a jsonl object, or column of a table, to read."
    )
    unicode_normalization: Literal["NFC", "NFKC", "none"] = Field(
        "NFC",
        description="NFC joins letters and accents. NFKC also replaces compatibility characters, "
        "such as ligatures and full-width letters.",
    )
    language: str = Field(
        "en",
        pattern=patterns.LANGUAGE,
        description="ISO 639 code; where sentences end depends on it (only for segment_pair).",
    )
    keep_languages: list[Annotated[str, Field(pattern=patterns.LANGUAGE)]] = Field(
        [],
        max_length=100,
        description="Keep only documents recognized as one of these languages, such as en; the "
        "others are counted as dropped. Empty: keep all.",
    )
    min_document_characters: int = Field(
        0, ge=0, le=1_000_000, description="Shorter documents are dropped and counted; 0: none is."
    )
    duplicates: Literal["keep", "exact", "near"] = Field(
        "exact",
        description="exact: of equal documents, in this and all earlier partitions, only one is "
        "used. near: of similar ones too (MinHash). keep: every document is used.",
    )
    near_duplicate_threshold: float = Field(
        0.8,
        ge=0.5,
        le=1.0,
        description="Share of five-word shingles in common (Jaccard) from which documents are "
        "similar, and so on one side of the split.",
    )
    validation_fraction: float = Field(
        0.1,
        gt=0.0,
        lt=1.0,
        description="Share of documents held out for evaluation. A document's side follows from "
        "its content, so it keeps it for ever, and a similar one takes it.",
    )
    split_by: Literal["auto", "document", "group", "file"] = Field(
        "auto",
        description="What is held out as a whole; frozen for a lineage. group: records of one "
        "value of corpus.group_field. file: a file. auto: as the lineage began; a new one by "
        "group if there is a group_field, else by file if 20 text files or more have several "
        "documents each.",
    )
    group_field: str | None = Field(
        None,
        max_length=200,
        description="Field of a jsonl object, or column of a table, that says which records belong "
        "together, such as a thread or an author; they are held out together.",
    )
    max_bad_fraction: Fraction = Field(
        0.01,
        description="Share of records that may be unreadable before the data job fails. "
        "Unreadable records are kept in a dead-letter file with the reason.",
    )

    @property
    def documents_of_text(self) -> Literal["file", "blank_line", "line"]:
        """What one document of a text file is."""
        return self.document if self.document in {"file", "line"} else "blank_line"

    def hashed(self, without: set[str]) -> dict[str, Any]:
        """Return the settings for a hash, but for some.

        Settings that were added after text had been prepared are only among them where they change
        something, so that this text keeps its keys.
        """
        added = {"document"} if self.documents_of_text == "blank_line" else set()
        if self.group_field is None:
            added.add("group_field")
        return self.model_dump(mode="json", exclude=without | added)


class VocabularyConfig(Section):
    """The vocabulary; frozen for a lineage once it exists."""

    kind: Literal["wordpiece", "sentencepiece", "bpe", "t5"] = Field(
        "wordpiece",
        description="wordpiece as in BERT; sentencepiece (unigram) also suits languages without "
        "spaces between words; bpe (byte-level) as in RoBERTa, and only for it; t5 "
        "(SentencePiece, with sentinels behind its pieces) as in T5, and only for it.",
    )
    uri: Annotated[str | None, Mark.MODEL_PATH] = Field(
        None,
        description="Vocabulary to use: a vocab.txt, one token a line; a SentencePiece .model; or, "
        "of byte-level BPE, a tokenizer.json, or a vocab.json with merges.txt beside it. Empty: "
        "the lineage's own, trained on its first partition.",
    )
    domain_words: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Most frequent words of the first partition that the vocabulary of "
        "vocabulary.uri splits, to put into its [unused] places.",
    )
    size: int = Field(
        30522, ge=300, le=250_000, description="Largest size of a vocabulary that is trained."
    )
    max_unknown_fraction: Fraction = Field(
        0.2,
        description="Share of the tokens that may be [UNK] before the data job fails: text in a "
        "script that the vocabulary does not have.",
    )
    do_lower_case: bool = Field(
        True,
        description="Lower-case the text and strip accents, as BERT's uncased models do. Not of "
        "vocabulary.kind=bpe or t5, which take text as it is: set it to false there.",
    )


class MaskingConfig(Section):
    """How text becomes rows, and rows masked-LM examples (BERT, arXiv 1810.04805, section 3.1)."""

    packing: Literal["doc_sentences", "full_sentences", "segment_pair"] = Field(
        "doc_sentences",
        description="What a row holds (RoBERTa, arXiv 1907.11692, section 4.2). doc_sentences: "
        "text of one document. full_sentences: text of several, [SEP] between them, so that hardly "
        "any row is padded. segment_pair: two segments, with next-sentence prediction, as in BERT. "
        "Held-out rows never join documents, but for segment_pair.",
    )
    max_seq_length: int = Field(
        128, ge=16, le=4096, description="Tokens per row, [CLS] and [SEP] included."
    )
    extra_max_seq_length: int | None = Field(
        None,
        ge=16,
        le=4096,
        description="Rows of this length are written as well, from the same pass over the text: "
        "for training on short rows first. Empty: none.",
    )
    extra_max_predictions_per_seq: int = Field(
        20, ge=1, le=1024, description="Most masked tokens in a row of extra_max_seq_length."
    )
    short_seq_prob: Fraction = Field(
        0.1, description="segment_pair: share of rows made shorter on purpose, as in BERT."
    )
    unit: Literal["token", "word", "span", "sentinel"] = Field(
        "token",
        description="What is masked together. token: word pieces, as in BERT. word: whole words. "
        "span: several words in a row (SpanBERT, arXiv 1907.10529). sentinel: T5's span "
        "corruption (arXiv 1910.10683): each span of tokens becomes one sentinel, and the model "
        "writes what they stand for.",
    )
    max_span_words: int = Field(10, ge=1, le=100, description="span: longest one, in words.")
    mean_span_tokens: float = Field(
        3.0, ge=1.0, le=100.0, description="sentinel: mean length of a span, in tokens."
    )
    dynamic: bool = Field(
        True,
        description="Write training rows once and unmasked; the trainer masks them anew in each "
        "epoch, by the same function, so that none are memorized. false: masks are "
        "written with the rows. Held-out rows always have theirs.",
    )
    max_predictions_per_seq: int = Field(
        20,
        ge=1,
        le=1024,
        description="Most masked tokens in a row. unit=sentinel: longest target, in tokens; what "
        "a row needs follows from its length.",
    )
    masked_lm_prob: float = Field(
        0.15, gt=0.0, lt=1.0, description="Share of the tokens to predict."
    )
    dupe_factor: int = Field(
        1, ge=1, le=100, description="Copies of every training row, each with other masks."
    )
    random_seed: int = Field(
        12345, ge=0, le=2**31 - 1, description="Seed of the masks; equal seed, equal bytes."
    )

    def span_counts(self, tokens: int) -> SpanCounts:
        """Return what unit=sentinel hides of a text of so many tokens."""
        return span_counts(tokens, self.masked_lm_prob, self.mean_span_tokens)

    def hashed(self, without: set[str] | None = None) -> dict[str, Any]:
        """Return the settings for a hash, but for some.

        The length of spans is only among them where spans are corrupted: it was added after rows
        had been written and models trained without.
        """
        added = {"mean_span_tokens"} if self.unit != "sentinel" else set()
        return self.model_dump(mode="json", exclude=added | (without or set()))


class ModelConfig(Section):
    """The model (names as in bert_config.json) and the lineage it belongs to."""

    lineage_id: str = Field(
        "default",
        pattern=patterns.NAME,
        description="Line of models that build on each other. Vocabulary and architecture are "
        "frozen within a lineage.",
    )
    architecture: Literal["bert", "distilbert", "roberta", "t5"] = Field(
        "bert",
        description="What is built of the sizes below; frozen for a lineage. distilbert: BERT's "
        "layers without segment types and pooler (arXiv 1910.01108). roberta: the same with "
        "byte-level BPE (arXiv 1907.11692). t5: an encoder and a decoder of equally many layers "
        "(arXiv 1910.10683), with masking.unit=sentinel and vocabulary.kind=t5.",
    )
    vocab_size: int = Field(
        30522, ge=300, le=250_000, description="Rows of the embedding; at least the vocabulary."
    )
    hidden_size: int = Field(768, ge=16, le=8192, description="Width of the encoder.")
    num_hidden_layers: int = Field(12, ge=1, le=96, description="Transformer layers.")
    num_attention_heads: int = Field(
        12, ge=1, le=128, description="Must divide hidden_size, but in t5 with attention_head_size."
    )
    attention_head_size: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="t5: width of a head (its d_kv). Empty: hidden_size / num_attention_heads.",
    )
    intermediate_size: int = Field(3072, ge=16, le=32768, description="Width of feed-forward.")
    max_position_embeddings: int = Field(512, ge=16, le=8192, description="Longest row possible.")
    type_vocab_size: int = Field(2, ge=1, le=16, description="Segment types.")
    hidden_act: Literal["gelu", "gelu_new", "relu"] = Field(
        "gelu",
        description="gelu is the exact erf form (Hugging Face), gelu_new the tanh form of "
        "Google's BERT. They are different functions; keep the one a model was trained with. "
        "t5: relu is T5 1.0, gelu_new the gated form of T5 1.1, which has an output layer of its "
        "own.",
    )
    hidden_dropout_prob: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="Dropout on hidden states; 0 is cheapest and exact on resume. t5: everywhere "
        "where it has dropout.",
    )
    attention_probs_dropout_prob: float = Field(
        0.0, ge=0.0, lt=1.0, description="Dropout on attention weights; not of t5."
    )
    init_checkpoint: Annotated[str | None, Mark.MODEL_PATH] = Field(
        None,
        description="What a new lineage starts from: a model version or training folder of ours, "
        "a Hugging Face folder, a TensorFlow 1 BERT checkpoint or one of tf-models; its vocabulary "
        "is vocabulary.uri. It becomes the lineage's first version, which the first update has to "
        "beat. Ignored when the lineage has a model in use, which is then the start.",
    )
    from_scratch: bool = Field(
        False,
        description="Where init_checkpoint is empty, a new lineage begins with random weights and "
        "a vocabulary of its own. BERT took 16 GB of text and four days of 64 TPU chips for that. "
        "Otherwise an empty init_checkpoint is refused.",
    )
    init_encoder_only: bool = Field(
        False,
        description="Of init_checkpoint, where it is not a model of ours, only the encoder is "
        "loaded; the masked-LM head begins anew. For models without one, or of another task.",
    )

    @property
    def has_segments(self) -> bool:
        """Whether the model is told which of two segments a token is of."""
        return self.architecture == "bert"

    @property
    def has_byte_tokens(self) -> bool:
        """Whether its vocabulary is byte-level BPE; that of all others is not."""
        return self.architecture == "roberta"

    @property
    def has_decoder(self) -> bool:
        """Whether it writes its predictions, as one text, instead of filling places of a row."""
        return self.architecture == "t5"

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.attention_head_size or self.hidden_size // self.num_attention_heads

    def hashed(self) -> dict[str, Any]:
        """Return the settings that trained weights depend on, for a hash.

        The architecture and the width of heads are only among them where they are others than
        those of the time before there was a choice, so that its trainings keep their hashes.
        Whether random weights were meant is not: those of a training without a start are.
        """
        added = {"architecture"} if self.architecture == "bert" else set()
        if self.attention_head_size is None:
            added.add("attention_head_size")
        return self.model_dump(mode="json", exclude={"from_scratch"} | added)


class OptimizerConfig(Section):
    """How weights are updated (names as in tf-models)."""

    type: Literal["adamw", "lamb", "amos"] = Field(
        "adamw",
        description="adamw and lamb of tf-models; amos (arXiv 2210.11693), which needs half the "
        "memory for its state and sets the weight decay by itself.",
    )
    learning_rate: float = Field(
        1e-4,
        gt=0.0,
        le=1.0,
        description="Peak rate. adamw: 1e-4 from scratch, 2e-5 when continuing. amos: about 1e-2.",
    )
    warmup_steps: int = Field(
        100, ge=0, le=10_000_000, description="Steps of linear rise to the peak rate."
    )
    update_learning_rate: float | None = Field(
        None,
        gt=0.0,
        le=1.0,
        description="Peak rate of a run that continues the lineage's model in use; each begins a "
        "schedule of its own. Empty: learning_rate.",
    )
    carry_slots: bool = Field(
        False,
        description="A run that continues the lineage's model in use begins with the moments of "
        "that model's optimizer instead of zeros. The optimizer's type has to be the same.",
    )
    learning_rate_schedule: Literal["linear", "cosine", "constant_then_linear"] = Field(
        "linear",
        description="How the rate falls after the warm-up: on a line, on half a cosine, or not at "
        "all until the last decay_steps, where it is a line.",
    )
    decay_steps: int = Field(
        0, ge=0, le=100_000_000, description="constant_then_linear: last steps, of falling rate."
    )
    end_learning_rate: float = Field(0.0, ge=0.0, le=1.0, description="Rate at the last step.")
    weight_decay_rate: float = Field(
        0.01,
        ge=0.0,
        le=1.0,
        description="Decoupled decay; not on bias and LayerNorm, not used by amos.",
    )
    beta_1: float = Field(0.9, ge=0.0, lt=1.0, description="Decay of the first moment.")
    beta_2: float = Field(0.999, ge=0.0, lt=1.0, description="Decay of the second moment.")
    epsilon: float = Field(1e-6, gt=0.0, le=1.0, description="Added to the root of the moment.")
    clip_norm: float = Field(
        1.0, gt=0.0, le=1000.0, description="Largest global norm of the gradient."
    )


class TrainingConfig(Section):
    """The training loop (names as in tf-models)."""

    train_steps: StepCount = Field(
        1000,
        description="Steps of this run. auto: as many as go over its text max_passes times, "
        "decided when the rows are counted; see docs/reference/training.md.",
    )
    max_passes: float | None = Field(
        None,
        ge=0.0,
        le=1_000_000.0,
        description="Most times that a run goes over its own text: auto takes as many, a number of "
        "steps that makes more is refused. Empty: 40, or 5 with masks drawn once "
        "(masking.dynamic=false). 0: no limit.",
    )
    max_train_steps: int = Field(
        1_000_000,
        ge=1,
        le=_LARGEST_STEP,
        description="Most steps that auto takes, however much text there is; BERT had a million.",
    )
    partitions: Literal["own", "left_out", "unseen"] = Field(
        "left_out",
        description="own: train on the run's own partition. left_out: and on those whose run was "
        "rejected or failed, until they have been rejected twice. unseen: and on every other "
        "prepared one that the model in use has not seen, once for all of a backfill; its other "
        "runs then find nothing left to do.",
    )
    train_again: bool = Field(
        False,
        description="Train on the partition even if the model in use has seen it as it is.",
    )
    global_batch_size: int = Field(
        256, ge=1, le=65536, description="Rows per step over all replicas together."
    )
    gradient_accumulation_steps: int = Field(
        1,
        ge=1,
        le=4096,
        description="Parts that a replica computes its share of a batch in, one after the other: "
        "the same update with less memory.",
    )
    extra_steps_fraction: Fraction = Field(
        0.0,
        description="Share of the steps, the last ones, that train on rows of "
        "masking.extra_max_seq_length; 0.1 as in BERT. 0: none.",
    )
    extra_global_batch_size: int = Field(
        64, ge=1, le=65536, description="Rows per step of masking.extra_max_seq_length."
    )
    replay_fraction: Fraction = Field(
        0.2,
        description="Share of each batch from partitions that the model in use has seen, against "
        "forgetting; a first model has none. 0: no replay.",
    )
    frozen_layers: int = Field(
        0,
        ge=0,
        le=96,
        description="Lowest layers that keep their weights, the embeddings with them. 0: all "
        "weights are trained.",
    )
    head_steps: int | None = Field(
        None,
        ge=0,
        le=_LARGEST_STEP,
        description="Steps in which a new masked-LM head (model.init_encoder_only) is trained "
        "alone, before the first training of the lineage's whole model and beside its steps. What "
        "they make is what the first update is compared with. Empty: as many as the training's, at "
        "most 2000. 0: head and encoder are trained together from the first step.",
    )
    steps_per_loop: int = Field(
        100, ge=1, le=100_000, description="Steps between two returns to Python (logs, signals)."
    )
    checkpoint_interval: int = Field(
        1000, ge=1, le=10_000_000, description="Steps between checkpoints: most work ever lost."
    )
    max_to_keep: int = Field(3, ge=2, le=1000, description="Newest checkpoints kept.")
    keep_best: bool = Field(
        False,
        description="The result is the checkpoint of the lowest held-out loss, not the last; needs "
        "evaluation.rows_per_checkpoint.",
    )
    early_stop_evaluations: int = Field(
        0,
        ge=0,
        le=1000,
        description="Stop after so many checkpoints in a row without a lower held-out loss. 0: "
        "train all steps.",
    )
    max_rollbacks: int = Field(
        2,
        ge=0,
        le=100,
        description="Times that a loss which is not finite, or rises by max_loss_increase, is "
        "answered by going back to the last checkpoint and passing over the records since.",
    )
    max_loss_increase: float | None = Field(
        None,
        gt=0.0,
        le=1000.0,
        description="Rise of a loop's mean loss over the running mean, in nats per token, that "
        "counts as a spike. Empty: only a loss that is not finite does.",
    )
    mixed_precision_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of the arithmetic; variables stay float32."
    )
    residual_dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Type of the hidden states between layers. bfloat16 moves a tenth fewer bytes "
        "on a TPU; needs mixed_precision_dtype=bfloat16.",
    )
    distribution_strategy: Literal["one_device", "mirrored", "multi_worker_mirrored", "tpu"] = (
        Field(
            "tpu",
            description="tpu on a TPU VM; one_device on a CPU, as in the local stack; mirrored: "
            "all devices of a machine; multi_worker_mirrored: machines that TF_CONFIG names.",
        )
    )
    random_seed: int = Field(
        1, ge=0, le=2**31 - 1, description="Seed of the initial weights and of the record order."
    )

    @property
    def steps(self) -> int:
        """Return the steps of this run, which are known once they are decided.

        :raises ValueError: ``train_steps`` is still auto.
        """
        if self.train_steps == "auto":
            raise ValueError("training.train_steps is auto, which the run's plan decides.")
        return self.train_steps


class EvaluationConfig(Section):
    """How candidate and baseline are compared."""

    global_batch_size: int = Field(256, ge=1, le=65536, description="Rows per evaluation step.")
    rows_per_checkpoint: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Held-out rows of the trained partitions that each checkpoint is scored on "
        "while training: the learning curve. 0: none.",
    )
    pattern: str | None = Field(
        None,
        max_length=200,
        description="Names of prepared partitions, with * and ?, separated by commas: checkpoints "
        "are scored on held-out rows of these, in place of the trained ones'. Empty: of those.",
    )
    max_records_per_set: int = Field(
        100_000,
        ge=1,
        description="Most held-out rows used of each set; whole documents, chosen by their hash.",
    )
    max_sets: int = Field(
        10,
        ge=2,
        le=1000,
        description="Most sets of held-out documents that models are scored on: the run's own, "
        "that of general_partition, and of other partitions those whose names have the smallest "
        "hashes. See docs/operate/promotion.md.",
    )
    general_partition: str | None = Field(
        None,
        max_length=63,
        description="A prepared partition of general text, never trained on, whose held-out "
        "documents both models are also scored on. Empty: none.",
    )


class PromotionConfig(Section):
    """When a candidate replaces the model in use."""

    min_documents: int = Field(
        20, ge=2, le=10_000_000, description="Held-out documents needed for any verdict."
    )
    min_improvement: float = Field(
        0.01,
        ge=0.0,
        le=100.0,
        description="Nats per token by which the candidate must beat the model in use on the "
        "run's own held-out documents. More than what another seed makes of a model; see "
        "docs/operate/promotion.md.",
    )
    confidence: float = Field(
        0.95, ge=0.5, lt=1.0, description="Confidence of the bootstrap interval over documents."
    )
    max_forgetting: float = Field(
        0.1,
        ge=0.0,
        le=100.0,
        description="Nats per token that the candidate may lose, against the model in use, on the "
        "held-out documents of an earlier partition.",
    )
    max_total_forgetting: float = Field(
        0.2,
        ge=0.0,
        le=100.0,
        description="Nats per token that the candidate may lose on such documents against the best "
        "version that the lineage has had on them, so that small losses do not add up unseen: two "
        "updates that each lose all of max_forgetting, see docs/operate/promotion.md.",
    )
    require_approval: bool = Field(
        False,
        description="A person must approve, in Airflow under Required Actions, before a better "
        "candidate is put into use.",
    )
    approval_timeout_hours: float = Field(
        72.0,
        gt=0.0,
        le=720.0,
        description="Without an answer for so long the candidate is not put into use; until then "
        "no other run of the lineage trains.",
    )
    approvers: Annotated[list[UserId], Mark.BY_INSTALLATION] = Field(
        [],
        max_length=100,
        description="Users, by the ids of Airflow's auth manager, one of whom must approve; never "
        "whoever triggered the run. Empty: whoever may answer in Airflow. With names here "
        "require_approval is on, and requests cannot switch it off.",
    )
    probe_tasks: Annotated[list[TaskName], Mark.TASKS] = Field(
        [],
        max_length=20,
        description="Labeled tasks, names of folders tasks/NAME in the store, on which the "
        "candidate and the model in use are compared before it is promoted. Empty: by loss alone.",
    )
    probe_mode: Literal["frozen", "full"] = Field(
        "frozen",
        description="frozen: train a classifier on what the encoder knows already, which is cheap. "
        "full: fine-tune all of it.",
    )
    probe_random_seeds: list[Seed] = Field(
        [1, 2, 3, 4, 5],
        min_length=1,
        max_length=50,
        description="Seeds of the classifiers, one training of each model on each task; five tell "
        "chance from difference far better than three, see docs/guides/did-it-pay.md.",
    )
    max_probe_loss: float = Field(
        0.01,
        ge=0.0,
        le=1.0,
        description="What the candidate may lose of a probe task's metric, such as 0.01 of the "
        "accuracy. It is rejected if it has lost more with confidence.",
    )
    max_total_probe_loss: float = Field(
        0.02,
        ge=0.0,
        le=1.0,
        description="What the candidate may lose of it against the best version that the lineage "
        "has had on the task, so that small losses do not add up unseen: twice max_probe_loss.",
    )
    max_retrieval_loss: float | None = Field(
        0.02,
        ge=0.0,
        le=1.0,
        description="What the candidate may lose of recall@1, the share of held-out documents "
        "whose second half its embedding of the first half finds first. It is rejected if it has "
        "lost more with confidence. Empty: not judged.",
    )
    max_total_retrieval_loss: float = Field(
        0.04,
        ge=0.0,
        le=1.0,
        description="What it may lose on the documents of an earlier partition against the best "
        "version that the lineage has had on them; judged where max_retrieval_loss is.",
    )
    judge_retrieval: Literal["sentence_encoders", "always"] = Field(
        "sentence_encoders",
        description="Whose candidates max_retrieval_loss rejects. sentence_encoders: of lineages "
        "that began with a model of sentence-transformers. always: of every lineage.",
    )
    export_formats: list[Literal["hugging_face", "saved_model"]] = Field(
        ["hugging_face", "saved_model"],
        max_length=2,
        description="Formats besides tf-models' checkpoint in which a promoted model is published: "
        "hugging_face (a folder for transformers), saved_model (TensorFlow, text in, words out).",
    )


class BeamConfig(Section):
    """Where the data job runs (names as in Beam's and Dataflow's options)."""

    runner: Literal["FnApiRunner", "DataflowRunner"] = Field(
        "FnApiRunner",
        description="FnApiRunner: on the machine of the Airflow worker. DataflowRunner: on Google "
        "Cloud Dataflow.",
    )
    max_num_workers: int = Field(
        0,
        ge=0,
        le=1000,
        description="Most workers: processes on this machine (0: one a core), or Dataflow's "
        "virtual machines (0: Dataflow's own limit).",
    )
    region: str | None = Field(
        None,
        pattern=patterns.REGION,
        description="Dataflow: region of the workers, such as us-central1; the bucket's.",
    )
    temp_location: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, pattern=patterns.BUCKET_FOLDER, description="Dataflow: folder for temporary files."
    )
    sdk_container_image: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None,
        pattern=patterns.WORKER_IMAGE,
        description="Dataflow: image with the data job's locked requirements, by its digest, as a "
        "tag can be moved to other code: NAME@sha256:DIGEST.",
    )
    worker_machine_type: str = Field("n2-standard-4", description="Dataflow: type of machine.")
    service_account_email: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, description="Dataflow: account of the workers; empty: the project's default."
    )
    subnetwork: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, description="Dataflow: subnetwork; workers have no public addresses."
    )


class TpuConfig(Section):
    """The TPU to rent (names as in the Cloud TPU API)."""

    accelerator_type: str = Field(
        "v5litepod-8",
        pattern=patterns.ACCELERATOR_TYPE,
        description="Such as v5litepod-8. v5litepod-1, -4 and -8 are one host.",
    )
    runtime_version: str = Field(
        "v2-alpha-tpuv5-lite",
        pattern=patterns.RUNTIME_VERSION,
        description="Software image of the TPU VM, such as v2-alpha-tpuv5-lite.",
    )
    container_image: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None,
        pattern=patterns.TPU_IMAGE,
        description="Image that agent and trainer run in, bert-trainer-tpu, by its digest: "
        "NAME@sha256:DIGEST. Empty: the VM's own Python has all they need, as an emulator's.",
    )
    zones: list[Annotated[str, Field(pattern=patterns.ZONE)]] = Field(
        ["us-central1-a"],
        min_length=1,
        max_length=20,
        description="Zones to try, in order, such as us-central1-a. Asked again after a round, "
        "those that had none are asked in random order. All in the bucket's region, but with "
        "tpu.allow_other_regions.",
    )
    allow_other_regions: bool = Field(
        False,
        description="Rent outside the bucket's region too: slower, and each byte that crosses is "
        "paid, at budget.price_per_egress_gb.",
    )
    zone_cooldown_seconds: float = Field(
        600.0,
        ge=0.0,
        le=86_400.0,
        description="After a stockout a zone is asked last for so long, by other runs too.",
    )
    api: Literal["queued-resources", "nodes"] = Field(
        "queued-resources",
        description="How to ask: queued-resources wait for capacity; nodes (the older way) come at "
        "once or not at all.",
    )
    slice_count: int = Field(
        1, ge=1, le=256, description="Slices of this type in one request; more than 1: multislice."
    )
    provisioning_model: Literal["on-demand", "spot", "reserved"] = Field(
        "on-demand", description="spot is cheaper and may be taken away at any time."
    )
    reservation_name: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None,
        pattern=patterns.RESERVATION,
        description="Reservation to rent from, with provisioning_model reserved; empty only with "
        "api nodes, which takes from any.",
    )
    network: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, description="VPC network; empty: the project's default."
    )
    subnetwork: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, description="Subnetwork; needs Private Google Access."
    )
    enable_external_ips: Annotated[bool, Mark.BY_INSTALLATION] = Field(
        False, description="Give the TPU VM public addresses."
    )
    service_account: Annotated[str | None, Mark.BY_INSTALLATION] = Field(
        None, description="Account of the TPU VM; empty: the project's default compute account."
    )
    network_tags: Annotated[
        list[Annotated[str, Field(pattern=patterns.NETWORK_TAG)]],
        Mark.BY_INSTALLATION,
    ] = Field([], max_length=64, description="Network tags of the TPU VM, for firewall rules.")
    data_disks: Annotated[
        list[Annotated[str, Field(pattern=patterns.DISK)]],
        Mark.BY_INSTALLATION,
    ] = Field(
        [],
        max_length=8,
        description="Existing disks to attach, read-only, such as projects/p/zones/z/disks/d. A "
        "disk is of one zone, so they need a single entry in tpu.zones.",
    )
    disk_gigabytes: Annotated[int, Mark.BY_INSTALLATION] = Field(
        100,
        ge=10,
        le=100_000,
        description="Size of a TPU VM's own disk, which the API lets nobody choose; what a run "
        "copies there has to fit.",
    )
    queue_timeout_seconds: int = Field(
        3600, ge=60, le=604_800, description="Longest wait for capacity in one zone."
    )
    boot_timeout_seconds: int = Field(
        900, ge=10, le=7200, description="Longest time from READY to the agent's first sign."
    )
    heartbeat_interval_seconds: float = Field(
        30.0, ge=0.5, le=300.0, description="Seconds between two signs of life of the agent."
    )
    heartbeat_timeout_seconds: float = Field(
        300.0, ge=5.0, le=7200.0, description="Silence after which a worker counts as lost."
    )
    poll_interval: float = Field(
        30.0, ge=0.5, le=600.0, description="Seconds between two looks at TPU and mailbox."
    )
    delete_grace_seconds: float = Field(
        90.0,
        ge=0.0,
        le=3600.0,
        description="Wait between the two sweeps of the delete task: longer than a create call "
        "and the killing of its process can take.",
    )
    lease_timeout_seconds: float = Field(
        7200.0,
        ge=5.0,
        le=604_800.0,
        description="The TPU VM deletes its own TPU when nobody has renewed its lease for so long "
        "(and 10 polls) and its job makes no progress: so long may Airflow be away.",
    )


class BudgetConfig(Section):
    """What a run may use before it is stopped."""

    max_hours: float = Field(
        24.0, gt=0.0, le=720.0, description="Hours from reservation after which no TPU remains."
    )
    max_preemptions: int = Field(
        10, ge=0, le=1000, description="Lost TPUs that are replaced, resuming from a checkpoint."
    )
    max_failures: int = Field(
        2, ge=0, le=100, description="Times a killed trainer is started again on the same TPU."
    )
    max_hangs: int = Field(
        3, ge=0, le=100, description="Times a hung job is started again on the same TPU."
    )
    max_stalled_attempts: int = Field(
        3,
        ge=1,
        le=100,
        description="Lost TPUs in a row without a new checkpoint, after which the run fails. Those "
        "that the service takes away do not count.",
    )
    max_lineage_wait_hours: float = Field(
        168.0,
        gt=0.0,
        le=720.0,
        description="Longest wait, without a TPU, for another run of the lineage to end.",
    )
    alert_fraction: Fraction = Field(
        0.8,
        description="Share of max_preemptions, max_chip_hours or max_hours whose use is reported.",
    )
    max_chip_hours: float | None = Field(
        None,
        gt=0.0,
        description="When the reservation's TPUs were rented for so many chip-hours, the one in "
        "use is deleted and there is no further one; empty: max_hours alone limits.",
    )
    max_cost: float | None = Field(
        None,
        gt=0.0,
        description="Most that a run may cost at price_per_chip_hour; empty: no limit. A run that "
        "could cost more by max_hours and max_chip_hours is refused, unless training.train_steps "
        "is auto: then this limits steps and chip-hours, like max_chip_hours.",
    )
    price_per_chip_hour: Annotated[float, Mark.BY_INSTALLATION] = Field(
        1.2, ge=0.0, le=1000.0, description="Your price; look it up, prices change."
    )
    price_per_egress_gb: Annotated[float, Mark.BY_INSTALLATION] = Field(
        0.02,
        ge=0.0,
        le=1000.0,
        description="Your price of a GB between the regions of bucket and TPU, in the estimate "
        "with tpu.allow_other_regions; not in max_cost. Within North America 0.02; look it up.",
    )
    on_demand_price_per_chip_hour: Annotated[float | None, Mark.BY_INSTALLATION] = Field(
        None,
        ge=0.0,
        le=1000.0,
        description="Of the same chips on demand, where your price is of another kind: what it "
        "saves is counted against this; empty: not counted.",
    )
    currency: Annotated[str, Mark.BY_INSTALLATION] = Field(
        "USD", pattern=patterns.CURRENCY, description="Currency of the prices."
    )
    price_date: Annotated[str, Mark.BY_INSTALLATION] = Field(
        "2026-01", pattern=patterns.MONTH_OR_DAY, description="When the price was looked up."
    )

    @property
    def chip_hours_limit(self) -> tuple[str, float] | None:
        """Return the setting that limits chip-hours, and how many it allows; None: none does."""
        limits = []
        if self.max_cost is not None and self.price_per_chip_hour:
            limits.append(("budget.max_cost", self.max_cost / self.price_per_chip_hour))
        if self.max_chip_hours is not None:
            limits.append(("budget.max_chip_hours", self.max_chip_hours))
        return min(limits, key=lambda limit: limit[1], default=None)


class HangConfig(Section):
    """For how long nothing may move in a job before it is ended and started again."""

    loop_floor_seconds: float = Field(
        120.0,
        ge=1.0,
        le=86_400.0,
        description="A loop of steps hangs after so long or, if that is longer, after 6 times the "
        "slowest of the last 20, at most what the first loop has.",
    )
    first_loop_seconds: float = Field(
        3600.0,
        ge=1.0,
        le=86_400.0,
        description="The first loop after a start, or of longer rows: it compiles.",
    )
    save_seconds: float = Field(
        1200.0, ge=1.0, le=86_400.0, description="Saving, and waiting for the save before."
    )
    restore_seconds: float = Field(
        1800.0, ge=1.0, le=86_400.0, description="Loading weights or a checkpoint."
    )
    data_seconds: float = Field(
        1800.0, ge=1.0, le=86_400.0, description="Copying and verifying one file of records."
    )
    evaluation_seconds: float = Field(
        1800.0,
        ge=1.0,
        le=86_400.0,
        description="One batch of rows that are scored, the first of which compiles, or one shard "
        "whose tokens are counted.",
    )
    other_seconds: float = Field(
        1800.0,
        ge=1.0,
        le=86_400.0,
        description="Anything else, such as starting and joining the hosts of a slice.",
    )


class RentalConfig(Protocol):
    """What all kinds of runs have: what prepares their data, and the TPU that they rent."""

    @property
    def beam(self) -> BeamConfig:
        """Return where the data job runs."""

    @property
    def tpu(self) -> TpuConfig:
        """Return what to rent."""

    @property
    def budget(self) -> BudgetConfig:
        """Return what it may cost."""

    @property
    def hang(self) -> HangConfig:
        """Return when its jobs count as hung."""


class PipelineConfig(Section):
    """One run's complete configuration."""

    run: RunConfig = RunConfig()
    corpus: CorpusConfig = CorpusConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    masking: MaskingConfig = MaskingConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    promotion: PromotionConfig = PromotionConfig()
    beam: BeamConfig = BeamConfig()
    tpu: TpuConfig = TpuConfig()
    budget: BudgetConfig = BudgetConfig()
    hang: HangConfig = HangConfig()

    def to_bytes(self) -> bytes:
        """Return the content of ``config.json``, which :func:`parse_config` reads."""
        head = {"format": "pipeline-config", "format_version": FORMAT_VERSION}
        return (json.dumps(head | self.model_dump(mode="json"), indent=2) + "\n").encode()

    @property
    def sha256(self) -> str:
        """Return the hash of all settings."""
        return _hash(self.model_dump(mode="json"))

    @property
    def data_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings that the bytes of a shard's records depend on, by section.

        Not among them is how duplicates are found, and what is held out together: the bytes depend
        on which documents of the shard are left out or moved, and those are part of its key by
        themselves.
        """
        elsewhere = {"partition", "input_pattern", "max_bad_fraction"}
        duplicates = {"duplicates", "near_duplicate_threshold", "split_by"}
        return {
            "corpus": self.corpus.hashed(elsewhere | duplicates),
            "vocabulary": {"do_lower_case": self.vocabulary.do_lower_case},
            "masking": self.masking.hashed(),
        }

    @property
    def data_sha256(self) -> str:
        """Return the hash of the settings that the bytes of a shard's records depend on."""
        return _hash(self.data_settings)

    @property
    def training_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings that the trained weights depend on, by section.

        What only matters after a loss was not finite is not among them, nor what only limits
        ``train_steps`` or is another training, that of a new head.
        """
        limits = {"max_passes", "max_train_steps", "head_steps"}
        # Which partitions are trained on is part of a checkpoint's identity by their records. The
        # choice counts for nothing but what it did when there were two: trainings of then go on.
        chosen = {"partitions": "unseen" if self.training.partitions == "unseen" else "own"}
        intervals = {"checkpoint_interval", "max_to_keep", "steps_per_loop"}
        guards = {"max_rollbacks", "max_loss_increase"}
        unused = set() if self.training.extra_steps_fraction else _EXTRA_ROWS
        scored: set[str] = set()
        if self.training.keep_best or self.training.early_stop_evaluations:
            # Which checkpoints there are to choose from.
            scored |= {"rows_per_checkpoint", *(["pattern"] if self.evaluation.pattern else [])}
            intervals.remove("checkpoint_interval")
        return {
            "model": self.model.hashed(),
            "optimizer": self.optimizer.model_dump(mode="json"),
            "training": self.training.model_dump(mode="json", exclude=intervals | guards | limits)
            | chosen,
            "evaluation": self.evaluation.model_dump(mode="json", include=scored),
            "masking": self.masking.hashed(unused),
        }

    @property
    def training_sha256(self) -> str:
        """Return the hash of the settings that the trained weights depend on."""
        return _hash(self.training_settings)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
