"""Which mutants are tried: drawn by seed from lines that tests reach, as many of each group."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from coverage import CoverageData
from pydantic import BaseModel

from verification.mutants.mutations import Mutation, mutations

GROUPS: Mapping[str, tuple[str, ...]] = {
    "lifecycle": ("tpu_lifecycle", "tpu_agent"),
    "data": ("beam_jobs", "corpus"),
    "trainer": ("training", "trained_models"),
    "gate": ("model_registry",),
}
"""Rooms by what goes wrong when they do: money, records, weights, the model in use."""


class Mutant(BaseModel):
    """A mutation of a module, and the test files that reach it, in order of their names."""

    group: str
    module: str
    function: str
    before: str
    after: str
    ordinal: int
    tests: list[str]

    @property
    def name(self) -> str:
        """What it is called in results."""
        return f"{self.module}:{self.function}: {self.before} -> {self.after} #{self.ordinal}"

    def find(self, tree: Path) -> tuple[Path, Mutation]:
        """Return its file and mutation as they are in a tree.

        :raises LookupError: the function is not there any more, or is another one.
        """
        path = tree / f"{self.module.replace('.', '/')}.py"
        wanted = (self.function, self.before, self.after, self.ordinal)
        for found in mutations(path.read_text()):
            if (found.function, found.before, found.after, found.ordinal) == wanted:
                return path, found
        raise LookupError(
            f"{self.name}: no such place in {path}. The function has changed: draw mutants anew, "
            "or name the place where it went in the list."
        )


def draw(coverage: Path, tree: Path, *, count: int, seed: int) -> list[Mutant]:
    """Return mutants of lines that were reached, as many of each group.

    :param coverage: data file of coverage.py, with a context for each test file.
    :param count: of all groups together.
    """
    data = CoverageData(str(coverage))
    data.read()
    chance = random.Random(seed)  # noqa: S311 - no secret
    drawn: list[Mutant] = []
    for group, rooms in GROUPS.items():
        candidates = [mutant for room in rooms for mutant in _of_room(data, tree, group, room)]
        drawn += chance.sample(candidates, count // len(GROUPS))
    return drawn


def _of_room(data: CoverageData, tree: Path, group: str, room: str) -> Iterator[Mutant]:
    for path in sorted((tree / room).rglob("*.py")):
        contexts = data.contexts_by_lineno(str(path.resolve()))
        for found in mutations(path.read_text()):
            tests = {test for test in contexts.get(found.line, []) if test}
            if tests:
                yield Mutant(
                    group=group,
                    module=".".join(path.relative_to(tree).with_suffix("").parts),
                    function=found.function,
                    before=found.before,
                    after=found.after,
                    ordinal=found.ordinal,
                    tests=sorted(tests),
                )
