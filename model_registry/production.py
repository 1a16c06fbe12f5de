"""The production pointer: which version of a lineage is in use. Changed by compare-and-set only."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from model_registry.errors import ProductionMovedError, RegistryError
from model_registry.versions import load_version, verify
from pipeline_store import uris
from pipeline_store.formats import ModelVersion, ProductionPointer, RollbackMark
from pipeline_store.layout import LineageLayout

_KEPT_CHANGES = 50
"""Number of kept changes of the pointer: more than can accumulate while a rollback is queued."""


def production(lineage: LineageLayout) -> ModelVersion | None:
    """Return the version in production, or None before the first promotion.

    :raises RegistryError: the pointer names a version that does not exist.
    """
    pointer = ProductionPointer.load_or_none(lineage.production)
    return None if pointer is None else load_version(lineage, pointer.version_id)


def promote(
    lineage: LineageLayout, version_id: str, *, expected_baseline: str | None, reason: str
) -> ProductionPointer:
    """Put a version into production if the model it was compared with still is in production.

    Doing it again is no error and changes nothing.

    :param version_id: a published version.
    :param expected_baseline: the version it was compared with; None when there was none.
    :param reason: the verdict in a sentence; kept with the pointer.
    :raises ProductionMovedError: another model was put into production since the comparison.
    :raises RegistryError: there is no such version, or a person rolled it back.
    :raises DamagedVersionError: the version's files do not match its record.
    """
    # Copied files are read again: no bytes go into production without being hashed in place.
    verify(lineage, version_id)

    def decide(current: ProductionPointer | None) -> ProductionPointer:
        in_use = current.version_id if current else None
        rolled_back = current.rolled_back if current else []
        if current is not None and in_use == version_id:
            return current
        if version_id in rolled_back:
            raise RegistryError(
                f"{version_id} was in use and a person rolled it back, so no run puts it back by "
                f"itself. To use it: python -m model_registry rollback {version_id}"
            )
        if in_use != expected_baseline:
            raise ProductionMovedError(
                f"{version_id} was compared with {expected_baseline or 'no model in use'}, but "
                f"{in_use or 'no model'} is in use now ({lineage.production}). The "
                "version stays as evidence of its own comparison; trigger a new run."
            )
        return _next(current, version_id, rolled_back, reason=reason)

    return ProductionPointer.update(lineage.production, decide)


def rollback(
    lineage: LineageLayout,
    version_id: str,
    *,
    reason: str,
    by: str | None = None,
    request: str | None = None,
    run_id: str | None = None,
    expected: str | None = None,
) -> ProductionPointer:
    """Put any published version into production, by decision of a person.

    The replaced version is remembered, so that no retried run puts it back by itself.

    :param by: the person's name; kept with the pointer.
    :param request: key of the DAG run that asks for it; kept with the pointer.
    :param run_id: Airflow's id of that run; kept as well.
    :param expected: the version that must be in production before; None: any.
    :raises ProductionMovedError: another version than the expected one is in production.
    :raises RegistryError: there is no such version, or nothing is in production.
    :raises DamagedVersionError: the version's files do not match its record.
    """
    with _marked(lineage, version_id):
        model = verify(lineage, version_id)
        asked = {"reason": reason, "changed_by": by, "request": request, "run_id": run_id}
        pointer = _move(lineage, version_id, asked, expected)
        # A pass of retention that died meanwhile has removed the record, and nothing else.
        if uris.create_if_absent(lineage.model(version_id), model.to_bytes()):
            uris.delete(lineage.pruned_version(version_id))
    return pointer


@contextmanager
def _marked(lineage: LineageLayout, version_id: str) -> Iterator[None]:
    """Protect a version from retention meanwhile; see :mod:`model_registry.retention.sweep`.

    A pass that checked before the mark was written has removed the version's record by then, so
    that the version is no longer found.
    """
    uri = lineage.rollback(version_id, uuid.uuid4().hex)
    RollbackMark(version_id=version_id, begun=datetime.now(UTC)).write(uri)
    try:
        yield
    finally:
        uris.delete(uri)


def _move(
    lineage: LineageLayout,
    version_id: str,
    asked: Mapping[str, str | None],
    expected: str | None,
) -> ProductionPointer:
    def decide(current: ProductionPointer | None) -> ProductionPointer:
        if current is None:
            raise RegistryError(
                f"No model is in use ({lineage.production} does not exist), so there is nothing to "
                "roll back; the first promotion sets it."
            )
        if current.version_id == version_id:
            return current
        if expected is not None and current.version_id != expected:
            raise ProductionMovedError(
                f"{current.version_id} came into use at {current.changed:%F %T} UTC instead of "
                f"{expected} ({lineage.production}), which {version_id} was to replace. Nothing "
                "was changed. Look again, and trigger a new run or name the version to use."
            )
        left = {*current.rolled_back, current.version_id} - {version_id}
        return _next(current, version_id, sorted(left), **asked)

    return ProductionPointer.update(lineage.production, decide)


def _next(
    current: ProductionPointer | None,
    version_id: str,
    rolled_back: list[str],
    **said: Any,
) -> ProductionPointer:
    return ProductionPointer(
        sequence=current.sequence + 1 if current else 1,
        version_id=version_id,
        changed=datetime.now(UTC),
        rolled_back=rolled_back,
        replaced=current.version_id if current else None,
        earlier=current.stays[:_KEPT_CHANGES] if current else [],
        **said,
    )
