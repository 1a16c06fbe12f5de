"""Removes what can be removed, commits first, and keeps rechecking whether it still can."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from model_registry.errors import RegistryError
from model_registry.retention.items import Item
from model_registry.retention.policy import Kind, and_what_they_name, describe_pruned
from pipeline_store import uris
from pipeline_store.formats import FormatError, ProductionPointer
from pipeline_store.layout import LineageLayout, StoreLayout
from pipeline_store.local import UnwritableError

_PARALLEL_DELETES = 16
_CHECK_SECONDS = 10.0
_CHECK_SHARE = 5.0

Progress = Callable[[int, int, int], None]
"""Called with the number of things done, their total number, and the bytes removed."""


class Sweep:
    """One pass of removal.

    :param find_again: surveys the whole store again and returns what can be removed by then.
    :param check_seconds: longest time between two surveys; extended if a survey itself takes long.
    """

    def __init__(
        self,
        store: StoreLayout,
        find_again: Callable[[], list[Item]],
        progress: Progress,
        check_seconds: float = _CHECK_SECONDS,
    ) -> None:
        self._store = store
        self._root = uris.for_library(store.root).rstrip("/")
        self._find_again = find_again
        self._progress = progress
        self._check_seconds = check_seconds
        self._looked = float("-inf")
        self._look_seconds = 0.0
        self._allowed: set[Item] = set()
        self._left_kinds: set[Kind] = set()

    def remove(self, items: list[Item]) -> tuple[list[Item], dict[str, str]]:
        """Remove things in their order; return those removed, and why others were left."""
        removed: list[Item] = []
        left: dict[str, str] = {}
        for number, item in enumerate(items, 1):
            self._look_again()
            if item.kind in self._left_kinds:
                left[_described(item)] = "a version that could not be removed may name it"
            elif item not in self._allowed:
                left[_described(item)] = "it changed or came into use in the meantime"
            elif reason := self._remove(item):
                left[_described(item)] = reason
            else:
                removed.append(item)
            self._progress(number, len(items), sum(done.bytes for done in removed))
        return removed, left

    def _look_again(self) -> None:
        now = time.monotonic()
        if now - self._looked < max(self._check_seconds, _CHECK_SHARE * self._look_seconds):
            return
        self._allowed = {*self._find_again()}
        self._looked = time.monotonic()
        self._look_seconds = self._looked - now

    def _remove(self, item: Item) -> str | None:
        """Remove one thing; return a reason if it was left as it is."""
        if item.kind is Kind.VERSION and item.commits:
            return self._remove_version(item)
        for path in item.commits:
            uris.delete(self._uri(path))
        self._delete(item.files)
        return None

    def _remove_version(self, item: Item) -> str | None:
        """Remove a version; a concurrent rollback to it wins."""
        lineage_id, _, version_id = item.name.partition("/")
        lineage = self._store.lineage(lineage_id)
        uri = lineage.model(version_id)
        try:
            pruned = describe_pruned(lineage, version_id, item.why)
        except (FileNotFoundError, FormatError, RegistryError) as error:
            return f"what it was cannot be kept: {error}"
        try:
            pruned.create(lineage.pruned_version(version_id))
        except UnwritableError as error:
            self._left_kinds |= and_what_they_name({Kind.VERSION}) - {Kind.VERSION}
            return f"the record of what it was cannot be written: {error}"
        uris.delete(uri)
        # In this order: a rollback that has removed its mark has moved the pointer.
        if _is_rolled_back_to(lineage, version_id) or _in_use(lineage) == version_id:
            uris.create_if_absent(uri, pruned.model.to_bytes())
            uris.delete(lineage.pruned_version(version_id))
            return "it was put into use in the meantime"
        self._delete(item.files)
        return None

    def _delete(self, paths: Iterable[str]) -> None:
        with ThreadPoolExecutor(_PARALLEL_DELETES) as pool:
            list(pool.map(uris.delete, map(self._uri, paths)))

    def _uri(self, path: str) -> str:
        return uris.join(self._root, path)


def _described(item: Item) -> str:
    return f"{item.kind.value}: {item.name}"


def _is_rolled_back_to(lineage: LineageLayout, version_id: str) -> bool:
    """Return whether a rollback to the version is under way: it marks it before it verifies it."""
    marks = (uri.rpartition("/")[2] for uri in uris.list_files(lineage.rollbacks))
    return any(mark.startswith(f"{version_id}.") for mark in marks)


def _in_use(lineage: LineageLayout) -> str | None:
    pointer = ProductionPointer.load_or_none(lineage.production)
    return None if pointer is None else pointer.version_id
