"""Estimates of compiled steps: as JSON lines for programs, as a table for people."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from preflight.compiled.programs import ProgramId
from preflight.compiled.slices import Chip

GIB = 2.0**30


@dataclass(frozen=True)
class Figures:
    """What the compiler estimates of one step on one chip.

    ``bytes_accessed_gb`` counts operands in on-chip memory too, so it is no measure of HBM traffic;
    ``estimated_cycles`` is a second opinion. Neither is a time. Ratios are to the plain tf-models
    step of the same shape, compiled in the same run by the same compiler.
    """

    name: str
    chip: str
    rows: int
    max_seq_length: int
    dropout: float
    hbm_gib: float
    tflop: float
    bytes_accessed_gb: float
    estimated_cycles: int
    unknown_loops: int
    libtpu: str
    bytes_ratio: float | None = None
    cycles_ratio: float | None = None

    def json_line(self) -> str:
        """Return the figures as one JSON object, marked as estimates."""
        content = {
            key: value for key, value in dataclasses.asdict(self).items() if value is not None
        }
        return json.dumps(content | {"estimate": True})

    def against(self, plain: Figures) -> Figures:
        """Return these figures with their ratios to those of the plain step."""
        return dataclasses.replace(
            self,
            bytes_ratio=round(self.bytes_accessed_gb / plain.bytes_accessed_gb, 4),
            cycles_ratio=round(self.estimated_cycles / plain.estimated_cycles, 4),
        )


def figures_of(program: ProgramId, chip: Chip, compiled: dict[str, Any]) -> Figures:
    """Return the figures from what the compile side wrote.

    :param compiled: content of its output, for a program that fits.
    """
    return Figures(
        name=f"{program.name}_{chip.name}{program.suffix}",
        chip=chip.name,
        rows=program.rows,
        max_seq_length=program.max_seq_length,
        dropout=program.dropout,
        hbm_gib=round(compiled["hbm_bytes"] / GIB, 3),
        tflop=round(compiled["flops"] / 1e12, 4),
        bytes_accessed_gb=round(compiled["bytes_accessed"] / 1e9, 3),
        estimated_cycles=compiled["estimated_cycles"],
        unknown_loops=compiled["unknown_loops"],
        libtpu=compiled["versions"]["libtpu"],
    )


COLUMNS = ("step", "HBM GiB", "TFLOP", "GB accessed", "Mcycles", "bytes ratio", "cycles ratio")


def table(rows: list[Figures]) -> str:
    """Return the figures as an aligned table."""
    cells = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in cells
    ]
    return "\n".join(lines)


def _cells(row: Figures) -> tuple[str, ...]:
    ratios = (
        "" if ratio is None else f"{ratio:.3f}" for ratio in (row.bytes_ratio, row.cycles_ratio)
    )
    return (
        row.name,
        f"{row.hbm_gib:.2f}",
        f"{row.tflop:.3f}",
        f"{row.bytes_accessed_gb:.2f}",
        f"{row.estimated_cycles / 1e6:.2f}",
        *ratios,
    )
