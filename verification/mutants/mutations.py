"""Small single changes of a function that its tests should notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
}


@dataclass(frozen=True)
class Mutation:
    """One change of a module's source.

    ``start`` and ``end`` are character offsets. ``ordinal`` numbers equal changes in the function,
    from 0, so that a mutation is found again after its function has moved.
    """

    function: str
    line: int
    start: int
    end: int
    before: str
    after: str
    ordinal: int

    def apply(self, source: str) -> str:
        """Return the changed source."""
        return source[: self.start] + self.after + source[self.end :]


def mutations(source: str) -> list[Mutation]:
    """Return all mutations of a module's functions."""
    lines = source.splitlines(keepends=True)
    begins = list(accumulate(map(len, lines), initial=0))

    def place(number: int, column: int) -> int:
        # The parser's columns are in bytes.
        return begins[number - 1] + len(lines[number - 1].encode()[:column].decode())

    found: list[Mutation] = []
    seen: dict[tuple[str, str, str], int] = {}
    for name, function in _functions(ast.parse(source), ""):
        for node in (node for statement in function.body for node in ast.walk(statement)):
            if not isinstance(node, ast.expr | ast.stmt):
                continue
            start = place(node.lineno, node.col_offset)
            end = place(node.end_lineno or node.lineno, node.end_col_offset or 0)
            for after in _changed(node, source):
                key = (name, source[start:end], after)
                ordinal = seen[key] = seen.get(key, -1) + 1
                found.append(
                    Mutation(name, node.lineno, start, end, source[start:end], after, ordinal)
                )
    return found


def _functions(
    tree: ast.AST, within: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{within}{node.name}.")


def _changed(node: ast.AST, source: str) -> Iterator[str]:
    """Yield the possible replacements of a node."""
    match node:
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
        case ast.Return(value=ast.expr() as value) if _text(value, source) != "None":
            yield "return None"
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.expr():
            yield from _operated(node, source)


def _operated(node: ast.expr, source: str) -> Iterator[str]:
    """Yield the same operands with another operator."""
    match node:
        case ast.Compare(left=left, ops=[compared], comparators=[right]):
            yield f"{_text(left, source)} {_COMPARE[type(compared)]} {_text(right, source)}"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            yield f"{_text(left, source)} {_ARITHMETIC[type(operator)]} {_text(right, source)}"
        case ast.BoolOp(op=joined, values=values):
            word = " or " if isinstance(joined, ast.And) else " and "
            yield f"({word.join(_text(value, source) for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _text(operand, source)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            taken = f"{_text(orelse, source)} if {_text(test, source)}"
            yield f"({taken} else {_text(body, source)})"


def _text(node: ast.AST, source: str) -> str:
    """Return a node's source, in parentheses where precedence requires them."""
    text = ast.get_source_segment(source, node) or ""
    holds = isinstance(node, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript)
    return text if holds else f"({text})"
