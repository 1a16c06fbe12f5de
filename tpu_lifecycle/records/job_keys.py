"""Keeps the key that signs a reservation's jobs, from the reservation to its release."""

from __future__ import annotations

from pipeline_store import job_signatures, uris
from pipeline_store.formats import JobKey
from pipeline_store.layout import StoreLayout


def establish(store: StoreLayout, run_key: str, generation: int) -> None:
    """Create the key of a new reservation; of two concurrent callers, only one creates it."""
    key = JobKey(run_key=run_key, generation=generation, key=job_signatures.new_key())
    key.create(store.job_key(run_key, generation))


def find(store: StoreLayout, run_key: str, generation: int) -> str | None:
    """Return the key; None when the reservation was made by a version that signed no jobs.

    :raises FormatError: its file is damaged.
    """
    found = JobKey.load_or_none(store.job_key(run_key, generation))
    return found.key if found else None


def forget(store: StoreLayout, run_key: str, generation: int) -> None:
    """Remove the key of a reservation whose TPUs are all gone."""
    uris.delete(store.job_key(run_key, generation))
