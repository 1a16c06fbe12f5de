"""Ports for servers of the tests, and serving by HTTP from a thread."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from http.server import HTTPServer
from typing import TypeVar

Server = TypeVar("Server", bound=HTTPServer)

# Below the range from which kernels take the ports of outgoing connections (ip(7)): a port
# of that range is anybody's between this look and the bind. The local stack has those from 20000.
_PORTS = range(10000, 19000)


def free_ports(count: int, beside: int = 0) -> list[int]:
    """Return ports that nothing listens on now, nor on those ``beside`` them.

    :param beside: how much higher the other port of each is; 0 if there is none.
    """
    ports: list[int] = []
    taken: set[int] = set()
    # Whatever seed a test framework has set: all workers of the tests have the same one.
    for port in random.SystemRandom().sample(_PORTS, 200):
        pair = {port, port + beside}
        if len(ports) < count and not pair & taken and all(_is_free(each) for each in pair):
            ports.append(port)
            taken |= pair
    assert len(ports) == count, "none of 200 ports is free"
    return ports


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve while the context lasts, then close the server and wait for its thread."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
