"""Runs the whole pipeline on this machine: two days of text, two DAG runs, one model in use.

python -m local.demo [--corpus FOLDER_OR_GLOB]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from local.demo import corpus, follow, summary
from local.stack.airflow_api import AirflowApiError
from local.stack.paths import StackError
from local.stack.settings import PRESET
from local.stack.stack import Stack
from pipeline_config import ConfigError, load_preset, with_overrides
from pipeline_config.command_line import command_parser
from pipeline_config.loading import parse_overrides
from pipeline_store import identity, uris
from pipeline_store.layout import StoreLayout, VersionLayout

FILES = (
    ".txt, .jsonl, .csv, .tsv or .parquet files (field or column text), plain or packed as .gz, "
    ".bz2, .zst or .xz"
)


def main(argv: list[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    options = _parser().parse_args(argv)
    console = Console(soft_wrap=True, highlight=False)
    try:
        _run(options, console)
    except corpus.CorpusError as error:
        hint = f"Name a folder or glob of {FILES}."
        print(f"demo: {error} {hint} Nothing was started.", file=sys.stderr)
        return 1
    except (follow.DemoError, StackError, AirflowApiError) as error:
        print(f"demo: {error}\n`make down` stops what is running.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; `make down` stops what is running.", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("local.demo", __doc__)
    parser.add_argument(
        "--corpus",
        metavar="FOLDER_OR_GLOB",
        help=f"your own files instead of the text of the installed packages: {FILES}",
    )
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="a setting of the runs, such as training.train_steps=100",
    )
    return parser


def _run(options: argparse.Namespace, console: Console) -> None:
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[{time.monotonic() - began:5.0f} s] {line}", markup=False)

    settings = _overrides(options.settings)
    stack = Stack(options.state_dir, say=say)
    store = StoreLayout(str(stack.paths.store))
    lineage_id = follow.unused_lineage(store, "demo")
    text = Path(store.root) / "corpora" / lineage_id
    # The corpus first: a bad one must be reported before anything is started. Its folder must be
    # closed to other users before there is text in it.
    stack.paths.create()
    if options.corpus:
        say(f"corpus: your files, {options.corpus}")
        parts = corpus.from_folder(options.corpus, text, partitions=corpus.PARTITIONS)
    else:
        say("corpus: documentation of the Python packages installed here")
        parts = corpus.build(text, partitions=corpus.PARTITIONS)
    for part in parts:
        say(f"  {part}")
    stack.up()
    api = stack.api()
    api.wait_for_dag(follow.DAG_ID)
    api.unpause(follow.DAG_ID)
    conf = settings | {
        "corpus.input_pattern": f"corpora/{lineage_id}/{{partition}}/*",
        "model.lineage_id": lineage_id,
    }
    days = [follow.run_day(api, store, partition, conf, say) for partition in corpus.PARTITIONS]
    results = [
        summary.load_result(day, store.lineage(lineage_id).manifests(day.partition)) for day in days
    ]
    left = follow.tpus_left(stack)
    path = _write(options.state_dir, summary.to_json(days, results, len(left)))
    summary.show(days, results, console)
    _show_masks(store, lineage_id, days, results, console)
    _where_to_look(stack, store.lineage(lineage_id).root, results, console)
    if left:
        raise follow.DemoError(f"TPUs are left: {', '.join(left)}")
    console.print("No TPU left: the emulator's table has no node and no queued resource.")
    console.print(f"summary: {path}")


def _overrides(words: list[str]) -> dict[str, Any]:
    try:
        overrides = parse_overrides(words)
        with_overrides(load_preset(PRESET), overrides)
        return overrides
    except ConfigError as error:
        raise follow.DemoError(str(error)) from error


def _write(state_dir: Path, content: dict[str, Any]) -> Path:
    path = (state_dir / "demo-summary.json").resolve()
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _show_masks(
    store: StoreLayout,
    lineage_id: str,
    days: list[summary.Day],
    results: list[summary.DayResult],
    console: Console,
) -> None:
    """Show what each day's model predicts for words of the last day's held-out text."""
    lineage, last = store.lineage(lineage_id), days[-1]
    words = ["--store", store.root, "--config", last.run.config]
    words += ["--set", f"{last.partition}={results[-1].manifest_uri}"]
    for day in days:
        version = lineage.version(identity.version_id(day.run.root.rpartition("/")[2]))
        if uris.exists(VersionLayout(version).model):
            words += ["--model", f"{day.partition}={version}"]
    if "--model" not in words:
        return
    began = time.monotonic()
    command = [sys.executable, "-m", "training.fill_masks", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    console.print("\nMasked words of held-out text, and what each day's model puts there:")
    if done.returncode:
        # For example too little text to show any; the models are not affected.
        console.print(done.stderr.strip().splitlines()[-1], markup=False)
        return
    console.print(done.stdout.rstrip(), markup=False)
    console.print(f"({time.monotonic() - began:.0f} s)\n")


def _where_to_look(
    stack: Stack, models: str, results: list[summary.DayResult], console: Console
) -> None:
    status = stack.status()
    console.print("Where to look")
    console.print(f"  Airflow      {status.url}  user {status.user}, password {stack.password()}")
    console.print(f"  TensorBoard  {status.tensorboard_url}")
    console.print(f"  models       {models}")
    for result in results:
        console.print(f"  data report  {result.data_report}")
    console.print("  stop it all  make down")


if __name__ == "__main__":
    sys.exit(main())
