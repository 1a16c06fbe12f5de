"""Serves metrics of a store to Prometheus, prints them, and writes rules and dashboards for them.

python -m pipeline_metrics serve --store gs://my-bucket/store --port 9977
python -m pipeline_metrics print --store "$PWD/.local/store"
python -m pipeline_metrics files --output /etc/prometheus/repretraining
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType

from pipeline_config.settings import add_store_argument, load_settings
from pipeline_metrics import files
from pipeline_metrics.snapshot import WINDOW_DAYS, SnapshotSource
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

log = logging.getLogger(__name__)

PORT = 9977
LOOPBACK = "127.0.0.1"


def main(argv: list[str] | None = None) -> int:
    """Run a command; return 0 on success, 1 on failure, 2 for wrong arguments."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _serve(arguments: argparse.Namespace) -> int:
    if (exporter := _exporter()) is None:
        return 1
    collector = exporter.StoreCollector(_source(arguments).take, arguments.max_age_seconds)
    try:
        server, thread = exporter.serve(collector, arguments.host, arguments.port)
    except OSError as error:
        place = f"{arguments.host}:{arguments.port}"
        raise OSError(f"{place}: {error.strerror}; choose another --port.") from error
    host, port = server.server_address[:2]
    print(f"Serving the metrics of {arguments.store} at http://{host}:{port}/metrics", flush=True)
    thread.join()
    return 0


def _print(arguments: argparse.Namespace) -> int:
    if (exporter := _exporter()) is None:
        return 1
    sys.stdout.write(exporter.text(exporter.StoreCollector(_source(arguments).take, 0.0)))
    return 0


def _files(arguments: argparse.Namespace) -> int:
    for path in files.write(arguments.output, load_settings()):
        print(f"Wrote {path}")
    return 0


def _docs(_arguments: argparse.Namespace) -> int:
    for path in files.write_for_repository():
        print(f"Wrote {path}")
    return 0


def _exporter() -> ModuleType | None:
    """Return the exporter module; None, with a message, if ``prometheus_client`` is missing."""
    try:
        from pipeline_metrics import exporter
    except ImportError as error:
        print(
            f"{error}. Metrics need prometheus_client: install requirements-observe.txt, or run "
            "this where Airflow is installed, which brings it.",
            file=sys.stderr,
        )
        return None
    return exporter


def _source(arguments: argparse.Namespace) -> SnapshotSource:
    """Return the source of the store's snapshots.

    :raises OSError: the store is unreachable.
    :raises ValueError: the argument is not the address of a store.
    """
    store = StoreLayout(arguments.store)
    # Later each file may fail alone; now a wrong address stops the command at startup.
    if not uris.exists(store.installation):
        log.warning("%s: no run has ever asked for a TPU with this store.", store.root)
    return SnapshotSource(store, timedelta(days=arguments.window_days))


def _parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="python -m pipeline_metrics",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    serving = add("serve", _serve, "answer scrapes until it is stopped")
    printing = add("print", _print, "print one scrape")
    for command in (serving, printing):
        add_store_argument(command)
        command.add_argument(
            "--window-days",
            type=float,
            default=WINDOW_DAYS,
            help="runs that began earlier and have ended are left out (default: %(default)s)",
        )
    serving.add_argument(
        "--host",
        default=LOOPBACK,
        help="address to listen on; it asks for no login (default: %(default)s)",
    )
    serving.add_argument(
        "--port", type=int, default=PORT, help="0: a free one (default: %(default)s)"
    )
    serving.add_argument(
        "--max-age-seconds",
        type=float,
        default=10.0,
        help="a reading of the store is answered again for so long (default: %(default)s)",
    )
    writing = add("files", _files, "write rules and dashboards, by the installation's settings")
    writing.add_argument("--output", type=Path, required=True, help="folder")
    add("docs", _docs, "write the same into this repository, and the tables of its page")
    return whole


if __name__ == "__main__":
    sys.exit(main())
