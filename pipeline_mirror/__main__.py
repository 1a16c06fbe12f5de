"""Copies what a store has into tools of others.

MLFLOW_TRACKING_URI=https://mlflow.example.com python -m pipeline_mirror mlflow --store STORE
python -m pipeline_mirror mlflow --every 30
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from datetime import timedelta

from pipeline_config.settings import add_store_argument, mlflow_tracking_uri
from pipeline_mirror import mirroring
from pipeline_mirror.errors import ServerAwayError
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Run a command; 0 when all is well, 1 when it cannot, 2 for wrong arguments."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (ImportError, OSError, ValueError, ServerAwayError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _mlflow(arguments: argparse.Namespace) -> int:
    store = StoreLayout(arguments.store)
    # Later on each file may fail for itself; now a wrong address is a reason not to begin.
    uris.exists(store.installation)
    mlflow_tracking_uri()
    window = timedelta(days=arguments.window_days)
    if arguments.every is None:
        return _pass(store, window)
    while True:
        begin = time.monotonic()
        try:
            _pass(store, window)
        except ServerAwayError as error:
            # What it misses now it is told of when it is back.
            log.warning("%s", error)
        time.sleep(max(0.0, arguments.every - (time.monotonic() - begin)))


def _pass(store: StoreLayout, window: timedelta) -> int:
    report = mirroring.mirror_configured(store, window)
    log.info("%s", report)
    for problem in report.problems:
        log.error("%s", problem)
    return 1 if report.problems else 0


def _parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="python -m pipeline_mirror",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    text = "add to MLflow what it does not have of runs, versions and the one in use"
    mlflow = commands.add_parser("mlflow", help=text, description=text)
    mlflow.set_defaults(run=_mlflow)
    add_store_argument(mlflow)
    mlflow.add_argument(
        "--window-days",
        type=float,
        default=mirroring.WINDOW / timedelta(days=1),
        help="runs that began earlier and have ended are left out (default: %(default)s)",
    )
    mlflow.add_argument(
        "--every",
        type=float,
        metavar="SECONDS",
        help="go on until it is stopped, a pass as often as this; without it one pass",
    )
    return whole


if __name__ == "__main__":
    sys.exit(main())
