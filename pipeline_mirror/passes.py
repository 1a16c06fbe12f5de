"""What the passes of all mirrors share: whose store it is, and what a pass has done."""

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
    """What a pass has done.

    :ivar versions: ids of the versions that were added.
    :ivar moved: copies of lineages that name another version as the one in use now, with its id.
    :ivar problems: one line for each thing that could not be mirrored.
    """

    versions: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def collected(self, what: str) -> Iterator[None]:
        """Note what cannot be read or mirrored, and go on with the rest."""
        try:
            yield
        except (MirrorError, RegistryError, BadDataError, ValueError, OSError) as error:
            self.problems.append(f"{what}: {error}")

    def __str__(self) -> str:
        """Return the pass in a sentence."""
        moved = [f"{name} uses {version}" for name, version in self.moved.items()]
        added = f"{len(self.versions)} version(s) added"
        return "; ".join([added, *moved, f"{len(self.problems)} problem(s)"])


def store_label(store: StoreLayout) -> str | None:
    """Return what tells a store from others; None: no TPU was ever asked for, nothing to mirror."""
    found = Installation.load_or_none(store.installation)
    return None if found is None else identity.installation_label(store.root, found.id)
