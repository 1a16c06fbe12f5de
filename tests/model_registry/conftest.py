from __future__ import annotations

from tests.pipeline_store.stores import any_store, cloud_storage

__all__ = ["any_store", "cloud_storage"]
