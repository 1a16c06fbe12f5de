"""Checks the installation, apart from any run: a dead reaper, no new text, a changed identity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from corpus.partitions import find_partitions
from pipeline_alerts.causes import Cause
from pipeline_alerts.raising import raise_about_installation
from pipeline_store.formats import Alert, CorpusSeen, FormatError
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.control.reaper_status import newest_pass, reaper_problem
from tpu_lifecycle.records.installation import new_identity

REAPER_MAX_AGE = timedelta(hours=1)
"""Age of the newest pass above which the reaper is reported: it should start every ten minutes."""

LOOK_AT_CORPUS_EVERY = timedelta(hours=1)
"""Interval between checks of the corpus, as each lists all of its files."""


def check_reaper(store: StoreLayout, owner: str, unbroken_since: datetime) -> Alert | None:
    """Raise an alert when no reaper would delete a TPU that its run failed to delete.

    :param unbroken_since: since when the watch has run without a gap. A reaper that was silent only
        while Airflow was down has not had its turn yet.
    :returns: the alert, if it is new: one for each time that the reaper falls silent.
    """
    newest = newest_pass(store, owner)
    silent_since = max(newest.finished, unbroken_since) if newest else unbroken_since
    problem = reaper_problem(store, owner, None, REAPER_MAX_AGE)
    if problem is None or datetime.now(UTC) - silent_since <= REAPER_MAX_AGE:
        return None
    last = f"{newest.finished:%Y%m%dT%H%M%S}" if newest else "never"
    return raise_about_installation(
        store,
        f"reaper-{owner}-{last}",
        Cause.REAPER_SILENT,
        about=f"TPU reaper of {owner}",
        summary="silent",
        reason=problem,
    )


def check_identity(store: StoreLayout) -> Alert | None:
    """Raise an alert when TPUs may be rented that the store no longer recognizes as its own.

    :returns: the alert, if it is new: one for each identity.
    """
    new = new_identity(store)
    if new is None:
        return None
    return raise_about_installation(
        store,
        f"identity-{new.label or 'lost'}",
        Cause.NEW_IDENTITY,
        about="store",
        summary="it has a new identity",
        reason=new.text,
    )


def check_corpus(store: StoreLayout, pattern: str, quiet: timedelta) -> Alert | None:
    """Raise an alert when no new partition has come for too long; record the known partitions.

    :param pattern: ``corpus.input_pattern``; without ``{partition}`` nothing is checked.
    :param quiet: longest time without a new partition; zero: never report.
    :returns: the alert, if it is new: one for each time that nothing comes.
    """
    if not quiet or "{partition}" not in pattern:
        return None
    seen = _look(store, pattern)
    if datetime.now(UTC) - seen.grown <= quiet:
        return None
    newest = seen.partitions[-1] if seen.partitions else "none at all"
    return raise_about_installation(
        store,
        f"corpus-{seen.grown:%Y%m%dT%H%M%S}",
        Cause.NOTHING_NEW,
        about="corpus",
        summary=f"nothing new for {quiet.total_seconds() / 86400:g} days",
        reason=f"The watch has seen no new partition of {pattern} since {seen.grown:%F %T} UTC. "
        f"The last one by name: {newest}. Reported after REPRETRAIN_QUIET_DAYS.",
    )


def _look(store: StoreLayout, pattern: str) -> CorpusSeen:
    now = datetime.now(UTC)
    before = _seen(store)
    if before is not None and before.pattern != pattern:
        before = None
    if before is not None and now - before.looked < LOOK_AT_CORPUS_EVERY:
        return before
    found = find_partitions(pattern, store)
    has_grown = before is None or not set(found) <= set(before.partitions)
    after = CorpusSeen(
        pattern=pattern,
        partitions=found,
        grown=now if before is None or has_grown else before.grown,
        looked=now,
    )
    after.write(store.corpus_seen)
    return after


def _seen(store: StoreLayout) -> CorpusSeen | None:
    try:
        return CorpusSeen.load_or_none(store.corpus_seen)
    except FormatError:
        return None  # a damaged file is replaced
