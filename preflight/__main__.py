"""Checks a configuration, and with ``--store`` all that a run would need, spending nothing.

``python -m preflight check-config --preset smoke --set training.train_steps=200``
"""

from __future__ import annotations

import argparse
import os
import sys

from pipeline_config import (
    ConfigError,
    PipelineConfig,
    load_preset,
    parse_config,
    preset_names,
    with_overrides,
)
from pipeline_config.loading import parse_overrides
from pipeline_config.settings import load_settings
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.checks import check
from preflight.estimates import estimate_lines
from preflight.partitions import choose_partition


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 when nothing speaks against the run, else 1."""
    options = _parser().parse_args(arguments)
    try:
        config = with_overrides(_base(options), parse_overrides(options.overrides))
        looked_at = _check_store(config, options)
    except ConfigError as error:
        sys.stdout.writelines(f"{line}\n" for line in error.violations)
        return 1
    lines = [f"OK: lineage {config.model.lineage_id}, {looked_at}", *estimate_lines(config)]
    sys.stdout.write("\n  ".join(lines) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m preflight", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = (
        "Print a line for every violation and exit with 1, or a summary with estimates and exit "
        "with 0. Without --store only the configuration itself is checked."
    )
    command = commands.add_parser("check-config", help="check a configuration", description=text)
    base = command.add_mutually_exclusive_group()
    base.add_argument(
        "--preset",
        default=load_settings().preset,
        metavar="NAME",
        help=f"one of {', '.join(preset_names())} (default: %(default)s)",
    )
    base.add_argument("--config", metavar="FILE", help="a config.json instead of a preset")
    command.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="replace one setting; may be given several times",
    )
    command.add_argument(
        "--store",
        metavar="URI",
        help="also check inputs, vocabulary, lineage and region against this store: an absolute "
        "folder or gs://BUCKET/PREFIX",
    )
    command.add_argument(
        "--partition", metavar="ID", help="default: corpus.partition, else the newest with files"
    )
    return parser


def _base(options: argparse.Namespace) -> PipelineConfig:
    if options.config is None:
        return load_preset(options.preset)
    absolute = uris.is_absolute(options.config)
    uri = options.config if absolute else os.path.abspath(options.config)
    try:
        return parse_config(uris.read(uri), uri)
    except OSError as error:
        raise ConfigError([f"--config: {uri} cannot be read ({type(error).__name__})."]) from error


def _check_store(config: PipelineConfig, options: argparse.Namespace) -> str:
    """Check against the store, if one is named; return what was looked at.

    :raises ConfigError: something speaks against the run.
    """
    if options.store is None:
        return "files not looked at (no --store)"
    store = StoreLayout(options.store)
    partition = choose_partition(config, options.partition, store)
    if problems := check(config, store, partition):
        raise ConfigError(problems)
    return f"partition {partition}"


if __name__ == "__main__":
    sys.exit(main())
