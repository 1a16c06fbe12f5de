"""Measures the data job and its peers, on a fixed text and on text from this machine.

    python -m verification.benchmarks.data [--quick] [--only NAME] [--state-dir .local]

Prints one JSON object per line on stdout, progress and a table on stderr. Every run is a fresh
process from start to exit. docs/evidence/data-speed.md explains the rows.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.benchmarks.commands import say
from verification.benchmarks.data.bench import QUICK, Bench, Sizes
from verification.benchmarks.data.corpus import Corpus, CorpusTooSmallError, corpus_folder, gather
from verification.benchmarks.data.made_text import made_folder, make
from verification.benchmarks.data.peers import command
from verification.benchmarks.data.processes import CommandFailedError
from verification.benchmarks.data.rows import GROUPS
from verification.benchmarks.data.sources import installation_roots
from verification.benchmarks.noise import measure, report
from verification.benchmarks.results import Result, Row

MADE = "made"
TEXTS = (MADE, "machine")
VOCABULARY_SIZE = 30522
_LIBRARIES = (
    *("apache-beam", "numpy", "tensorflow", "tf-models-official", "tokenizers", "transformers"),
)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status: 1 if a row was not measured or was disturbed."""
    options = _parser().parse_args(argv)
    results: list[Result] = []
    status = 0
    for text in options.text or TEXTS:
        corpus = _corpus(text, options.state_dir)
        if not corpus.vocabulary.exists():
            say("learning a vocabulary from the text that is in no shard …")
            command.train(corpus.held_out, corpus.vocabulary, VOCABULARY_SIZE)
        work = options.state_dir.resolve() / "bench-data" / "work"
        bench = Bench(corpus, work, QUICK if options.quick else Sizes())
        groups: dict[str, Callable[[], Iterable[Row]]] = {"corpus": partial(_corpus_row, corpus)}
        groups |= {name: partial(GROUPS[name], bench) for name in options.only or GROUPS}
        for name, group in groups.items():
            try:
                found = measure("data", partial(_rows, group, text), bench.forget)
            except (CommandFailedError, CorpusTooSmallError) as error:
                say(f"{name}: {error}")
                status = 1
                continue
            for result in found:
                print(result.model_dump_json(), flush=True)
            results += found
    return max(status, report(results))


def _corpus(text: str, state_dir: Path) -> Corpus:
    if text == MADE:
        say("making the fixed text …")
        return make(made_folder(state_dir))
    corpus = gather(installation_roots(), corpus_folder(state_dir))
    say(str(corpus))
    return corpus


def _rows(group: Callable[[], Iterable[Row]], text: str) -> Iterator[Row]:
    """Yield the rows of a group; for the fixed text, their names end with ``_made_text``."""
    for row in group():
        yield replace(row, name=f"{row.name}_made_text") if text == MADE else row


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.benchmarks.data", __doc__)
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    parser.add_argument(
        "--quick", action="store_true", help="10 MB for most rows; minutes, and less certain"
    )
    parser.add_argument(
        "--text",
        action="append",
        choices=TEXTS,
        help="only on this text: the machine's own, or one that is the same everywhere",
    )
    parser.add_argument(
        "--only", action="append", choices=list(GROUPS), help="only these rows; may be repeated"
    )
    return parser


def _corpus_row(corpus: Corpus) -> Iterator[Row]:
    parts = {f"{name}_share": part.bytes / corpus.bytes for name, part in corpus.parts.items()}
    details = {
        "documents": corpus.documents,
        "mean_document_bytes": corpus.bytes / corpus.documents,
        "unique_documents_share": corpus.unique_documents_share,
        "unique_lines_share": corpus.unique_lines_share,
        "new_text_share": corpus.new_text_share,
        **parts,
        "fingerprint": corpus.fingerprint[:16],
        "versions": {name: _version(name) for name in _LIBRARIES},
    }
    yield Row("corpus", corpus.bytes / 1e6, "MB", details=details)


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
