"""Formats numbers, times and Airflow's addresses for the pages."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from model_registry import lease

UNKNOWN = "-"


def loss(value: float | None) -> str:
    """Return a loss with four decimals."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:z.4f}"


def signed(value: float | None) -> str:
    """Return a difference of losses with its sign."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:+z.4f}"


def recall(value: float | None) -> str:
    """Return the share of documents that were found, with three decimals."""
    return UNKNOWN if value is None else f"{value:.3f}"


def number(value: float | None) -> str:
    """Return a count or an amount, with two decimals if it is not whole."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def money(value: float | None) -> str:
    """Return an amount of money with two decimals."""
    return UNKNOWN if value is None else f"{value:,.2f}"


def percent(value: float | None) -> str:
    """Return a share as a percentage with one decimal."""
    return UNKNOWN if value is None else f"{value:.1%}"


def time(value: datetime | None) -> str:
    """Return a time in UTC."""
    return UNKNOWN if value is None else f"{value.astimezone(UTC):%F %H:%M}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


def size(count: int) -> str:
    """Return a number of bytes in a suitable unit."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{count / 1000**power:,.1f} {unit}"
    return f"{count} bytes"


def sentence(text: str) -> str:
    """Return a text with a capital first letter, the rest as it is."""
    return text[:1].upper() + text[1:]


def segment(value: str) -> str:
    """Return a text quoted as one segment of an address's path."""
    return quote(value, safe="")


FILTERS: dict[str, Callable[..., Any]] = {
    "loss": loss,
    "recall": recall,
    "signed": signed,
    "number": number,
    "money": money,
    "percent": percent,
    "time": time,
    "duration": duration,
    "bytes": size,
    "segment": segment,
    "sentence": sentence,
    "lease": lease.describe,
}
