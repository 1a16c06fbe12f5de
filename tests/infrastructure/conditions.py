"""Conditions of grants, worked out: may an account do with an object what its grant is for?

Terraform makes the text of a condition, Google's IAM evaluates it. Both are played here for as much
of their languages as ``grants.tf`` uses; whatever else is in a condition is an error.

Source of ``extract``: https://cloud.google.com/iam/docs/conditions-attribute-reference#extract
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.infrastructure.tree import Resource, Tree

OBJECTS = "projects/_/buckets/store/objects/prefix"
_LITERAL = r'"(?:[^"\\]|\\.)*"'
_LOOP = re.compile(rf"\[for (\w+) in (\[[^\]]*\]) : ({_LITERAL})\]")
_CALL = re.compile(rf"resource\.name\.(startsWith|endsWith|extract)\(({_LITERAL})\)")


def allows(tree: Tree, grant: Resource) -> Callable[[str], bool]:
    """Return whether a grant's condition holds for an object, by its path in the store."""
    text = cel(tree, grant.block("condition")["expression"])
    code = _CALL.sub(lambda found: f"{found[1]}(name, {found[2]})", text)
    code = code.replace("||", " or ").replace("&&", " and ").replace("!=", "<>")
    code = code.replace("!", " not ").replace("<>", "!=").strip()
    words = {"startsWith": str.startswith, "endsWith": str.endswith, "extract": _extract}
    compiled = compile(code, grant.name, "eval")
    assert {*compiled.co_names} <= {*words, "name"}, f"{grant.name} has more than is known: {text}"

    def holds(path: str) -> bool:
        known = words | {"name": f"{OBJECTS}/{path}", "__builtins__": {}}
        return bool(eval(compiled, known))  # noqa: S307 - of a file of this repository

    return holds


def cel(tree: Tree, expression: str) -> str:
    """Return the text that Terraform makes of an expression."""
    if expression.startswith("local."):
        return cel(tree, tree.locals[expression.removeprefix("local.")])
    if not expression.startswith("${"):
        return _filled(expression.replace('\\"', '"'), {})
    code = _LOOP.sub(r"[fill(\3, \1) for \1 in \2]", expression[2:-1])
    code = re.sub(r"local\.(\w+)", r"local('\1')", re.sub(r"\$\{local\.(\w+)\}", r"${\1}", code))
    words: dict[str, Any] = {
        "join": lambda separator, parts: _filled(separator.join(parts), {}),
        "fill": lambda text, value: _filled(text, {"folder": value}),
        "local": lambda name: cel(tree, tree.locals[name]),
        "__builtins__": {},
    }
    return str(eval(code, words))  # noqa: S307 - of a file of this repository


def _filled(text: str, values: dict[str, str]) -> str:
    known = {"local.objects": OBJECTS, "objects": OBJECTS} | values
    for name, value in known.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def _extract(name: str, template: str) -> str:
    before, _, rest = template.partition("{")
    _, _, after = rest.partition("}")
    found = re.search(f"{re.escape(before)}(.*?){re.escape(after)}", name)
    return found[1] if found else ""
