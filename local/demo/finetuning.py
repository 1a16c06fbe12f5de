"""Measures whether pretraining pays on a labeled task made from this installation's text.

    python -m local.demo.finetuning {docstrings,neighbours,word-order} [--state-dir .local]

Builds the task, pretrains a small BERT on docstrings that are not in it, fine-tunes that one and a
randomly initialized one over some seeds, and compares both with simple methods. The last line is a
JSON object. Existing results are reused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from local.demo.tasks import docstrings, examples, neighbours, word_order
from local.demo.tasks.baselines import linear, majority
from local.demo.tasks.examples import Task
from local.demo.tasks.modules import harvest
from local.demo.tasks.pretraining import STEPS, pretrain, store_of
from local.demo.tasks.results import Comparison, Result, compare
from local.demo.tasks.trials import PRETRAINED, UNTRAINED, Recipe, finetune
from pipeline_config.command_line import command_parser
from pipeline_store.layout import StoreLayout

BUILDERS = {module.NAME: module.build for module in (docstrings, neighbours, word_order)}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status, which does not depend on the comparison."""
    options = _parser().parse_args(argv)
    console = Console(soft_wrap=True, highlight=False)
    try:
        _run(options, console)
    except subprocess.CalledProcessError as error:
        words = " ".join(error.cmd[1:4])
        print(f"finetuning: {words} ended with code {error.returncode}", file=sys.stderr)
        return 1
    except (FileNotFoundError, ValueError) as error:
        print(f"finetuning: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("local.demo.finetuning", __doc__)
    parser.add_argument("task", choices=list(BUILDERS))
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    parser.add_argument(
        "--store",
        type=_absolute,
        metavar="FOLDER",
        help="where everything is kept, by default a folder of the state directory; with "
        "--build-only that of the local stack, .local/store, lets the DAG use the task",
    )
    parser.add_argument(
        "--seeds", type=_numbers, default=Recipe.random_seeds, help="of the fine-tunings: 1,2,3"
    )
    parser.add_argument(
        "--pretraining-steps",
        type=int,
        default=STEPS,
        metavar="N",
        help=f"default: {STEPS}; other numbers make other models",
    )
    parser.add_argument(
        "--build-only", action="store_true", help="write the task into the store, and end"
    )
    return parser


def _absolute(path: str) -> str:
    return str(Path(path).resolve())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _run(options: argparse.Namespace, console: Console) -> None:
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[{time.monotonic() - began:5.0f} s] {line}", markup=False)

    store = store_of(options.state_dir) if options.store is None else StoreLayout(options.store)
    say("reading the docstrings of the installed packages")
    found = harvest()
    task = BUILDERS[options.task](found)
    folder = Path(store.task(task.name).root)
    examples.write(task, folder)
    sizes = ", ".join(f"{len(part):,} {split}" for split, part in task.splits.items())
    say(f"task {task.name}: {sizes} examples in {folder}")
    if options.build_only:
        return
    say("simple methods")
    simple = {"majority": majority(task)} | linear(task)
    pretrained = pretrain(store, found, say, steps=options.pretraining_steps)
    recipe = replace(Recipe(), random_seeds=options.seeds)
    trained = finetune(store, task, pretrained, recipe, say)
    results = simple | {UNTRAINED: trained[UNTRAINED], PRETRAINED: trained[PRETRAINED]}
    comparisons = {
        name: compare(trained[PRETRAINED], other)
        for name, other in results.items()
        if name != PRETRAINED
    }
    console.print(_table(task.name, [*results.values()]))
    for comparison in comparisons.values():
        console.print(str(comparison), markup=False)
    print(json.dumps(to_json(task, results, comparisons) | {"seconds": time.monotonic() - began}))


def to_json(
    task: Task, results: Mapping[str, Result], comparisons: Mapping[str, Comparison]
) -> dict[str, Any]:
    """Return the content of the last line: all numbers, and what the pretrained encoder beats."""
    return {
        "task": task.name,
        "examples": {str(split): len(part) for split, part in task.splits.items()},
        "metrics": {
            name: {"accuracy": result.accuracy, "macro_f1": result.macro_f1}
            for name, result in results.items()
        },
        **{f"beats_{name}": comparison.beats for name, comparison in comparisons.items()},
        "differences": {
            name: [comparison.difference, comparison.low, comparison.high]
            for name, comparison in comparisons.items()
        },
    }


def _table(name: str, results: Sequence[Result]) -> Table:
    table = Table("method", "accuracy", "macro F1", "seeds", title=f"{name}: test split")
    for result in results:
        f1 = sum(result.macro_f1) / len(result.macro_f1)
        accuracy = f"{result.mean:.3f}"
        if len(result.accuracy) > 1:
            accuracy += f" ± {result.deviation:.3f}"
        table.add_row(result.name, accuracy, f"{f1:.3f}", str(len(result.accuracy)))
    return table


if __name__ == "__main__":
    sys.exit(main())
