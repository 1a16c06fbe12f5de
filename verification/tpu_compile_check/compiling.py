"""Runs the compile side in its own environment, one process per program, with progress reports."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preflight.compiled.errors import CheckError
from preflight.compiled.slices import Chip

ROOT = Path(__file__).parents[2]
DEFAULT_COMPILER = ROOT / ".venv-tpu-compile" / "bin" / "python"
BEAT_SECONDS = 15.0
LOG_TAIL = 2000

Report = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Print a line of progress to stderr, separate from the JSON lines."""
    print(line, file=sys.stderr, flush=True)


def compile_program(
    program: Path, chip: Chip, *, compiler: Path = DEFAULT_COMPILER, report: Report = to_stderr
) -> dict[str, Any]:
    """Return the output of :mod:`verification.tpu_compile_check.compiler` for a program on a chip.

    The schedule, with every fusion's estimate, is kept next to the program for reading.

    :param program: serialized HLO.
    :param compiler: Python of the compiler's environment.
    :raises CheckError: there is no such environment, or the compiler fails.
    """
    if not compiler.exists():
        raise CheckError(
            f"{compiler} does not exist: the TPU compiler has an environment of its own; make it "
            "with `make tpu-compile-check`, or export only, with --export-only."
        )
    output = program.with_suffix(f".{chip.name}.json")
    output.unlink(missing_ok=True)
    command = [str(compiler), "-m", "verification.tpu_compile_check.compiler", str(program)]
    command += ["--topology", chip.topology, "--output", str(output)]
    command += ["--schedule", str(program.with_suffix(f".{chip.name}.txt"))]
    for name, value in chip.options.items():
        command += ["--topology-option", f"{name}={value}"]
    log = program.with_suffix(f".{chip.name}.log")
    with log.open("w") as stream:
        process = subprocess.Popen(command, cwd=ROOT, stdout=stream, stderr=stream)
        _wait(process, program.name.removesuffix(".hlo.pb"), chip, report)
    if process.returncode or not output.exists():
        raise CheckError(
            f"The compiler for {chip.topology} ended with code {process.returncode} on {program}; "
            f"the end of {log}:\n{log.read_text()[-LOG_TAIL:]}"
        )
    content: dict[str, Any] = json.loads(output.read_text())
    return content


def _wait(process: subprocess.Popen[bytes], name: str, chip: Chip, report: Report) -> None:
    """Wait for the compiler, which is silent for minutes; kill it on an error."""
    begin = time.monotonic()
    report(f"{name}: compiling for {chip.name} ...")
    try:
        while process.poll() is None:
            try:
                process.wait(BEAT_SECONDS)
            except subprocess.TimeoutExpired:
                report(f"{name}: still compiling after {time.monotonic() - begin:.0f} s")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    report(f"{name}: compiled in {time.monotonic() - begin:.0f} s")
