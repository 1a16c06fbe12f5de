"""Measures the overhead of the pipeline: the last demo against the same commands run directly.

    python -m verification.benchmarks.overhead [--state-dir .local]

Runs vocabulary, data, training, evaluation and export of both days one after another, without
Airflow, database, TPU emulator or agent, in a separate store, and prints one JSON object per line.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from local.commands import run_module
from pipeline_config.command_line import command_parser
from verification.benchmarks.commands import print_result


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = command_parser("verification.benchmarks.overhead", __doc__)
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    options = parser.parse_args(argv)
    path = options.state_dir / "demo-summary.json"
    if not path.exists():
        print(f"{path} is missing; run `make demo` first.", file=sys.stderr)
        return 1
    demo = json.loads(path.read_text())
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        seconds = plain_seconds(demo, options.state_dir.resolve() / "store", Path(folder))
    for stage, spent in seconds.items():
        print_result(name=f"plain_{stage}", value=round(spent, 1), unit="s")
    wall = sum(demo["run_seconds"].values())
    pure = sum(seconds.values())
    print_result(
        name="demo_runs_vs_plain_commands",
        value=round(wall, 1),
        unit="s",
        peer="the same commands run plainly",
        peer_value=round(pure, 1),
        ratio=round(wall / pure, 3),
        allowed=round(1.5 * pure + 60, 1),
    )
    return 0


def plain_seconds(demo: dict[str, Any], store: Path, folder: Path) -> dict[str, float]:
    """Return the seconds of each command, summed over both days.

    :param demo: the demo's summary.
    :param store: the demo's store, from which corpus and configuration are copied.
    :param folder: empty folder for a separate store.
    """
    seconds: dict[str, float] = {}

    def run(stage: str, module: str, *arguments: str) -> str:
        began = time.monotonic()
        printed = run_module(module, *arguments)
        seconds[stage] = seconds.get(stage, 0.0) + time.monotonic() - began
        return printed

    shutil.copytree(store / "corpora", folder / "corpora")
    sets: list[str] = []
    previous: Path | None = None
    for partition, run_key in demo["run_keys"].items():
        here = folder / "runs" / run_key
        here.mkdir(parents=True)
        config = here / "config.json"
        shutil.copy(store / "runs" / run_key / "config.json", config)
        job = ("--config", str(config), "--store", str(folder), "--partition", partition)
        run("vocabulary", "beam_jobs.train_vocabulary", *job)
        manifest = json.loads(run("prepare", "beam_jobs.prepare_corpus", *job))["manifest"]
        start = ("--init-model", str(previous)) if previous else ()
        train = ("--run", str(here), "--store", str(folder), "--manifest", manifest, *start)
        run("train", "training.train", *train)
        place = ("--store", str(folder), "--config", str(config))
        sets += ["--set", f"{partition}={manifest}"]
        models = ["--model", f"candidate={here / 'training'}"]
        if previous:
            models += ["--model", f"baseline={previous}"]
        run(
            "evaluate",
            "training.evaluate",
            *place,
            *("--current-set", partition),
            *sets,
            *models,
            *("--output", str(here / "evaluation.json")),
        )
        # A rejected candidate was not exported.
        if (store / "runs" / run_key / "exports").exists():
            export = ("--model", str(here / "training"), "--output", str(here / "exports"))
            run("export", "training.export_model", *place, *export)
        previous = here / "training"
    return seconds


if __name__ == "__main__":
    sys.exit(main())
