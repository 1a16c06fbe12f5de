"""The command line of the admin client: one command per method of `AdminClient`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tpu_emulator.admin import AdminClient

_NODE_STATES = ("PREEMPTED", "TERMINATED", "GONE")


@dataclass(frozen=True)
class _Argument:
    """The arguments of `add_argument`; the flag has the name of the client's parameter."""

    flags: tuple[str, ...]
    options: dict[str, Any]

    def add(self, parser: argparse.ArgumentParser) -> str:
        """Adds it and returns the parameter's name."""
        return parser.add_argument(*self.flags, **self.options).dest


def _argument(*flags: str, **options: Any) -> _Argument:
    if (
        not options.get("required")
        and "default" in options
        and options["default"] not in ("", None)
    ):
        options["help"] = f"{options['help']} (default: {options['default']})"
    return _Argument(flags, options)


def _seconds(help_text: str, **options: Any) -> _Argument:
    return _argument("--seconds", type=float, metavar="S", help=help_text, **options)


def _csv(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


_METHOD = _argument("method", metavar="METHOD", help="name of an RPC, or * for every one")
_NODE = _argument("node", metavar="NODE", help="node id or full name")
_ZONE = _argument("--zone", default="*", metavar="ZONE", help="zone, or * for every one")
_ONE_ZONE = _argument("zone", metavar="ZONE", help="zone, or * for every one")
_CALLER = _argument(
    "--caller", default="", metavar="TEXT", help="only callers whose user agent contains this"
)
_COUNT = _argument("--count", type=int, default=1, metavar="N", help="how often")
_CODE = _argument("--code", required=True, help="gRPC code, for example UNAVAILABLE")
_MESSAGE = _argument("--message", default="", metavar="TEXT", help="text of the error")
_NODE_STATE = _argument(
    "--node-state", default="PREEMPTED", choices=_NODE_STATES, help="what is left of the node"
)
_CALLS = (_METHOD, _ZONE, _CALLER)

_COMMANDS: tuple[tuple[str, str, tuple[_Argument, ...]], ...] = (
    ("table", "print every queued resource, node and VM process", ()),
    (
        "calls",
        "print the recorded API calls, with caller and zone",
        (
            _argument("--method", default="", metavar="METHOD", help="only this RPC"),
            _argument("--after", type=int, default=0, metavar="ID", help="only greater ids"),
        ),
    ),
    (
        "history",
        "print the states of a node or queued resource, also of one that is gone",
        (_argument("name", nargs="?", default="", metavar="NAME", help="id or full name"),),
    ),
    ("bill", "print node-seconds and cost of every node, also of those that are gone", ()),
    ("preempt", "take a node and its queued resource away", (_NODE, _NODE_STATE)),
    (
        "preempt-after",
        "preempt the node of a zone, or the next one, after a time",
        (
            _ONE_ZONE,
            _seconds("from now, and from the node's --since", required=True),
            _argument(
                "--since", default="READY", choices=("READY", "CREATING"),
                help="state at which the clock starts for a new node",
            ),
            _NODE_STATE,
            _COUNT,
        ),
    ),
    (
        "preempt-when-file",
        "preempt the node of a zone, or the next one, when a file is there",
        (
            _ONE_ZONE,
            _argument("pattern", metavar="GLOB", help="absolute path; *, ?, [...] and ** allowed"),
            _NODE_STATE,
            _COUNT,
        ),
    ),
    (
        "notice",
        "tell the VMs of a node that it is preempted or maintained soon, and do it",
        (
            _NODE,
            _argument(
                "--kind", default="preempted", choices=("preempted", "maintenance"),
                help="what comes",
            ),
            _seconds("from the notice to the event", default=30.0),
        ),
    ),
    ("reboot", "kill and boot the VMs of a node", (_NODE,)),
    (
        "vanish",
        "kill a node and remove every trace of it and its queued resource",
        (_argument("node", metavar="NAME", help="node, or full name of a queued resource"),),
    ),
    (
        "arm-worker",
        "break one worker of the next node of a zone",
        (
            _ONE_ZONE,
            _argument("worker", type=int, metavar="NUMBER", help="worker; the first is 0"),
            _argument("fault", choices=("no-boot", "fail", "hang"), help="how it breaks"),
            _seconds("fail and hang: how long after READY", default=0.0),
            _COUNT,
        ),
    ),
    (
        "fail-next",
        "answer the next calls with an error, without an effect",
        (*_CALLS, _CODE, _MESSAGE, _COUNT),
    ),
    (
        "burst",
        "answer a share of the calls with errors for a time",
        (
            *_CALLS,
            _seconds("how long from now", required=True),
            _argument(
                "--codes", type=_csv, default="UNAVAILABLE,DEADLINE_EXCEEDED", metavar="A,B",
                help="gRPC codes that take turns",
            ),
            _argument("--share", type=float, default=1.0, help="probability of a call to fail"),
            _argument("--seed", type=int, default=0, help="decides which calls fail"),
        ),
    ),
    (
        "delay-next",
        "answer the next calls late",
        (
            *_CALLS,
            _seconds("how late", required=True),
            _argument(
                "--commit-late", action="store_true",
                help="the effect comes late too, even if the client is gone by then",
            ),
            _COUNT,
        ),
    ),
    ("lose-reply", "let the next calls take effect, but answer UNAVAILABLE", (*_CALLS, _COUNT)),
    ("duplicate-next", "let the service receive the next calls twice", (*_CALLS, _COUNT)),
    (
        "deny",
        "answer calls with PERMISSION_DENIED until they are allowed",
        (_argument("method", nargs="?", default="*", metavar="METHOD", help="RPC"), _ZONE, _CALLER),
    ),
    (
        "allow",
        "lift the denials of a method in a zone",
        (_argument("method", nargs="?", default="*", metavar="METHOD", help="RPC"), _ZONE, _CALLER),
    ),
    (
        "stockout",
        "let the next creates find no capacity",
        (
            _argument("--zone", required=True, metavar="ZONE", help="zone, or * for every one"),
            _argument(
                "--shape", default="state", choices=("sync", "lro", "state", "wait"),
                help="where it shows: the call, its operation, the state, or only as waiting",
            ),
            _COUNT,
        ),
    ),
    (
        "quota",
        "limit the chips of a family in a zone",
        (
            _ONE_ZONE,
            _argument("accelerator_family", metavar="FAMILY", help="for example v5litepod"),
            _argument(
                "--chips", type=int, default=None, metavar="N", help="none given: lift the limit"
            ),
            _argument(
                "--lag", type=float, default=0.0, metavar="SECONDS",
                help="so long what is deleted still counts (default: %(default)s)",
            ),
        ),
    ),
    (
        "fail-operation",
        "let the operations of the next calls fail",
        (
            _METHOD,
            _argument("--code", default="INTERNAL", help="gRPC code"),
            _MESSAGE,
            _ZONE,
            _argument(
                "--after-effect", action="store_true",
                help="the effect comes all the same, only the operation fails",
            ),
            _COUNT,
        ),
    ),
    (
        "slow-operation",
        "let the operations of the next calls, and their effects, take longer",
        (_METHOD, _seconds("how much longer", required=True), _ZONE, _COUNT),
    ),
    (
        "stick-deleting",
        "keep what the next calls delete in DELETING",
        (_ONE_ZONE, _seconds("how long; none given: until unstick", default=None), _COUNT),
    ),
    ("unstick", "let the deletions of a zone end now", (_ZONE,)),
    (
        "stale-lists",
        "let lists show the past",
        (
            _argument("seconds", type=float, metavar="SECONDS", help="how long ago, at most 600"),
            _ZONE,
            _argument(
                "--duration", type=float, default=None, metavar="S",
                help="how long from now; none given: until clear-faults",
            ),
        ),
    ),
    (
        "chaos",
        "disturb at random, the same way for the same seed, until clear-faults",
        (
            _argument("seed", type=int, metavar="SEED", help="decides about everything"),
            _ZONE,
            _argument(
                "--mean-seconds", type=float, default=5.0, metavar="S", help="between two events"
            ),
            _argument(
                "--kinds", type=_csv, default="", metavar="A,B", help="only these (default: all)"
            ),
            _argument("--events", type=int, default=None, metavar="N", help="end after so many"),
        ),
    ),
    (
        "chaos-plan",
        "print what a seed would do, without doing it",
        (
            _argument("seed", type=int, metavar="SEED", help="as of chaos"),
            _ZONE,
            _argument(
                "--mean-seconds", type=float, default=5.0, metavar="S", help="between two events"
            ),
            _argument(
                "--kinds", type=_csv, default="", metavar="A,B", help="only these (default: all)"
            ),
            _argument("--events", type=int, default=20, metavar="N", help="number of events"),
        ),
    ),
    (
        "restart",
        "let the emulator crash and come back; its VMs live on",
        (_seconds("how long it is away", default=0.0),),
    ),
    ("faults", "print the armed faults", ()),
    (
        "clear-faults",
        "disarm faults and let stuck deletions go on",
        (_argument("--zone", default="", metavar="ZONE", help="only those armed for this zone"),),
    ),
)  # fmt: skip


def add_commands(commands: Any) -> None:
    """Adds all commands to the subparsers of `admin`."""
    for name, help_text, arguments in _COMMANDS:
        description = f"{help_text[0].upper()}{help_text[1:]}."
        parser = commands.add_parser(name, help=help_text, description=description)
        names = [argument.add(parser) for argument in arguments]
        parser.set_defaults(run=_runner(name.replace("-", "_"), names))


def run(options: argparse.Namespace) -> int:
    """Sends the chosen command, prints its answer, and returns the exit status."""
    with AdminClient(options.socket, timeout=options.timeout) as client:
        try:
            result = options.run(client, options)
        except grpc.RpcError as error:
            print(f"tpu_emulator: {_reason(error, options.socket)}", file=sys.stderr)
            return 1
    if result is not None:
        print(json.dumps(result, indent=2))
    return 0


def _runner(method: str, names: list[str]) -> Callable[[AdminClient, argparse.Namespace], Any]:
    def call(client: AdminClient, options: argparse.Namespace) -> Any:
        return getattr(client, method)(**{name: getattr(options, name) for name in names})

    return call


def _reason(error: Any, socket: Path) -> str:
    if error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
        return f"no answer on {socket}: is an emulator serving there? ({error.details()})"
    return f"{error.code().name}: {error.details()}"
