"""Holds what the passes of all mirrors share: the label of the store, and the report of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from model_registry.errors import RegistryError
from pipeline_mirror.errors import MirrorError
from pipeline_store import identity
from pipeline_store.formats import Installation
from pipeline_store.layout import StoreLayout
from trained_models.errors import BadDataError


@dataclass
class Report:
    """The results of a pass.

    :ivar versions: ids of the versions that were added.
    :ivar moved: new version in use, by the name of the lineage's copy, where it has changed.
    :ivar problems: one line for each item that could not be mirrored.
    """

    versions: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def collected(self, what: str) -> Iterator[None]:
        """Turn an error of reading or mirroring into a problem, and go on with the rest."""
        try:
            yield
        except (MirrorError, RegistryError, BadDataError, ValueError, OSError) as error:
            self.problems.append(f"{what}: {error}")

    def __str__(self) -> str:
        """Return a summary of the pass in one line."""
        moved = [f"{name} uses {version}" for name, version in self.moved.items()]
        added = f"{len(self.versions)} version(s) added"
        return "; ".join([added, *moved, f"{len(self.problems)} problem(s)"])


def store_label(store: StoreLayout) -> str | None:
    """Return the label that identifies a store; None: no TPU requested yet, nothing to mirror."""
    found = Installation.load_or_none(store.installation)
    return None if found is None else identity.installation_label(store.root, found.id)
