"""Applies the store's retention as a task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from model_registry import prune
from model_registry.errors import UnconfirmedError
from model_registry.retention import pruning
from pipeline_store.layout import StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context

_PROGRESS_SECONDS = 30.0


class StoreRetentionOperator(BaseOperator):
    """Reports what in the store is old and no longer needed, and removes it on request.

    Returns the number of items and bytes by kind, as ``can_go`` and ``removed``.

    :param store_uri: root of the store.
    :param delete: remove what can go; otherwise only report it. (templated)
    :param keep_versions: number of nearest ancestors and of newest versions of each lineage that
        are kept. (templated)
    :param older_than_days: nothing younger is removed; at least 2. (templated)
    :param confirm: remove even if a clock may be wrong, or most versions would go. (templated)
    """

    template_fields: Sequence[str] = ("delete", "keep_versions", "older_than_days", "confirm")

    def __init__(
        self,
        *,
        store_uri: str,
        delete: Any = False,
        keep_versions: Any = pruning.RetentionPolicy.keep_versions,
        older_than_days: Any = pruning.RetentionPolicy.older_than / timedelta(days=1),
        confirm: Any = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.delete = delete
        self.keep_versions = keep_versions
        self.older_than_days = older_than_days
        self.confirm = confirm
        self._logged = time.monotonic()

    def execute(self, context: Context) -> dict[str, Any]:
        """Make one pass."""
        store = StoreLayout(self.store_uri)
        try:
            policy = pruning.RetentionPolicy(
                keep_versions=int(self.keep_versions),
                older_than=timedelta(days=float(self.older_than_days)),
                pinned=tuple(prune.preset_pins()),
                confirmed=_is_on(self.confirm),
            )
        except ValueError as error:
            raise AirflowFailException(str(error)) from error
        deletes = _is_on(self.delete)
        try:
            report = (
                pruning.prune(store, policy, self._log_progress)
                if deletes
                else pruning.PruneReport(pruning.plan(store, policy))
            )
        except UnconfirmedError as error:
            raise AirflowFailException(str(error)) from error
        for line in prune.lines(report, deleted=deletes):
            self.log.info("%s", line)
        found = report.to_json()
        return {"can_go": found["can_go"], "removed": found["removed"]}

    def _log_progress(self, done: int, total: int, size: int) -> None:
        if time.monotonic() - self._logged >= _PROGRESS_SECONDS:
            self._logged = time.monotonic()
            text = prune.size_text(size)
            self.log.info("%d of %d done, %s removed", done, total, text)


def _is_on(value: Any) -> bool:
    """Return whether a switch is on that may have been rendered as text."""
    return str(value).lower() == "true"
