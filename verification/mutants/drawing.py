"""Which mutants are tried: drawn by seed from lines that tests reach, as many of each group."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from verification.mutants.mutations import Mutation, mutations
from verification.mutants.tracing import GROUPS, Reach


class Mutant(BaseModel):
    """A mutation of a module, named so that it is found again in another tree."""

    group: str
    module: str
    function: str
    before: str
    after: str
    ordinal: int

    @property
    def name(self) -> str:
        """What it is called in results."""
        return f"{self.module}:{self.function}: {self.before} -> {self.after} #{self.ordinal}"

    @property
    def path(self) -> Path:
        """Its file, relative to a tree."""
        return Path(f"{self.module.replace('.', '/')}.py")

    def find(self, tree: Path) -> Mutation:
        """Return its mutation as it is in a tree.

        :raises LookupError: the function is not there any more, or is another one.
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
    """Return mutants of lines that were reached, as many of each group.

    What is drawn of a group depends on nothing in another.

    :param count: of all groups together.
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
