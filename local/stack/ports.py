"""Chooses TCP ports on the loopback interface, keeping earlier ones while they are free."""

from __future__ import annotations

import random
import socket

from local.stack.paths import StackError

HOST = "127.0.0.1"
# Below the range of ephemeral ports for outgoing connections (ip(7)), so that no connection gets
# one of ours by chance between choosing and binding.
RANGE = range(20000, 30000)
ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Return whether one of our servers could bind the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Without it, connections of the last run that are still in TIME_WAIT look like a server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose(names: tuple[str, ...], previous: dict[str, int]) -> dict[str, int]:
    """Return a distinct port for each name, the previous one where it is still free.

    :param names: parts that need a port.
    :param previous: ports of the last start.
    :raises StackError: no free port was found.
    """
    chosen: dict[str, int] = {}
    for name in names:
        port = previous.get(name)
        if port is None or port in chosen.values() or not is_free(port):
            port = _free_port(set(chosen.values()))
        chosen[name] = port
    return chosen


def _free_port(taken: set[int]) -> int:
    for port in random.SystemRandom().sample(RANGE, ATTEMPTS):
        if port not in taken and is_free(port):
            return port
    raise StackError(
        f"None of {ATTEMPTS} ports tried between {RANGE.start} and {RANGE.stop - 1} is free "
        f"on {HOST}. Look with `ss -ltn` for what holds them."
    )
