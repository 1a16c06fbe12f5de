"""Every command of the README and of the pages for operation is read by its own parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from local.stack.paths import REPOSITORY
from scripts.command_parsers import parse
from tests.golden.command_names import make_targets
from tests.guides.page_commands import Command, commands, split

PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs" / "operate").glob("*.md")),
    REPOSITORY / "docs" / "reference" / "commands.md",
    REPOSITORY / "docs" / "start" / "local-stack.md",
]
EXCEPTIONS = Path(__file__).with_name("foreign_commands.txt")
COMPOSE = REPOSITORY / "docker" / "compose" / "compose.yaml"
PLACEHOLDER = re.compile(r"[A-Z_]+|…")


def exceptions() -> list[str]:
    lines = EXCEPTIONS.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def read_make(words: Sequence[str]) -> None:
    known = make_targets()
    targets = [word for word in words if "=" not in word]
    assert set(targets) <= set(known), targets
    text = (REPOSITORY / "Makefile").read_text()
    for name in (word.partition("=")[0] for word in words if "=" in word):
        # The recipe of a target may have it by way of the environment.
        own = {variable for target in targets for variable in known[target]}
        assert name in own or f"export {name} ?=" in text, name


def read_python(words: Sequence[str]) -> None:
    if words[0] == "-m":
        _, module, *rest = words
        parse(module, *rest)
    elif words[0] == "-P":
        assert words[1:] == ("plugins/hooks/fernet_key.py",)
    else:
        script = next(REPOSITORY.glob(f"docker/compose/{words[0]}"))
        parse(str(script), *words[1:])


def read_airflow(words: Sequence[str]) -> None:
    from airflow.cli.cli_parser import get_parser

    get_parser().parse_args(list(words))


def read_docker(words: Sequence[str]) -> None:
    """Read what the pages use of `docker compose`, with the services that there are."""
    import argparse

    parser = argparse.ArgumentParser(prog="docker compose")
    parser.add_argument("-f", choices=["docker/compose/compose.yaml"])
    parser.add_argument("--profile", choices=["observe", "tensorboard"])
    below = parser.add_subparsers(required=True, dest="command")
    for name in ("ps", "pull"):
        below.add_parser(name).add_argument("services", nargs="*")
    up, rm = below.add_parser("up"), below.add_parser("rm")
    up.add_argument("-d", action="store_true", required=True)
    up.add_argument("--force-recreate", action="store_true")
    rm.add_argument("--stop", action="store_true")
    rm.add_argument("--force", action="store_true")
    for command in (up, rm):
        command.add_argument("services", nargs="*")
    inside, beside = below.add_parser("exec"), below.add_parser("run")
    inside.add_argument("-T", action="store_true")
    for option in ("--rm", "--no-deps"):
        beside.add_argument(option, action="store_true", required=True)
    beside.add_argument("--entrypoint", choices=["python"], required=True)
    for command in (inside, beside):
        command.add_argument("services", nargs=1)
        command.add_argument("inner", nargs=argparse.REMAINDER)
    assert words[0] == "compose"
    if len(words) == 1:  # a sentence names it
        return
    options = parser.parse_args([word for word in words[1:] if word != "…"])
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert all(one in services or PLACEHOLDER.fullmatch(one) for one in options.services)
    if getattr(options, "inner", []):
        read(Command(tuple(options.inner)))


def read_psql(words: Sequence[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="psql", add_help=False)
    for option in ("-U", "-h", "-c"):
        parser.add_argument(option)
    parser.parse_args(list(words))


def read_pytest(words: Sequence[str]) -> None:
    assert words
    assert all((REPOSITORY / word).exists() for word in words)


def nothing(_: Sequence[str]) -> None:
    """Take any words: a command of the shell, which pages use with paths and texts."""


READERS: dict[str, Callable[[Sequence[str]], None]] = {
    "airflow": read_airflow,
    "cat": nothing,
    "cd": nothing,
    "docker": read_docker,
    "eval": nothing,  # what it evaluates is a command of its own here
    "make": read_make,
    "printf": nothing,
    "psql": read_psql,
    "pytest": read_pytest,
    "python": read_python,
    "python3": read_python,
}


def read(command: Command) -> None:
    """Let a command's own parser read it."""
    for name in command.assigned:
        assert is_setting(name), f"nothing reads {name}"
    if not command.words or str(command) in exceptions():
        return
    program, *words = command.words
    assert program in READERS, f"no parser reads it, and it is no exception: {command}"
    try:
        READERS[program](tuple(words))
    except SystemExit as end:
        if end.code == 0:  # `--help`
            return
        if program == "airflow" and not command.in_block:
            # A sentence names it without the arguments; then it must be one of Airflow's.
            with pytest.raises(SystemExit) as known:
                read_airflow([*words, "--help"])
            if known.value.code == 0:
                return
        pytest.fail(f"is not read: {command}")


def is_setting(name: str) -> bool:
    if name.startswith(("AIRFLOW__", "AIRFLOW_CONN_", "OTEL_")):
        return True
    folders = ("pipeline_config", "tests/preflight", "docker")
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    return any(name in path.read_text() for path in files)


def is_name_of_module(page: Path, command: Command) -> bool:
    """Return whether the table of commands only names a module, by its bare command."""
    return page.name == "commands.md" and command.words[0] == "python" and len(command.words) == 3


@pytest.fixture(autouse=True)
def team_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what every container of the team server has."""
    monkeypatch.setenv("REPRETRAIN_STORE_URI", "gs://bucket/store")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_a_page_is_read(page: Path) -> None:
    found = [one for one in commands(page.read_text()) if not is_name_of_module(page, one)]
    for command in found:
        read(command)


def test_the_exceptions_are_few_and_all_needed() -> None:
    found = {str(one) for page in PAGES for one in commands(page.read_text())}
    assert len(exceptions()) <= 15
    assert [line for line in exceptions() if line not in found] == []


@pytest.mark.parametrize(
    "line",
    [
        "make demmo",
        "make demo CORPSE=/tmp",
        "python -m tpu_lifecycle reap",
        "python -m pipeline_alerts watch-status --maximum-age 3",
        "airflow dags unpauze bert_repretraining",
        "docker compose exec nobody python -m tpu_lifecycle list",
        "docker compose exec scheduler python -m tpu_lifecycle lst",
        "export REPRETRAIN_STOER_URI=gs://b/p",
        "gcloud compute tpus list",
    ],
)
def test_a_command_with_a_mistake_is_not_read(line: str) -> None:
    (command,) = split(line)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        read(command)


def test_commands_of_lists_pipes_and_substitutions_are_all_found() -> None:
    text = """```bash
A=1 make up && python -m x list   # not; this
printf "a|b" | psql -c 'SELECT
  1'
eval "$(.venv/bin/python -m local.stack env)"
```
Run `git pull`, not `python` alone or `airflow.cfg`.
"""
    assert [(shlex.join(one.words), one.assigned, one.in_block) for one in commands(text)] == [
        ("make up", ("A",), True),
        ("python -m x list", (), True),
        ("printf 'a|b'", (), True),
        ("psql -c 'SELECT\n  1'", (), True),
        ("python -m local.stack env", (), True),
        ("eval WORDS", (), True),
        ("git pull", (), False),
    ]
