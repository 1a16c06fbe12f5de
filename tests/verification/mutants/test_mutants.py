"""Mutants are put in where they are said to be, and a test that looks notices one."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from verification.mutants.drawing import Mutant
from verification.mutants.mutations import mutations
from verification.mutants.running import Outcome, copy_tree, try_mutant

SOURCE = '''
LIMIT = 3


def within(value: int, name: str = "ä") -> bool:
    """Return whether a value is within the limit."""
    if value < LIMIT and not name.isupper():
        return True
    print("ü", value + 1)
    return False


class Box:
    def put(self, item: str) -> None:
        if item is None:
            raise ValueError("nothing")
        self.item = item
'''
TESTS = """
from room.code import within


def test_small():
    assert within(1)
    assert not within(5)
"""


def test_every_mutation_is_another_program() -> None:
    found = mutations(SOURCE)
    changed = [mutation.apply(SOURCE) for mutation in found]
    assert len({ast.dump(ast.parse(text)) for text in [SOURCE, *changed]}) == len(found) + 1
    assert {(m.function, m.before, m.after) for m in found} >= {
        ("within", "value < LIMIT", "value <= LIMIT"),
        ("within", "not name.isupper()", "name.isupper()"),
        ("within", "value + 1", "value - 1"),
        ("within", "return True", "return None"),
        ("within", "True", "False"),
        ("Box.put", "item is None", "item is not None"),
        ("Box.put", 'raise ValueError("nothing")', "pass"),
    }
    assert all(SOURCE[m.start : m.end] == m.before for m in found)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "room").mkdir(parents=True)
    (tree / "room" / "code.py").write_text(SOURCE)
    (tree / "test_code.py").write_text(TESTS)
    (tree / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nmarkers =\n    browser:\n    slow:\n    parity:\n"
        "    tpu_compiler:\n    thorough:\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "add", "."], cwd=tree, check=True)
    return copy_tree(tree, tmp_path / "copy")


def mutant(function: str, before: str, after: str) -> Mutant:
    return Mutant(
        group="gate", module="room.code", function=function, before=before, after=after,
        ordinal=0, tests=["test_code.py"],
    )  # fmt: skip


def test_what_a_test_looks_at_is_noticed_and_nothing_else(copy: Path) -> None:
    seen = mutant("within", "value < LIMIT", "value >= LIMIT")
    with pytest.raises(LookupError, match="no such place"):
        try_mutant(seen, copy, "make test")
    seen = mutant("within", "return False", "return None")
    assert try_mutant(seen, copy, "make test") is Outcome.SURVIVED
    seen = mutant("within", "not name.isupper()", "name.isupper()")
    assert try_mutant(seen, copy, "make test") is Outcome.KILLED
    assert try_mutant(seen, copy, "make test-all") is Outcome.UNTESTED
    assert (copy / "room" / "code.py").read_text() == SOURCE
