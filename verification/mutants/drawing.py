"""Draws mutants by seed from lines that tests reach, the same number from each group."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from verification.mutants.mutations import Mutation, mutations
from verification.mutants.tracing import GROUPS, Reach


class Mutant(BaseModel):
    """A mutation of a module, with a name by which it is found again in another tree."""

    group: str
    module: str
    function: str
    before: str
    after: str
    ordinal: int

    @property
    def name(self) -> str:
        """The mutant's name in results."""
        return f"{self.module}:{self.function}: {self.before} -> {self.after} #{self.ordinal}"

    @property
    def path(self) -> Path:
        """Its file, relative to a tree."""
        return Path(f"{self.module.replace('.', '/')}.py")

    def find(self, tree: Path) -> Mutation:
        """Return its mutation in a tree.

        :raises LookupError: the function is gone or has changed.
        """
        path = tree / self.path
        wanted = (self.function, self.before, self.after, self.ordinal)
        for found in mutations(path.read_text()) if path.exists() else ():
            if (found.function, found.before, found.after, found.ordinal) == wanted:
                return found
        raise LookupError(
            f"{self.name}: no such place in {path}. The function has changed: draw mutants anew, "
            "or name the place where it went in the list."
        )


def draw(reach: Reach, tree: Path, *, count: int, seed: int) -> list[Mutant]:
    """Return mutants of lines that were reached, the same number from each group.

    The draw from a group is independent of the other groups.

    :param count: total number of all groups.
    """
    drawn: list[Mutant] = []
    for group, rooms in GROUPS.items():
        chance = random.Random(f"{seed} {group}")  # noqa: S311 - no secret
        candidates = [mutant for room in rooms for mutant in _of_room(reach, tree, group, room)]
        drawn += chance.sample(candidates, count // len(GROUPS))
    return drawn


def _of_room(reach: Reach, tree: Path, group: str, room: str) -> Iterator[Mutant]:
    for path in sorted((tree / room).rglob("*.py")):
        for found in mutations(path.read_text()):
            if reach.tests(path, found.line):
                yield Mutant(
                    group=group,
                    module=".".join(path.relative_to(tree).with_suffix("").parts),
                    function=found.function,
                    before=found.before,
                    after=found.after,
                    ordinal=found.ordinal,
                )
