"""Measures the data job and its peers on text that this machine has.

    python -m verification.benchmarks.data [--quick] [--only NAME] [--state-dir .local]

Prints one JSON object a line on stdout, progress and a table on stderr. Every run is a fresh
process from start to exit. What the rows mean is in docs/data-speed.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from verification.benchmarks.data.bench import QUICK, Bench, Sizes, say
from verification.benchmarks.data.corpus import Corpus, CorpusTooSmallError, corpus_folder, gather
from verification.benchmarks.data.peers import wordpiece
from verification.benchmarks.data.processes import CommandFailedError
from verification.benchmarks.data.rows import GROUPS, Row
from verification.benchmarks.data.sources import installation_roots

VOCABULARY_SIZE = 30522
_LIBRARIES = (
    *("apache-beam", "numpy", "tensorflow", "tf-models-official", "tokenizers", "transformers"),
)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status: 1 if a row could not be measured."""
    options = _parser().parse_args(argv)
    folder = options.state_dir / "bench-data"
    corpus = gather(installation_roots(), corpus_folder(options.state_dir))
    say(str(corpus))
    if not corpus.vocabulary.exists():
        say("learning a vocabulary from the text that is in no shard …")
        wordpiece.train(corpus.held_out, corpus.vocabulary, VOCABULARY_SIZE)
    sizes = QUICK if options.quick else Sizes()
    bench = Bench(corpus, folder.resolve() / "work", sizes)
    rows = [_corpus_row(corpus)]
    _print(rows[0])
    status = 0
    for name in options.only or GROUPS:
        try:
            for row in GROUPS[name](bench):
                _print(row)
                rows.append(row)
        except (CommandFailedError, CorpusTooSmallError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
    _print_table(rows)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verification.benchmarks.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    parser.add_argument(
        "--quick", action="store_true", help="10 MB for most rows; minutes, and less certain"
    )
    parser.add_argument(
        "--only", action="append", choices=list(GROUPS), help="only these rows; may be repeated"
    )
    return parser


def _corpus_row(corpus: Corpus) -> Row:
    parts = {f"{name}_share": part.bytes / corpus.bytes for name, part in corpus.parts.items()}
    more = {
        "documents": corpus.documents,
        "mean_document_bytes": corpus.bytes / corpus.documents,
        "unique_documents_share": corpus.unique_documents_share,
        "unique_lines_share": corpus.unique_lines_share,
        "new_text_share": corpus.new_text_share,
        **parts,
        "fingerprint": corpus.fingerprint[:16],
        "machine": _machine(),
        "cores": os.cpu_count(),
        "versions": {name: _version(name) for name in _LIBRARIES},
    }
    return Row("corpus", corpus.bytes / 1e6, "MB", more=more)


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().split("\n")
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, Python {platform.python_version()}"


def _print(row: Row) -> None:
    print(json.dumps(row.to_json()), flush=True)


def _print_table(rows: list[Row]) -> None:
    table = Table("name", "value", "unit", "ratio", "CPU ratio", "peak MB", "compared with")
    for row in rows:
        shown = row.to_json()
        columns = ("name", "value", "unit", "ratio", "cpu_ratio", "peak_rss_mb", "peer")
        cells = [shown.get(column) for column in columns]
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    Console(stderr=True).print(table)


if __name__ == "__main__":
    sys.exit(main())
