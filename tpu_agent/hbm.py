"""Recognises in a job's log that the memory of a TPU chip was too small for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The compiler says it when a program does not fit, the runtime when it cannot be loaded or cannot
# allocate. Sizes look like 17.21G or 385.25M.
_SIZE = r"([\d.]+[KMGT]?)(?:i?B)?"
_MESSAGES = [
    re.compile(text, re.IGNORECASE)
    for text in (
        rf"ran out of memory in memory space hbm(?:\. Used {_SIZE} of {_SIZE} hbm)?",
        rf"ran out of memory on HBM(?:[^\n]*?\({_SIZE}\) exceeds available HBM \({_SIZE}\))?",
        (
            rf"attempting to (?:allocate|reserve) {_SIZE}[^\n]*?That was not possible"
            rf"(?:\. There are {_SIZE} free)?"
        ),
    )
]


@dataclass(frozen=True)
class HbmShortage:
    """What a program needed and what a chip had, as the message gave it; empty if it did not."""

    needed: str = ""
    available: str = ""

    @property
    def advice(self) -> str:
        """Return what happened and what to change, in words."""
        sizes = [
            text
            for size, text in (
                (self.needed, f"{self.needed} needed"),
                (self.available, f"{self.available} available"),
            )
            if size
        ]
        return (
            f"The memory of a TPU chip (HBM) was too small{': ' if sizes else ''}"
            f"{', '.join(sizes)}. Halve training.global_batch_size, or double "
            "training.gradient_accumulation_steps: that makes the same updates in less memory."
        )


def find_shortage(log: str) -> HbmShortage | None:
    """Return the last such message of a log, or None."""
    last: re.Match[str] | None = None
    for pattern in _MESSAGES:
        for match in pattern.finditer(log):
            if last is None or match.start() > last.start():
                last = match
    if last is None:
        return None
    needed, available = last.groups()
    return HbmShortage(needed or "", available or "")
