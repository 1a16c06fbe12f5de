"""Serves TensorBoard on the runs of a store, optionally under a host name of its own.

Copy-paste: ``python -m training.reporting.board --logdir gs://my-bucket/store/runs --port 6006``

All options of ``tensorboard`` are accepted. It has no login, so it answers only requests that are
addressed to this machine, to ``--host``, or to the host of ``--address``: otherwise a foreign web
page could resolve its own name to this machine (DNS rebinding) and read runs through a browser
here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

Application = Callable[[Any, Any], Any]
"""A WSGI application, PEP 3333."""

# By default the data server checks a record's checksum only if it cannot parse the record: a bit
# that flipped on a disk would be shown as a different loss.
CHECKSUMS = "--extra_data_server_flags=--checksum"
THIS_MACHINE = ("localhost", "127.0.0.1")


def only_for(hosts: Collection[str], application: Application) -> Application:
    """Return an application that refuses requests for any other ``Host`` with a 403."""
    from werkzeug.sansio.utils import host_is_trusted
    from werkzeug.wrappers import Response

    def checked(environ: Any, start_response: Any) -> Any:
        host = environ.get("HTTP_HOST")
        if host_is_trusted(host, hosts):
            return application(environ, start_response)
        message = f"Addressed to another host than {', '.join(hosts)}. Open one of these names.\n"
        return Response(message, status=403)(environ, start_response)

    return checked


def serve(hosts: Collection[str] = ()) -> None:
    """Run TensorBoard with the command line's options, until the process is ended.

    :param hosts: names to answer to, besides those of this machine and ``--host``.
    """
    # First, so that the caller's own options override it.
    sys.argv.insert(1, CHECKSUMS)
    from absl import app  # type: ignore[import-untyped]
    from tensorboard import default, main_lib, program  # type: ignore[import-untyped]

    def server(application: Application, flags: Any) -> Any:
        names = (*THIS_MACHINE, *filter(None, [flags.host]), *hosts)
        return program.create_port_scanning_werkzeug_server(only_for(names, application), flags)

    main_lib.global_init()
    tensorboard = program.TensorBoard(default.get_plugins(), server_class=server)
    app.run(tensorboard.main, flags_parser=tensorboard.configure)


def main() -> None:
    """Run TensorBoard for the names that the command line says."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--address", default="")
    own, sys.argv[1:] = parser.parse_known_args()
    host = urlsplit(own.address).hostname
    if own.address and not host:
        parser.error(f"--address {own.address!r} names no host; write https://HOST, as browsers do")
    serve([host] if host else [])


if __name__ == "__main__":
    main()
