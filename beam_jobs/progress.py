"""Says on stderr how far the data job is."""

from __future__ import annotations

import logging
import threading
import time

from beam_jobs.conversion import ShardStatistics
from pipeline_store.formats import ShardManifest, ShardOutcome, Split

_SECONDS_BETWEEN_LINES = 2.0

logger = logging.getLogger(__name__)


class ProgressMeter:
    """Counts over all shards that this process works on; its threads share one.

    :param shards: how many shards the partition has.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._lock = threading.Lock()
        self._start = self._last_line = time.monotonic()
        self._finished = 0
        self._done = (0, 0)
        self._running: dict[str, tuple[int, int]] = {}

    def update(self, input_uri: str, statistics: ShardStatistics) -> None:
        """Take note of a shard's statistics so far."""
        with self._lock:
            self._running[input_uri] = (statistics.documents, statistics.tokens)
            self._say()

    def finish(self, shard: ShardManifest, outcome: ShardOutcome) -> None:
        """Take note of a shard that is done."""
        with self._lock:
            self._finished += 1
            self._running.pop(outcome.input_uri, None)
            if outcome.reused:
                logger.info("reused: %s is done, %s", outcome.input_uri, outcome.manifest_uri)
            else:
                tokens = sum(shard.files[split].tokens for split in Split)
                self._done = (self._done[0] + shard.documents, self._done[1] + tokens)
            self._say(always=self._finished == self._shards)

    def _say(self, always: bool = False) -> None:
        now = time.monotonic()
        if not always and now - self._last_line < _SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        documents, tokens = map(sum, zip(self._done, *self._running.values(), strict=True))
        logger.info(
            "%d of %d shards, %s documents, %s tokens, %s tokens/s",
            self._finished,
            self._shards,
            f"{documents:,}",
            f"{tokens:,}",
            f"{tokens / max(now - self._start, 1e-9):,.0f}",
        )
