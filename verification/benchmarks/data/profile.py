"""Shows where the data job's CPU time goes, from its first import on.

    python -m verification.benchmarks.data.profile [--megabytes 40] [--packing doc_sentences]

Samples the stack every few milliseconds of CPU time, so other programs on the machine do not affect
it. A sample counts for the innermost of: an import, a module of ours, Beam.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pipeline_config.command_line import command_parser
from verification.benchmarks.data.bench import PACKINGS
from verification.benchmarks.data.corpus import corpus_folder, load
from verification.benchmarks.data.ours import prepared, settings

_SECONDS_BETWEEN_SAMPLES = 0.002
_REPOSITORY = str(Path(__file__).parents[3])


class Sampler:
    """Counts of samples of the main thread, by the place they belong to."""

    def __init__(self) -> None:
        self.samples: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take samples while the context is open."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS_BETWEEN_SAMPLES, _SECONDS_BETWEEN_SAMPLES)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if place := place_of(frame.f_code.co_filename):
                self.samples[place] += 1
                return
            frame = frame.f_back
        self.samples["other"] += 1


def place_of(filename: str) -> str | None:
    """Return the place that a stack frame's file counts for; None: look at the caller's frame."""
    if filename.startswith("<frozen importlib"):
        return "imports"
    if "/apache_beam/" in filename:
        return "Beam"
    inside = filename.startswith(_REPOSITORY) and "/site-packages/" not in filename
    return filename[len(_REPOSITORY) + 1 :] if inside else None


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status of the data job."""
    parser = command_parser("verification.benchmarks.data.profile", __doc__)
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    parser.add_argument("--megabytes", type=int, default=40, help="size of the input")
    parser.add_argument("--packing", default=PACKINGS[0], choices=PACKINGS)
    options = parser.parse_args(argv)
    found = sorted(corpus_folder(options.state_dir).glob("*/corpus.json"))
    if not found:
        print(
            "no corpus yet; run python -m verification.benchmarks.data.corpus first.",
            file=sys.stderr,
        )
        return 1
    corpus = load(found[0].parent)
    shards = corpus.take(options.megabytes)
    config = settings(corpus.vocabulary, packing=options.packing)
    sampler = Sampler()
    with prepared(config, shards, options.state_dir / "bench-data" / "work") as arguments:
        before = _cpu_seconds()
        with sampler.running():
            from beam_jobs import prepare_corpus

            status = prepare_corpus.main(arguments, alone=True)
        spent = _cpu_seconds() - before
    _print(sampler.samples, spent)
    return status


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _print(samples: Counter[str], spent: float) -> None:
    print(f"{spent:.2f} s of CPU before the process ends, {samples.total()} samples")
    for place, count in samples.most_common():
        share = count / samples.total()
        if share >= 0.005:
            print(f"{share:6.1%} {share * spent:7.2f} s  {place}")


if __name__ == "__main__":
    sys.exit(main())
