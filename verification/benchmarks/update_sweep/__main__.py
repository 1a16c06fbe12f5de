"""Compares the settings of an update: a published encoder is continued in many ways and measured.

Copy-paste: ``python -m verification.benchmarks.update_sweep --encoder FOLDER --dry-run``. The
encoder gets a masked-LM head; then each cell of the grid is a training on text about another
subject, from this same start, by the pipeline's own commands: rate, share of replay, kind of masks,
and seed. Each is measured by its loss on held-out text of the domain and of the old text, by
retrieval, and by a classifier on the encoder. Results are lines of JSON; the same command resumes
after an interruption. Exit code: 0 if all is done; 1 if not, with a message.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.benchmarks.commands import say
from verification.benchmarks.update_sweep import results, table
from verification.benchmarks.update_sweep.grid import FULL, QUICK, Cell, Scale, cells
from verification.checks import add_state_dir

_THREADS = dict.fromkeys(
    ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"), "2"
)
_STEP_SECONDS, _CELL_SECONDS = 0.5, 45.0
"""Seconds of a step with 16 rows, and of all other work of a cell, on two quiet cores."""
_BEGIN, _END = "<!-- make update-sweep -->\n", "<!-- end of make update-sweep -->\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(argv)
    scale = QUICK if options.quick else FULL
    folder = options.state_dir / ("quick" if options.quick else "full")
    path = folder.with_suffix(".jsonl")
    try:
        if options.table:
            _write_table(path, options.table)
        elif options.dry_run:
            _show_grid(scale, path)
        else:
            _sweep(folder, options.encoder, scale, path)
    except (results.ResultsError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"update-sweep: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    made = command_parser("verification.benchmarks.update_sweep", __doc__)
    made.add_argument("--encoder", type=Path, metavar="FOLDER", help="a Hugging Face folder")
    add_state_dir(made, "update-sweep", "folder of texts, start, and results, full.jsonl")
    made.add_argument("--quick", action="store_true", help="a few steps: whether it works")
    made.add_argument(
        "--dry-run", action="store_true", help="show the grid and how long it takes; do nothing"
    )
    made.add_argument(
        "--table",
        type=Path,
        metavar="PAGE",
        help=f"only write what there is to a page, between {_BEGIN.strip()} and {_END.strip()}",
    )
    return made


def estimate(cell: Cell, scale: Scale) -> float:
    """Return the seconds of a cell on two quiet cores."""
    return cell.arm.steps * scale.rows / 16 * _STEP_SECONDS + _CELL_SECONDS


def _show_grid(scale: Scale, path: Path) -> None:
    done = {row.name: row for row in results.read(path)[1]} if path.exists() else {}
    planned = list(cells(scale))
    for cell in planned:
        print(f"{cell.name}  {'done' if cell.name in done else f'{estimate(cell, scale):.0f} s'}")
    taken = [
        (done[cell.name].seconds, estimate(cell, scale)) for cell in planned if cell.name in done
    ]
    pace = sum(took for took, _ in taken) / sum(all_ for _, all_ in taken) if taken else 1.0
    left = [estimate(cell, scale) * pace for cell in planned if cell.name not in done]
    print(
        f"{len(left)} of {len(planned)} cells left, {sum(left) / 60:.0f} minutes "
        f"{'at the pace of those that are done' if taken else 'on two quiet cores'}"
    )


def _sweep(folder: Path, encoder: Path | None, scale: Scale, path: Path) -> None:
    if encoder is None:
        raise results.ResultsError("--encoder is missing: the folder of the model to start from.")
    # What a step takes, and beside what, is the same in all cells; TensorFlow is not yet imported.
    os.environ.update(_THREADS)
    from verification.benchmarks.recipes.workshop import apart
    from verification.benchmarks.update_sweep.laboratory import Laboratory

    laboratory = Laboratory(folder, encoder, scale)
    with results.opened(path, laboratory.settings) as kept:

        def add(measure: Callable[[], results.Row]) -> None:
            row = measure()
            kept.add(row)
            say(f"{row.name}: {row.values}; {row.seconds:.0f} s")

        work = {results.START: laboratory.start}
        work |= {cell.name: partial(laboratory.run, cell) for cell in cells(scale)}
        for name, measure in work.items():
            if name not in kept.rows:
                # It writes its own result, and holds the file, even when this process is killed.
                apart(name, partial(add, measure))
    say(f"done: {path}")


def _write_table(path: Path, page: Path) -> None:
    settings, rows = results.read(path)
    before, begin, rest = page.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise results.ResultsError(f"{page} has no line {_BEGIN.strip()}, and {_END.strip()} below")
    found = table.markdown(table.Sweep(settings, rows))
    page.write_text(f"{before}{begin}\n{found}\n\n{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
