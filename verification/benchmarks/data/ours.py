"""Runs the data job as a user would: its command, in a separate store, on a list of files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline_config import PipelineConfig
from pipeline_config.data_schema import BeamConfig, CorpusConfig, MaskingConfig, VocabularyConfig
from pipeline_store.formats import PartitionManifest, Split
from verification.benchmarks.data.processes import Usage, run_module

_PARTITION = "2026-01-01"


@dataclass(frozen=True)
class OurRun:
    """One run of ``beam_jobs.prepare_corpus``."""

    usage: Usage
    manifest: PartitionManifest

    @property
    def tokens(self) -> int:
        """The number of real tokens in the records, including [CLS] and [SEP]."""
        return sum(self.manifest.tokens.values())

    @property
    def text_tokens(self) -> int:
        """The number of tokens of the text alone, each counted once."""
        return self.manifest.statistics.text_tokens

    def row_fill(self, max_seq_length: int) -> float:
        """Return the share of the positions in the training rows that hold tokens."""
        manifest = self.manifest
        main = max_seq_length == manifest.max_seq_length
        tokens = (manifest.tokens if main else manifest.extra_tokens)[Split.TRAIN]
        records = (manifest.records if main else manifest.extra_records)[Split.TRAIN]
        return tokens / (records * max_seq_length)


def settings(
    vocabulary: Path,
    *,
    packing: str,
    duplicates: str = "exact",
    workers: int = 1,
    extra_max_seq_length: int | None = None,
) -> PipelineConfig:
    """Return the configuration of a run; other settings keep their defaults.

    The input is one sentence per line, as tf-models' script needs it, so both read the same files.
    """
    return PipelineConfig(
        corpus=CorpusConfig(input_format="sentences", duplicates=duplicates),
        vocabulary=VocabularyConfig(uri=str(vocabulary.absolute())),
        masking=MaskingConfig(
            packing=packing,
            max_seq_length=128,
            max_predictions_per_seq=20,
            extra_max_seq_length=extra_max_seq_length,
            extra_max_predictions_per_seq=80,
        ),
        beam=BeamConfig(max_num_workers=workers),
    )


def run_ours(config: PipelineConfig, shards: Sequence[Path], work: Path) -> OurRun:
    """Convert the shards and measure this; the records are deleted afterward."""
    with prepared(config, shards, work) as arguments:
        usage = run_module("beam_jobs.prepare_corpus", *arguments)
        return OurRun(usage, PartitionManifest.load(usage.result["manifest"]))


@contextmanager
def prepared(config: PipelineConfig, shards: Sequence[Path], work: Path) -> Iterator[list[str]]:
    """Yield the arguments of ``beam_jobs.prepare_corpus`` for a new store with a vocabulary."""
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ours-", dir=work.resolve()) as name:
        folder = Path(name)
        (folder / "config.json").write_bytes(config.to_bytes())
        arguments = [
            *("--config", str(folder / "config.json"), "--store", str(folder / "store")),
            *("--partition", _PARTITION, "--input", ",".join(str(p.absolute()) for p in shards)),
        ]
        run_module("beam_jobs.train_vocabulary", *arguments)
        yield arguments
