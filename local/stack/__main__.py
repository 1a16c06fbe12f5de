"""Command line of the local stack.

Copy-paste: ``python -m local.stack up``, later ``python -m local.stack down``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import signal
import sys
from pathlib import Path

from local.stack.paths import StackError
from local.stack.stack import DEFAULT_START_SECONDS, DEFAULT_STATE_DIR, Stack, rotate
from local.stack.startup import last_lines
from local.stack.status import StackStatus

NOT_RUNNING = 3
"""Exit code of `status` as the Linux Standard Base defines it for services."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--state-dir",
        type=Path,
        default=DEFAULT_STATE_DIR,
        help="folder for everything the stack keeps (default: %(default)s)",
    )
    parser = argparse.ArgumentParser(prog="python -m local.stack", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    _add_starting(commands, common)

    down = commands.add_parser("down", parents=[common], help="stop everything")
    down.set_defaults(run=_down)

    status = commands.add_parser(
        "status",
        parents=[common],
        help="show the parts",
        epilog=f"Exit code: 0 all well, 1 something is wrong, {NOT_RUNNING} not running.",
    )
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=_status)

    env = commands.add_parser(
        "env",
        parents=[common],
        help='print shell settings for airflow commands: eval "$(python -m local.stack env)"',
    )
    env.set_defaults(run=_env)

    logs = commands.add_parser("logs", parents=[common], help="show the end of the parts' logs")
    logs.add_argument("part", nargs="*", help="parts to show (default: all)")
    logs.add_argument("-n", "--lines", type=int, default=20, help="lines (default: %(default)s)")
    logs.set_defaults(run=_logs)
    return parser


def _add_starting(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    patience = argparse.ArgumentParser(add_help=False)
    patience.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_START_SECONDS,
        metavar="SECONDS",
        help="how long the start may take (default: %(default)s)",
    )
    up = commands.add_parser(
        "up", parents=[common, patience], help="start all parts and wait for them"
    )
    up.add_argument(
        "--env",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help="setting for Airflow and its tasks, may be repeated",
    )
    up.add_argument(
        "--observe",
        action="store_true",
        help="also start the exporter of metrics, and Prometheus and Alertmanager if installed",
    )
    up.set_defaults(run=_up)

    renewal = commands.add_parser(
        "rotate",
        parents=[common, patience],
        help="stop everything, make a new login and new keys, and start it again",
    )
    renewal.set_defaults(run=_rotate)


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _up(arguments: argparse.Namespace) -> int:
    # SIGTERM must not leave half a stack behind: let it unwind as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = dict(arguments.env)
    if dropped := sorted(
        name for name in os.environ if name.startswith("REPRETRAIN_") and name not in given
    ):
        words = " ".join(f"--env {name}={shlex.quote(os.environ[name])}" for name in dropped)
        print(
            f"warning: {', '.join(dropped)}: the stack takes nothing from your shell. To use it:\n"
            f"  python -m local.stack up {words}",
            file=sys.stderr,
        )
    stack = Stack(arguments.state_dir, extra_environment=given, observe=arguments.observe)
    _welcome(stack.up(arguments.timeout), stack.password(), arguments.state_dir)
    return 0


def _welcome(status: StackStatus, password: str, state_dir: Path) -> None:
    option = "" if state_dir == DEFAULT_STATE_DIR else f" --state-dir {shlex.quote(str(state_dir))}"
    observed = "".join(f"{name.title():<12} {url}\n" for name, url in status.observers.items())
    print(
        f"""
Airflow      {status.url}   user {status.user}   password {password}
TensorBoard  {status.tensorboard_url}
{observed}State        {status.state_dir}
Stop         python -m local.stack down{option}"""
    )


def _down(arguments: argparse.Namespace) -> int:
    stopped = Stack(arguments.state_dir).down()
    print("Stopped; no process and no port is left." if stopped else "Nothing was running.")
    return 0


def _rotate(arguments: argparse.Namespace) -> int:
    # As for `up`: the start that this includes must unwind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stack = Stack(arguments.state_dir)
    _welcome(rotate(stack, arguments.timeout), stack.password(), arguments.state_dir)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    # Remarks go to stderr, so that stdout is only JSON.
    status = Stack(arguments.state_dir, say=lambda line: print(line, file=sys.stderr)).status()
    if arguments.json:
        print(json.dumps(dataclasses.asdict(status) | {"healthy": status.healthy}, indent=2))
    else:
        print(status.table())
    if not status.running:
        return NOT_RUNNING
    return 0 if status.healthy else 1


def _env(arguments: argparse.Namespace) -> int:
    for name, value in sorted(Stack(arguments.state_dir).environment().items()):
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    stack = Stack(arguments.state_dir)
    known = [part.name for part in stack.parts()]
    unknown = sorted(set(arguments.part) - set(known))
    if unknown:
        raise StackError(f"No part is called {unknown[0]!r}; there are: {', '.join(known)}.")
    for name in arguments.part or known:
        log = stack.paths.log(name)
        print(f"==> {log} <==\n{last_lines(log, arguments.lines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
