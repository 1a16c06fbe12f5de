"""Mirrors a store's runs and models to MLflow and the Hugging Face Hub.

export MLFLOW_TRACKING_URI=https://mlflow.example.com
python -m pipeline_mirror mlflow --store gs://my-bucket/store
python -m pipeline_mirror mlflow --every 30

export HF_TOKEN=… REPRETRAIN_HUB_REPOSITORY=acme/bert-{lineage}
python -m pipeline_mirror hub --dry-run
python -m pipeline_mirror hub --every 60
python -m pipeline_mirror hub-folder --version v-0a1b2c3d4e5f --output FOLDER
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from model_registry.errors import RegistryError
from pipeline_config.settings import (
    add_store_argument,
    hub_repository,
    hub_token,
    mlflow_tracking_uri,
)
from pipeline_mirror import hub_mirroring, mirroring
from pipeline_mirror.errors import MirrorError, ServerAwayError
from pipeline_mirror.passes import Report
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

log = logging.getLogger(__name__)

_EXPECTED = (ImportError, OSError, ValueError, MirrorError, RegistryError, ServerAwayError)


def main(argv: list[str] | None = None) -> int:
    """Run a command; return 0 on success, 1 on failure, 2 for wrong arguments."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except _EXPECTED as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _mlflow(arguments: argparse.Namespace) -> int:
    mlflow_tracking_uri()
    window = timedelta(days=arguments.window_days)
    return _passes(arguments, lambda store: mirroring.mirror_configured(store, window))


def _hub(arguments: argparse.Namespace) -> int:
    hub_repository("default")  # fails now if the setting is wrong
    token = "" if arguments.dry_run else hub_token()
    return _passes(arguments, lambda store: hub_mirroring.mirror_to_hub(store, token))


def _hub_folder(arguments: argparse.Namespace) -> int:
    written = hub_mirroring.write_version(
        StoreLayout(arguments.store), arguments.lineage, arguments.version, arguments.output
    )
    log.info("%s has %s, %s bytes.", arguments.output, written.version_id, f"{written.bytes:,}")
    return 0


def _passes(arguments: argparse.Namespace, make: Callable[[StoreLayout], Report]) -> int:
    store = StoreLayout(arguments.store)
    # Later each file may fail alone; now a wrong address stops the command at startup.
    if not uris.exists(store.installation):
        log.warning("%s: no run has ever asked for a TPU with this store.", store.root)
    if arguments.every is None:
        return _pass(store, make)
    while True:
        begin = time.monotonic()
        try:
            _pass(store, make)
        except (ServerAwayError, RegistryError, OSError) as error:
            # Server or store are unavailable, or a file is damaged: a later pass catches up.
            log.warning("%s", error)
        time.sleep(max(0.0, arguments.every - (time.monotonic() - begin)))


def _pass(store: StoreLayout, make: Callable[[StoreLayout], Report]) -> int:
    report = make(store)
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
    _add_every(mlflow)
    text = (
        "push to the Hugging Face Hub what it does not have of versions and the one in use, with "
        "the token in HF_TOKEN; without one only say what would be pushed"
    )
    hub = commands.add_parser("hub", help=text, description=text)
    hub.set_defaults(run=_hub)
    add_store_argument(hub)
    hub.add_argument(
        "--dry-run", action="store_true", help="say what would be pushed, as without a token"
    )
    _add_every(hub)
    text = "write a version as a repository of the Hub into a folder, and push nothing"
    folder = commands.add_parser("hub-folder", help=text, description=text)
    folder.set_defaults(run=_hub_folder)
    add_store_argument(folder)
    folder.add_argument("--lineage", default="default", help="its lineage (default: %(default)s)")
    folder.add_argument("--version", required=True, help="its id, such as v-0a1b2c3d4e5f")
    folder.add_argument(
        "--output", required=True, type=Path, metavar="FOLDER", help="a folder that is not there"
    )
    return whole


def _add_every(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--every",
        type=float,
        metavar="SECONDS",
        help="go on until it is stopped, a pass as often as this; without it one pass",
    )


if __name__ == "__main__":
    sys.exit(main())
