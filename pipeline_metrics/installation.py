"""Reads the state that belongs to no lineage: arrivals, the watch, the reaper, and open alerts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from pipeline_alerts.causes import CLEARING, base_cause, is_one_of
from pipeline_alerts.delivery import is_alert
from pipeline_metrics.reading import Reader, Source
from pipeline_store import identity, uris
from pipeline_store.details import ObjectDetails
from pipeline_store.formats import Alert, CorpusSeen, PartitionArrival, ReaperPass, WatchPass
from pipeline_store.layout import StoreLayout

NEWS = timedelta(days=1)
"""Time for which an alert counts as open if its end is never recorded, as for a failed task."""

CLEARED = ".cleared.json"


class AlertKind(NamedTuple):
    """The labels of alerts that are counted together; empty: no lineage, or no DAG."""

    cause: str
    lineage_id: str = ""
    dag_id: str = ""


@dataclass
class SeenInstallation:
    """The state of a store that belongs to no lineage.

    :ivar waiting: partitions of the corpus for whose last seen state no run was started; None:
        cannot be read.
    :ivar alerts: number of open alerts by kind; None: cannot be read.
    """

    waiting: list[PartitionArrival] | None = None
    corpus: CorpusSeen | None = None
    watch: WatchPass | None = None
    reapers: list[ReaperPass] = field(default_factory=list)
    alerts: Counter[AlertKind] | None = None


def read_installation(store: StoreLayout, reader: Reader, now: datetime) -> SeenInstallation:
    """Return the state of the installation, without files that are damaged."""
    corpus = reader.load(Source.ARRIVALS, CorpusSeen, store.corpus_seen)
    return SeenInstallation(
        waiting=_waiting(store, reader, corpus),
        corpus=corpus,
        watch=reader.load(Source.WATCH, WatchPass, store.watch_pass),
        reapers=_reapers(store, reader),
        alerts=reader.attempt(Source.ALERTS, lambda: _open_alerts(store, reader, now)),
    )


def _waiting(
    store: StoreLayout, reader: Reader, corpus: CorpusSeen | None
) -> list[PartitionArrival] | None:
    """Return the partitions that wait for a run; a file is read again only if it has changed.

    :param corpus: the existing partitions; others, and those of other patterns, do not count. None:
        the watch has not listed the corpus yet, and all count.
    """
    listed = reader.attempt(Source.ARRIVALS, lambda: uris.list_details(store.arrivals))
    if listed is None:
        return None
    arrivals = [one for one in listed if _is_there(store, one.uri, corpus)]
    found = [_arrival(reader, one) for one in arrivals]
    readable = [one for one in found if one is not None]
    if len(readable) < len(found):
        return None
    return [one for one in readable if not one.is_started]


def _is_there(store: StoreLayout, uri: str, corpus: CorpusSeen | None) -> bool:
    if corpus is None:
        return "/partitions/" in uri
    key = identity.corpus_key(corpus.pattern)
    name = uri.rpartition("/")[2].removesuffix(".json")
    return name in corpus.partitions and uri == store.arrival(key, name)


def _arrival(reader: Reader, details: ObjectDetails) -> PartitionArrival | None:
    def read() -> PartitionArrival:
        return PartitionArrival.load(details.uri)

    return reader.attempt(Source.ARRIVALS, lambda: reader.kept(details, read))


def _reapers(store: StoreLayout, reader: Reader) -> list[ReaperPass]:
    listed = reader.attempt(Source.REAPER, lambda: uris.list_files(store.reapers)) or []
    found = [reader.load(Source.REAPER, ReaperPass, uri) for uri in listed]
    return [one for one in found if one is not None]


def _open_alerts(store: StoreLayout, reader: Reader, now: datetime) -> Counter[AlertKind]:
    """Return the number of open alerts, by a listing; each alert is read only once."""
    listed = uris.list_details(store.alerts)
    over = {one.uri.removesuffix(CLEARED) for one in listed if one.uri.endswith(CLEARED)}
    found: Counter[AlertKind] = Counter()
    for one in listed:
        stem = one.uri.removesuffix(".json")
        name = stem.rpartition("/")[2]
        if not is_alert(store, one.uri) or stem in over:
            continue
        if is_one_of(name, CLEARING) or now - one.modified < NEWS:
            alert = reader.unchanging(Source.ALERTS, Alert, one.uri)
            about = (alert.lineage_id or "", alert.dag_id or "") if alert is not None else ("", "")
            found[AlertKind(_cause(name), *about)] += 1
    return found


def _cause(name: str) -> str:
    try:
        return str(base_cause(name))
    except ValueError:
        return "other"  # a cause of a newer program
