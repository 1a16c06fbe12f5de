"""Emulates the Cloud TPU v2 API on a Unix socket; a TPU VM is a local process.

python -m tpu_emulator serve --socket .local/tpu/api.sock --state-dir .local/tpu/state
python -m tpu_emulator admin --socket .local/tpu/api.sock table
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import grpc

from tpu_emulator import config
from tpu_emulator.admin import AdminClient

_log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Runs one subcommand and returns the exit status: 0, 1 for a refusal, 2 for bad usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "admin":
        return _admin(options)
    try:
        return _serve(config.from_arguments(options))
    except (ValueError, OSError) as error:
        parser.error(str(error))


def _serve(options: config.EmulatorConfig) -> int:
    # Imported here: the admin commands need none of it and should answer at once.
    from tpu_emulator.server import Emulator
    from tpu_emulator.sockets import SocketError

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    # Not a blocked signal mask, which the VMs would inherit and so ignore SIGTERM.
    stopped = _termination_pipe()
    os.umask(0o077)  # everything the emulator creates is private to its user
    try:
        emulator = Emulator(options)
    except SocketError as error:
        print(f"tpu_emulator: {error}", file=sys.stderr)
        return 1
    emulator.start()
    print(f"serving the Cloud TPU v2 API on unix:{options.socket}", flush=True)
    os.read(stopped, 1)
    _log.info("stopping, VMs: %s", options.on_exit)
    emulator.stop()
    return 0


def _termination_pipe() -> int:
    """A descriptor that becomes readable at SIGTERM or SIGINT."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # The C handler writes the byte: a Python one could wait for a read that it should end.
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return reader


def _admin(options: argparse.Namespace) -> int:
    with AdminClient(options.socket, timeout=options.timeout) as client:
        try:
            result = options.run(client, options)
        except grpc.RpcError as error:
            print(f"tpu_emulator: {_reason(error, options.socket)}", file=sys.stderr)
            return 1
    if result is not None:
        print(json.dumps(result, indent=2))
    return 0


def _reason(error: Any, socket: Path) -> str:
    if error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
        return f"no answer on {socket}: is an emulator serving there? ({error.details()})"
    return f"{error.code().name}: {error.details()}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tpu_emulator",
        description=__doc__,
        epilog="See docs/tpu-emulator.md for what it models.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve",
        help="run an emulator until SIGTERM or SIGINT",
        description="Serves until SIGTERM or SIGINT. It runs the startup scripts that it is sent, "
        "so it refuses a socket or state folder that other users can enter. State survives a "
        "restart. Point a client at the gRPC target unix:<socket> with an insecure channel.",
    )
    config.add_arguments(serve)
    admin = commands.add_parser(
        "admin",
        help="look into a running emulator, or disturb it",
        description="Sends one command to a running emulator and prints its answer as JSON. "
        "Faults apply to the next calls and survive a restart of the emulator.",
    )
    admin.add_argument("--socket", type=Path, required=True, help="the emulator's socket")
    admin.add_argument("--timeout", type=float, default=10.0, help="seconds to wait for an answer")
    _add_views(admin.add_subparsers(dest="admin_command", required=True, metavar="COMMAND"))
    return parser


def _add_views(commands: Any) -> None:
    def command(name: str, help_text: str, run: Any) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, help=help_text, description=help_text)
        parser.set_defaults(run=run)
        return parser

    command("table", "print every queued resource, node and VM process", lambda c, o: c.table())
    calls = command(
        "calls", "print the recorded API calls", lambda c, o: c.calls(o.method, after=o.after)
    )
    calls.add_argument("--method", default="", help="only this RPC, for example CreateNode")
    calls.add_argument("--after", type=int, default=0, help="only calls with a greater id")
    preempt = command(
        "preempt",
        "take a node and its queued resource away",
        lambda c, o: c.preempt(o.node, node_state=o.node_state),
    )
    preempt.add_argument("node", metavar="NODE", help="node id or full name")
    preempt.add_argument(
        "--node-state", default="PREEMPTED", choices=("PREEMPTED", "TERMINATED", "GONE")
    )
    reboot = command("reboot", "kill and boot the VMs of a node", lambda c, o: c.reboot(o.node))
    reboot.add_argument("node", metavar="NODE", help="node id or full name")
    _add_faults(command)


def _add_faults(command: Any) -> None:
    fail = command(
        "fail-next",
        "answer the next calls of a method with an error",
        lambda c, o: c.fail_next(o.method, code=o.code, message=o.message, count=o.count),
    )
    fail.add_argument("--code", required=True, help="gRPC code, for example UNAVAILABLE")
    fail.add_argument("--message", default="", help="text of the error")
    stockout = command(
        "stockout",
        "let the next creates find no capacity",
        lambda c, o: c.stockout(o.zone, shape=o.shape, count=o.count),
    )
    stockout.add_argument("--zone", required=True, help="zone, or * for every zone")
    stockout.add_argument(
        "--shape",
        default="state",
        choices=("sync", "lro", "state", "wait"),
        help="where it shows: in the call, its operation, the state, or only as waiting",
    )
    delay = command(
        "delay-next",
        "answer the next calls of a method late",
        lambda c, o: c.delay_next(
            o.method, seconds=o.seconds, commit_late=o.commit_late, count=o.count
        ),
    )
    delay.add_argument("--seconds", type=float, required=True, help="how late")
    delay.add_argument(
        "--commit-late",
        action="store_true",
        help="the effect comes late too, even if the client is gone by then",
    )
    lose = command(
        "lose-reply",
        "let the next calls take effect, but answer UNAVAILABLE",
        lambda c, o: c.lose_reply(o.method, count=o.count),
    )
    for parser in (fail, delay, lose):
        parser.add_argument("method", metavar="METHOD", help="RPC name, or * for every one")
    for parser in (fail, stockout, delay, lose):
        parser.add_argument("--count", type=int, default=1, help="number of calls (default: 1)")
    command("faults", "print the armed faults", lambda c, o: c.faults())
    command("clear-faults", "disarm all faults", lambda c, o: {"cleared": c.clear_faults()})


if __name__ == "__main__":
    sys.exit(main())
