"""Compiles the trainer's own step with the real TPU compiler, without a TPU.

    python -m verification.tpu_compile_check --preset bert_base_v5e --compare-plain

Prints one JSON object per line to stdout, all of them estimates of the compiler; a table and
progress to stderr. The figures are documented in docs/evidence/tpu-compile-check.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipeline_config import ConfigError, load_preset, preset_names, with_overrides
from pipeline_config.command_line import command_parser
from pipeline_config.loading import parse_overrides
from pipeline_store.formats import ExitKind
from preflight.compiled import saved
from preflight.compiled.errors import CheckError, DoesNotFitError
from preflight.compiled.figures import Comparison, Figures, comparison_table, exceeded, table
from preflight.compiled.slices import CHIPS, chip_named
from trained_models.decided_steps import with_steps
from verification.tpu_compile_check.check import Request, check, export_program, programs
from verification.tpu_compile_check.compiling import DEFAULT_COMPILER, to_stderr


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(argv)
    try:
        with _folder(options.keep) as folder:
            return _run(options, folder)
    except DoesNotFitError as error:
        print(error.json_line())
        to_stderr(str(error))
        return ExitKind.OUT_OF_MEMORY.exit_code
    except (CheckError, ConfigError) as error:
        to_stderr(str(error))
        return ExitKind.USER_ERROR.exit_code
    except KeyboardInterrupt:
        to_stderr("interrupted")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "verification.tpu_compile_check",
        __doc__,
        epilog="exit codes: 0 all well, 1 a limit is exceeded, 40 configuration, lint or compiler "
        "environment, 42 the step does not fit into the memory of a chip",
    )
    parser.add_argument(
        "--preset",
        dest="presets",
        action="append",
        metavar="NAME",
        help=f"one of {', '.join(preset_names())}, or a .toml file; may be given several times "
        "(default: bert_base_v5e)",
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="replace one setting; may be given several times",
    )
    parser.add_argument(
        "--topology",
        choices=sorted(CHIPS),
        help="chip to compile for (default: the chip of tpu.accelerator_type)",
    )
    parser.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="rows of one replica (default: the global batch over the replicas of "
        "tpu.accelerator_type)",
    )
    parser.add_argument(
        "--evaluation", action="store_true", help="the evaluation step instead of the training step"
    )
    parser.add_argument(
        "--compare-plain",
        action="store_true",
        help="also compile the step of plain tf-models, with its own activation and with ours, all "
        "with dropout 0, and print the ratios",
    )
    parser.add_argument(
        "--max-compiles",
        type=int,
        default=8,
        metavar="N",
        help="most programs compiled to find the largest batch that fits (default: %(default)s)",
    )
    parser.add_argument(
        "--export-only",
        action="store_true",
        help="write and lint the programs, compile nothing; needs no compiler",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep programs, schedules and logs there"
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help="store the figures of training steps in preflight/compiled/figures.json",
    )
    parser.add_argument(
        "--compiler",
        type=Path,
        default=DEFAULT_COMPILER,
        metavar="PYTHON",
        help="Python of the compiler's environment (default: %(default)s)",
    )
    return parser


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="tpu-compile-check-") as folder:
        yield Path(folder)


def _run(options: argparse.Namespace, folder: Path) -> int:
    rows: list[Figures] = []
    compared: list[Comparison] = []
    for preset in options.presets or ["bert_base_v5e"]:
        request = _request(options, preset, folder)
        if options.export_only:
            _export(request, compare_plain=options.compare_plain)
            continue
        own = programs(request, compare_plain=False)[0][1]
        for wanted, figures, comparisons in check(request, compare_plain=options.compare_plain):
            print(figures.json_line(), flush=True)
            for comparison in comparisons:
                print(comparison.json_line(), flush=True)
            rows.append(figures)
            compared += comparisons
            if options.save and request.step == "train" and wanted == own:
                saved.save(request.config, figures)
    if rows:
        to_stderr(f"\nEstimates of the compiler, libtpu {rows[0].libtpu}:\n{table(rows)}")
    if compared:
        to_stderr(f"\n{comparison_table(compared)}")
    problems = [line for comparison in compared for line in exceeded(comparison)]
    for line in problems:
        to_stderr(line)
    return 1 if problems else 0


def _request(options: argparse.Namespace, preset: str, folder: Path) -> Request:
    config = with_overrides(load_preset(preset), parse_overrides(options.overrides))
    if config.training.train_steps == "auto":
        # The number of steps only affects the learning rates, which are constants in the program.
        config = with_steps(config, config.training.max_train_steps)
    return Request(
        config=config,
        chip=chip_named(options.topology, config),
        folder=folder,
        compiler=options.compiler,
        report=to_stderr,
        step="evaluation" if options.evaluation else "train",
        rows=options.rows,
        max_compiles=options.max_compiles,
    )


def _export(request: Request, *, compare_plain: bool) -> None:
    for config, wanted in programs(request, compare_plain=compare_plain):
        program = export_program(request, config, wanted)
        path = program.write(request.folder)
        line = {"name": str(wanted), "hlo_bytes": len(program.hlo), "path": str(path)}
        batch = {a.name: [a.dtype, *a.shape] for a in program.arguments if a.is_batch}
        print(json.dumps(line | {"batch": batch, "arguments": len(program.arguments)}))


if __name__ == "__main__":
    # Treated as an interrupt, so that no compiler outlives this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
