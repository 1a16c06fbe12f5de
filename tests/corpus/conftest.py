"""Fixtures of this folder, from where else they are needed."""

from __future__ import annotations

from tests.beam_jobs.conftest import workspace
from tests.pipeline_store.stores import any_store, cloud_storage

__all__ = ["any_store", "cloud_storage", "workspace"]
