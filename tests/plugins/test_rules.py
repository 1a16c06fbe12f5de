"""Rules for DAGs, operators and triggers that a person would forget and a TPU would pay for."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PLUGINS = REPOSITORY / "plugins"
FILES = sorted([*(REPOSITORY / "dags").rglob("*.py"), *PLUGINS.rglob("*.py")])

# In a process of its own: the plugin loader changes sys.modules for good.
LOAD_PLUGINS = """
import json, queue, sys
from airflow import plugins_manager

plugins_manager.ensure_plugins_loaded()
loaded = {name for name in sys.modules if name in sys.argv[1:]}
import operators.tpu, triggers.tpu
print(json.dumps({
    "loaded": sorted(loaded),
    "errors": plugins_manager.get_import_errors(),
    "queue_is_the_standard_one": hasattr(queue, "Queue"),
    "one_class": operators.tpu.TpuJobTrigger is triggers.tpu.TpuJobTrigger,
}))
"""


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def violations(tree: ast.AST) -> list[str]:
    """Return the rules that a file breaks."""
    found = []
    for call in calls(tree):
        keywords = {keyword.arg for keyword in call.keywords}
        if keywords & {"dagrun_timeout", "execution_timeout"}:
            found.append(f"{call.lineno}: a timeout that skips the teardown or is never enforced")
        if is_defer(call) and "timeout" not in keywords:
            found.append(f"{call.lineno}: defer without timeout")
    for handler in ast.walk(tree):
        if isinstance(handler, ast.ExceptHandler) and swallows_cancellation(handler):
            found.append(f"{handler.lineno}: a cancellation is swallowed")
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "cleanup":
            found.append(f"{node.lineno}: cleanup() also runs when the triggerer restarts")
    return found


def is_defer(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "defer"


def swallows_cancellation(handler: ast.ExceptHandler) -> bool:
    names = "everything" if handler.type is None else ast.unparse(handler.type)
    catches = any(word in names for word in ("everything", "BaseException", "CancelledError"))
    raises = any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))
    return catches and not raises


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_file_breaks_a_rule(path: Path) -> None:
    assert violations(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "code",
    [
        "DAG('x', dagrun_timeout=t)",
        "Operator(execution_timeout=t)",
        "self.defer(trigger=t, method_name='m')",
        "try:\n  f()\nexcept asyncio.CancelledError:\n  pass",
        "try:\n  f()\nexcept:\n  pass",
        "try:\n  f()\nexcept BaseException as error:\n  raise Other() from error",
        "async def cleanup(self):\n  stop()",
    ],
)
def test_the_rules_find_what_they_are_for(code: str) -> None:
    assert len(violations(ast.parse(code))) == 1


def test_the_operators_do_defer() -> None:
    found = [call for path in FILES for call in calls(ast.parse(path.read_text()))]
    assert len([call for call in found if is_defer(call)]) == 4


def test_the_plugin_loader_executes_no_operator(tmp_path: Path) -> None:
    ignored = [path for path in PLUGINS.rglob("*.py") if path.parent != PLUGINS]
    stems = {path.stem for path in ignored}
    assert "tpu" in stems
    result = subprocess.run(
        [sys.executable, "-c", LOAD_PLUGINS, *stems],
        env={
            "PATH": str(Path(sys.executable).parent),
            "HOME": str(tmp_path),
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "PYTHONPATH": str(REPOSITORY),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "loaded": [],
        "errors": {},
        "queue_is_the_standard_one": True,
        "one_class": True,
    }
