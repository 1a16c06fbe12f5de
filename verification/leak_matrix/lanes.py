"""Zones that scenarios get for themselves, so that they can run side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from verification.leak_matrix.cloud import Cloud

ZONES = (
    "us-central1-a",
    "us-east5-a",
    "us-east5-b",
    "us-south1-a",
    "us-west1-c",
    "us-west4-a",
    "europe-west4-b",
)
"""All zones of the emulator's catalog that offer the smallest TPU."""


class Lanes:
    """Hands out zones, empty but for a bystander."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._free = list(ZONES)
        self._changed = threading.Condition()

    @contextmanager
    def zones(self, count: int) -> Iterator[tuple[str, ...]]:
        """Wait for that many zones and keep them while the block runs."""
        with self._changed:
            while len(self._free) < count:
                self._changed.wait()
            taken = tuple(self._free.pop(0) for _ in range(count))
        try:
            self._cloud.clear(taken)
            for zone in taken:
                self._cloud.add_bystander(zone)
            yield taken
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()
