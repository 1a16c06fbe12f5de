"""Lists the runs that the watch has to check, by two listings of the store and no reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline_alerts.delivery import KEEP_TRYING
from pipeline_alerts.running import folder_key
from pipeline_store import uris
from pipeline_store.layout import StoreLayout


@dataclass(frozen=True)
class ListedRuns:
    """Keys of runs, and of the folders of their further TPUs; each in one list at most, sorted.

    :ivar going_on: runs without an outcome; a run that a person has resumed has none.
    :ivar ended: runs with an outcome that the watch has not processed, except outcomes that are
        too old for alerts to be sent.
    :ivar renting: processed runs of which a TPU may be left.
    """

    going_on: list[str]
    ended: list[str]
    renting: list[str]

    @property
    def open(self) -> list[str]:
        """Return the runs that the watch has not processed."""
        return sorted([*self.going_on, *self.ended])

    @property
    def all(self) -> list[str]:
        """Return all runs that have to be checked."""
        return sorted([*self.open, *self.renting])


def list_runs(store: StoreLayout) -> ListedRuns:
    """Return the runs to check."""
    noted = _listed(store.alerts, "watched", "renting")
    runs = _listed(store.runs, "run", "outcome")
    watched, ended = noted["watched"], runs["outcome"]
    oldest = datetime.now(UTC) - KEEP_TRYING

    def is_dealt_with(key: str) -> bool:
        return ended[key] <= oldest or (key in watched and ended[key] <= watched[key])

    with_outcome = sorted(runs["run"].keys() & ended.keys())
    return ListedRuns(
        going_on=sorted(runs["run"].keys() - ended.keys()),
        ended=[key for key in with_outcome if not is_dealt_with(key)],
        renting=[key for key in with_outcome if is_dealt_with(key) and key in noted["renting"]],
    )


def _listed(folder: str, *stems: str) -> dict[str, dict[str, datetime]]:
    """Return when the files ``<folder>/<key>/<stem>.json`` changed, by stem and key."""
    found: dict[str, dict[str, datetime]] = {stem: {} for stem in stems}
    for details in uris.list_named(folder, *(f"{stem}.json" for stem in stems)):
        stem = details.uri.rpartition("/")[2].removesuffix(".json")
        found[stem][folder_key(details.uri)] = details.modified
    return found
