"""The output of every benchmark: one JSON object per line, in one schema, with the machine.

python -m verification.benchmarks.results FILE.jsonl...   # a table for docs/evidence
python -m verification.benchmarks.results --schema        # the JSON Schema of a line
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline_config.command_line import command_parser

Bench = Literal["data", "train", "finetune"]
# Ordered by how much they speed up, largest first.
_BFLOAT16_UNITS = ("amx_bf16", "avx512_bf16")
_HEAD = ("row", "value", "ratio", "best of", "CPU ratio", "spread", "load", "peak", "compared with")


@dataclass(frozen=True)
class Row:
    """One measurement; a ratio is how many times better than the peer it is, more is better.

    :param ratio: ratio of the median wall-clock times.
    :param cpu_ratio: ratio of the CPU times, which other work on the machine affects least.
    :param best_ratio: ratio of the best rounds of the two sides.
    :param spread: ratio of the largest round to the smallest; None for a row that other work does
        not affect, such as a share.
    :param utilization: share of the machine's limit.
    :param details: everything else that belongs to the row.
    """

    name: str
    value: float
    unit: str
    peer: str | None = None
    ratio: float | None = None
    cpu_ratio: float | None = None
    best_ratio: float | None = None
    spread: float | None = None
    utilization: float | None = None
    peak_rss_mb: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Load(_Line):
    """The machine's load average over a minute; the benchmark's own threads count."""

    before: float
    during: float = Field(description="the highest that was seen")
    after: float


class Machine(_Line):
    """The machine on which a row was measured."""

    processor: str
    cores: int
    memory_gb: float
    system: str
    python: str


class Result(_Line):
    """One output line of a benchmark."""

    benchmark: Bench
    name: str
    value: float
    unit: str
    peer: str | None
    ratio: float | None = Field(description="times better than the peer, by wall clock, median")
    cpu_ratio: float | None = Field(description="the same by CPU time")
    best_ratio: float | None = Field(description="the same by the best round of either side")
    spread: float | None = Field(description="largest over smallest of the rounds")
    utilization: float | None = Field(description="share of what the machine can do")
    peak_rss_mb: float | None
    disturbed: bool = Field(description="the rounds spread too much, in every attempt: no result")
    attempts: int
    load: Load
    date: datetime.date
    machine: Machine
    details: dict[str, Any]


def this_machine() -> Machine:
    """Return the description of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        processor=processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(memory / 1e9, 1),
        system=f"{platform.system()} {platform.release().partition('-')[0]}",
        python=platform.python_version(),
    )


def processor() -> str:
    """Return the name of the processor."""
    return _cpuinfo().get("model name", platform.machine())


def bfloat16_units() -> str | None:
    """Return the bfloat16 instructions of the processor, or None.

    Without them, a library computes in float32 and converts, so bfloat16 is not faster.
    """
    flags = _cpuinfo().get("flags", "").split()
    return next((unit for unit in _BFLOAT16_UNITS if unit in flags), None)


def _cpuinfo() -> dict[str, str]:
    """Return the fields of the first processor."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    fields = (line.partition(":") for line in first.split("\n"))
    return {name.strip(): value.strip() for name, _, value in fields}


def rounded(value: Any) -> Any:
    """Return a number with four decimals, or none if it is large; also inside dicts."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if not isinstance(value, float):
        return value
    return round(value, 4) if abs(value) < 1000 else round(value)


def markdown(results: Iterable[Result]) -> str:
    """Return a Markdown table of results for each machine and day, with the machine above it."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        where = result.machine
        title = (
            f"{result.date}; {where.processor}, {where.cores} cores, {where.memory_gb:.0f} GB, "
            f"{where.system}, Python {where.python}"
        )
        groups.setdefault(title, []).append(result)
    return "\n\n".join(f"{title}\n\n{_table(rows)}" for title, rows in groups.items())


def _table(rows: Sequence[Result]) -> str:
    cells = [_HEAD, ["---"] * len(_HEAD), *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _cells(row: Result) -> list[str]:
    return [
        f"`{row.name}`" + (" **disturbed**" if row.disturbed else ""),
        _number(row.value, row.unit),
        _number(row.ratio, "x"),
        _number(row.best_ratio, "x"),
        _number(row.cpu_ratio, "x"),
        _number(row.spread, "x"),
        f"{row.load.before:.1f} / {row.load.during:.1f} / {row.load.after:.1f}",
        _number(row.peak_rss_mb, "MB"),
        row.peer or "",
    ]


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{digits} {unit}" if unit != "share" else f"{value:.4f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser("verification.benchmarks.results", __doc__)
    parser.add_argument("files", type=Path, nargs="*", help="what benchmarks printed")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a line")
    options = parser.parse_args(argv)
    if options.schema:
        print(json.dumps(Result.model_json_schema(), indent=1))
        return 0
    lines = [line for file in options.files for line in file.read_text().splitlines()]
    print(markdown(Result.model_validate_json(line) for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
