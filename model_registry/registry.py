"""The registry's operations in one place; see the modules that define them."""

from __future__ import annotations

from model_registry.errors import (
    DamagedVersionError,
    LeaseLostError,
    ProductionMovedError,
    RegistryError,
    StalePlanError,
)
from model_registry.production import production, promote, rollback
from model_registry.publishing import publish
from model_registry.versions import lineage_ids, list_versions, load_version, manifests, verify

__all__ = [
    "DamagedVersionError",
    "LeaseLostError",
    "ProductionMovedError",
    "RegistryError",
    "StalePlanError",
    "lineage_ids",
    "list_versions",
    "load_version",
    "manifests",
    "production",
    "promote",
    "publish",
    "rollback",
    "verify",
]
