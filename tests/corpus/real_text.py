"""Text that people wrote: the docstrings of what is installed."""

from __future__ import annotations

import ast
import sysconfig
from functools import cache
from pathlib import Path


@cache
def docstrings(characters: int) -> tuple[str, ...]:
    """Return different docstrings, each with single spaces as its only white space."""
    found: dict[str, None] = {}
    total = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                if text and text not in found:
                    found[text] = None
                    total += len(text)
        if total >= characters:
            return tuple(found)
    raise AssertionError(f"only {total} characters of docstrings are installed")
