"""Serves the metrics of a store to Prometheus, or prints them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline_metrics.catalogue import METRICS, Kind
from pipeline_metrics.snapshot import Snapshot


class StoreCollector(Collector):
    """A collector of metrics from snapshots; concurrent scrapes share a snapshot.

    :param take: reads the store.
    :param max_age_seconds: age up to which a snapshot is reused.
    """

    def __init__(self, take: Callable[[], Snapshot], max_age_seconds: float) -> None:
        self._take = take
        self._max_age = max_age_seconds
        self._lock = threading.Lock()
        self._taken: tuple[float, Snapshot] | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that the store has values for."""
        snapshot = self.snapshot()
        for metric in METRICS:
            counter = metric.kind is Kind.COUNTER
            kind = CounterMetricFamily if counter else GaugeMetricFamily
            family = kind(metric.full_name, metric.help, labels=metric.labels)
            # A file and a manual copy of it yield the same labels, and Prometheus rejects a scrape
            # with a duplicate series.
            for labels, value in dict(metric.read(snapshot)).items():
                family.add_metric(labels, value)
            if family.samples:
                yield family

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the store, at most about ``max_age_seconds`` old."""
        with self._lock:
            if self._taken is None or time.monotonic() - self._taken[0] >= self._max_age:
                self._taken = (time.monotonic(), self._take())
            return self._taken[1]


def text(collector: StoreCollector) -> str:
    """Return one scrape, in Prometheus' text format."""
    return generate_latest(_registry(collector)).decode()


def serve(collector: StoreCollector, host: str, port: int) -> tuple[WSGIServer, threading.Thread]:
    """Answer scrapes until the server is shut down; returns at once.

    The store is read before the port is open: the first reading takes longest.

    :param port: the port; 0: a free one, which the returned server knows.
    :raises OSError: the port is not available.
    """
    collector.snapshot()
    return start_http_server(port, host, _registry(collector))


def _registry(collector: StoreCollector) -> CollectorRegistry:
    # Without descriptions, which would take a scrape.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry
