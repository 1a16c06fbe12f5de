"""Settings of the text that a run learns from, and of the rows that are made from it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_config import patterns
from pipeline_config.row_shapes import SpanCounts, span_counts
from pipeline_config.sections import Fraction, Mark, Section


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
        """The unit that counts as one document of a text file."""
        return self.document if self.document in {"file", "line"} else "blank_line"

    def hashed(self, without: set[str]) -> dict[str, Any]:
        """Return the settings that go into a hash, with some left out.

        Settings that were added in later releases are included only where they change something,
        so that text prepared before keeps its keys.
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
        """Return how much unit=sentinel hides of a text with the given number of tokens."""
        return span_counts(tokens, self.masked_lm_prob, self.mean_span_tokens)

    def hashed(self, without: set[str] | None = None) -> dict[str, Any]:
        """Return the settings that go into a hash, with some left out.

        The length of spans is included only where spans are corrupted: rows were written and models
        trained before that setting existed.
        """
        added = {"mean_span_tokens"} if self.unit != "sentinel" else set()
        return self.model_dump(mode="json", exclude=added | (without or set()))


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
