"""Runs the peers on the same files, each in a fresh process."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from verification.benchmarks.data.processes import Usage, run_module


def run_tf_models(vocabulary: Path, shards: Sequence[Path], work: Path) -> tuple[Usage, int]:
    """Run tf-models' ``create_pretraining_data``; return its usage and the real tokens it wrote."""
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tf-models-", dir=work) as folder:
        output = Path(folder) / "records.tfrecord"
        usage = run_module(
            "official.nlp.data.create_pretraining_data",
            f"--input_file={','.join(map(str, shards))}",
            f"--output_file={output}",
            f"--vocab_file={vocabulary}",
            *("--do_lower_case=true", "--max_seq_length=128", "--max_predictions_per_seq=20"),
            *("--dupe_factor=1", "--masked_lm_prob=0.15", "--short_seq_prob=0.1"),
        )
        counts = run_module("verification.benchmarks.data.peers.count_tokens", output).result
    return usage, counts["tokens"]


def run_hf_collator(vocabulary: Path, shards: Sequence[Path], work: Path) -> tuple[Usage, int]:
    """Run Hugging Face's collator; return its usage and the tokens it wrote."""
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hf-", dir=work) as folder:
        usage = run_module(
            "verification.benchmarks.data.peers.hf_collator",
            "--vocabulary",
            vocabulary,
            "--output",
            folder,
            *shards,
        )
    return usage, usage.result["tokens"]


def run_tokenizer(module: str, vocabulary: Path, shards: Sequence[Path], unit: str) -> Usage:
    """Run a tokenizer alone; its ``result`` has ``tokens``, ``seconds`` and ``cpu_seconds``.

    :param module: ``raw_tokenizer`` or ``our_tokenizer``.
    :param unit: ``line`` or ``document``, what it is given at once.
    """
    return run_module(
        f"verification.benchmarks.data.peers.{module}",
        "--vocabulary",
        vocabulary,
        "--unit",
        unit,
        *shards,
    )
