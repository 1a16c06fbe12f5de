"""Emulates the Cloud TPU v2 API on a Unix socket; a TPU VM is a local process.

python -m tpu_emulator serve --socket .local/tpu/api.sock --state-dir .local/tpu/state
python -m tpu_emulator admin --socket .local/tpu/api.sock table
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from tpu_emulator import admin_cli, config

_log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Runs one subcommand and returns the exit status: 0, 1 for a refusal, 2 for bad usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "admin":
        return admin_cli.run(options)
    try:
        return _serve(config.from_arguments(options))
    except (ValueError, OSError) as error:
        parser.error(str(error))


def _serve(options: config.EmulatorConfig) -> int:
    # Imported here: the admin commands need none of it and should answer at once.
    from tpu_emulator import restart
    from tpu_emulator.schema import StateError
    from tpu_emulator.server import Emulator
    from tpu_emulator.sockets import SocketError

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    # Not a blocked signal mask, which the VMs would inherit and so ignore SIGTERM.
    stopped = _termination_pipe()
    os.umask(0o077)  # everything the emulator creates is private to its user
    restart.stay_away()
    try:
        emulator = Emulator(options)
    except (SocketError, StateError) as error:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tpu_emulator",
        description=__doc__,
        epilog="See docs/extend/tpu-emulator.md for what it models.",
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
        "Faults survive a restart of the emulator. Each command has its own --help.",
    )
    admin.add_argument("--socket", type=Path, required=True, help="the emulator's socket")
    admin.add_argument("--timeout", type=float, default=10.0, help="seconds to wait for an answer")
    admin_cli.add_commands(
        admin.add_subparsers(dest="admin_command", required=True, metavar="COMMAND")
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
