"""Runs the data job and its peers on parts of the benchmark's text, each several times."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from verification.benchmarks.commands import say
from verification.benchmarks.data.corpus import Corpus
from verification.benchmarks.data.ours import OurRun, run_ours, settings
from verification.benchmarks.data.processes import Usage, run_module

PACKINGS = ("doc_sentences", "full_sentences", "segment_pair")
# The median run is used. A long run is done twice, to show whether the times differ.
_LONG_SECONDS = 20.0
_REPEATS = 3
_REPEATS_IF_LONG = 2

Result = TypeVar("Result")


@dataclass(frozen=True)
class Sizes:
    """Megabytes of the corpus that each kind of row uses; None means all of it."""

    nsp: tuple[int, ...] = (100, 25, 5)
    packed: tuple[int | None, ...] = (None, 25)
    collator: int = 40
    # Both are large enough that the job starts worker processes; the row checks this.
    steady: tuple[int, int] = (80, 240)
    memory: tuple[int, int] = (10, 100)
    fill: int = 10
    near: int | None = 40


QUICK = Sizes(nsp=(10,), packed=(10,), collator=10, steady=(80, 120), memory=(5, 10), near=10)


class Bench:
    """Cached runs of the data job and its peers: each run that rows need is done once."""

    def __init__(
        self, corpus: Corpus, work: Path, sizes: Sizes, *, repeats: int = _REPEATS
    ) -> None:
        self.corpus = corpus
        self.sizes = sizes
        self._vocabulary = corpus.vocabulary
        self._work = work
        self._repeats = repeats
        self.forget()

    def forget(self) -> None:
        """Clear the cached runs, so that each is measured again when a row needs it."""
        self.ours = cache(self._ours)
        self.tokenizer = cache(self._tokenizer)

    def megabytes(self, size: int | None) -> float:
        """Return the real size of the shards that are used for a size in megabytes."""
        return sum(path.stat().st_size for path in self.corpus.take(size)) / 1e6

    def _ours(
        self,
        size: int | None,
        packing: str,
        duplicates: str = "exact",
        workers: int = 1,
        extra: int | None = None,
    ) -> OurRun:
        config = settings(
            self._vocabulary,
            packing=packing,
            duplicates=duplicates,
            workers=workers,
            extra_max_seq_length=extra,
        )
        shards = self.corpus.take(size)

        def run() -> tuple[Usage, OurRun]:
            done = run_ours(config, shards, self._work)
            return done.usage, done

        what = f"ours, {packing}, {self.megabytes(size):.0f} MB, {duplicates} duplicates"
        usage, done = self._median(f"{what}, workers: {workers}", run)
        return replace(done, usage=usage)

    def tf_models(self, size: int) -> tuple[Usage, int]:
        """Run tf-models' script; return its usage and the number of tokens it wrote."""
        shards = self.corpus.take(size)
        return self._median(
            f"tf-models, {self.megabytes(size):.0f} MB",
            lambda: run_tf_models(self._vocabulary, shards, self._work),
        )

    def hf_collator(self, size: int) -> tuple[Usage, int]:
        """Run Hugging Face's collator; return its usage and the number of tokens it wrote."""
        shards = self.corpus.take(size)
        return self._median(
            f"Hugging Face's collator, {self.megabytes(size):.0f} MB",
            lambda: run_hf_collator(self._vocabulary, shards, self._work),
        )

    def _tokenizer(
        self, module: str, size: int | None, vocabulary: Path | None = None
    ) -> tuple[Usage, dict[str, Any]]:
        """Run a tokenizer alone, on lines and on whole documents; return the faster of the two.

        :param vocabulary: None: the WordPiece vocabulary. Tokens of byte-level BPE begin with the
            space before them, so the first word of a line gets other tokens when the line is
            tokenized alone: with BPE only documents are compared.
        """
        shards = self.corpus.take(size)
        units = ("line", "document") if vocabulary is None else ("document",)

        def run(unit: str) -> tuple[Usage, dict[str, Any]]:
            usage = run_tokenizer(module, vocabulary or self._vocabulary, shards, unit)
            return usage, usage.result | {"texts": unit}

        both = [
            self._median(
                f"{module.replace('_', ' ')}, {self.megabytes(size):.0f} MB, by {unit}",
                partial(run, unit),
                # Start-up is not counted.
                lambda usage: float(usage.result["seconds"]),
            )
            for unit in units
        ]
        return min(both, key=lambda found: found[1]["seconds"])

    def _median(
        self,
        what: str,
        run: Callable[[], tuple[Usage, Result]],
        seconds: Callable[[Usage], float] = lambda usage: usage.wall_s,
    ) -> tuple[Usage, Result]:
        """Run several times; return the median run, with the times of all runs.

        :param seconds: returns the time of a run that is compared.
        """
        runs: list[tuple[Usage, Result]] = []
        while len(runs) < self._wanted(runs):
            say(f"{what} …")
            runs.append(run())
            usage = runs[-1][0]
            say(f"{what}: {usage.wall_s:.1f} s, {usage.cpu_s:.1f} s of CPU")
        times = [seconds(usage) for usage, _ in runs]
        usage, result = runs[times.index(statistics.median_low(times))]
        return replace(usage, rounds_s=tuple(times)), result

    def _wanted(self, runs: list[tuple[Usage, Any]]) -> int:
        is_long = bool(runs) and runs[0][0].wall_s >= _LONG_SECONDS
        return min(self._repeats, _REPEATS_IF_LONG) if is_long else self._repeats


def run_tf_models(vocabulary: Path, shards: Sequence[Path], work: Path) -> tuple[Usage, int]:
    """Run tf-models' ``create_pretraining_data``; return its usage and how many tokens it wrote.

    Padding is not counted.
    """
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
    """Run Hugging Face's collator; return its usage and the number of tokens it wrote."""
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
    :param unit: ``line`` or ``document``: the unit that it tokenizes at once.
    """
    return run_module(
        f"verification.benchmarks.data.peers.{module}",
        "--vocabulary",
        vocabulary,
        "--unit",
        unit,
        *shards,
    )
