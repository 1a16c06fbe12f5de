"""TensorBoard without TensorFlow, for this machine: it starts in a second or two, not in thirty.

Copy-paste: ``python -m local.stack.tensorboard_server --logdir .local/store/runs --port 6006``

All options of ``tensorboard`` are accepted. With ``--runs FOLDER``, a store's folder of runs, the
folder of ``--logdir`` is made anew and holds links by which runs are called by lineage, partition
and date; see :mod:`local.stack.named_runs`. It has no login, so it answers only requests that are
addressed to this machine or to ``--host``: a web page of somebody else could otherwise have its own
name resolve to this machine (DNS rebinding) and read runs through a browser here.
"""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.stack.named_runs import keep_linked

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

# TensorBoard uses a small stand-in of its own for TensorFlow when this module can be imported; its
# build without TensorFlow contains it. Events are read by its data server either way.
SWITCH = "tensorboard.compat.notf"
# By itself the data server looks at a record's checksum only if it cannot parse the record: a bit
# that flipped on a disk would be shown as another loss.
CHECKSUMS = "--extra_data_server_flags=--checksum"
_THIS_MACHINE = ("localhost", "127.0.0.1")


def only_for(hosts: Collection[str], application: WSGIApplication) -> WSGIApplication:
    """Return an application that refuses requests with another ``Host`` than these, with a 403."""
    from werkzeug.sansio.utils import host_is_trusted
    from werkzeug.wrappers import Response

    def checked(environ: Any, start_response: Any) -> Any:
        host = environ.get("HTTP_HOST")
        if host_is_trusted(host, hosts):
            return application(environ, start_response)
        message = f"Addressed to another host than {', '.join(hosts)}. Open one of these names.\n"
        return Response(message, status=403)(environ, start_response)

    return checked


def main() -> None:
    """Run TensorBoard with the command line's options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runs", type=Path)
    own, sys.argv[1:] = parser.parse_known_args()
    if own.runs is not None:
        parser.add_argument("--logdir", type=Path, required=True)
        keep_linked(
            own.runs, parser.parse_known_args(["--runs", str(own.runs), *sys.argv[1:]])[0].logdir
        )
    # The first, so that whoever starts this may say otherwise.
    sys.argv.insert(1, CHECKSUMS)
    sys.modules[SWITCH] = types.ModuleType(SWITCH)
    from absl import app  # type: ignore[import-untyped]
    from tensorboard import default, main_lib, program  # type: ignore[import-untyped]

    def server(application: WSGIApplication, flags: Any) -> Any:
        hosts = (*_THIS_MACHINE, *filter(None, [flags.host]))
        return program.create_port_scanning_werkzeug_server(only_for(hosts, application), flags)

    main_lib.global_init()
    tensorboard = program.TensorBoard(default.get_plugins(), server_class=server)
    app.run(tensorboard.main, flags_parser=tensorboard.configure)


if __name__ == "__main__":
    main()
