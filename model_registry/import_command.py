"""Begins a lineage with a published model: vocabulary, first partition, import, first version.

``python -m model_registry import --preset mine.toml --partition 2026-01-01``

Does the same as a first run's tasks before ``plan``; steps that are done already are skipped.
``python -m training.import_model FOLDER --write-preset mine.toml`` writes the settings.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from model_registry import importing, lease, plans
from model_registry.errors import RegistryError
from pipeline_config import ConfigError, PipelineConfig, load_preset, with_overrides
from pipeline_config.command_line import command_parser
from pipeline_config.loading import parse_overrides
from pipeline_config.settings import load_settings
from pipeline_store import uris
from pipeline_store.formats import FormatError, LineageLease, ModelVersion, RunRecord
from pipeline_store.layout import LineageLayout, StoreLayout


class CommandError(RuntimeError):
    """A command that this one runs has failed, and has printed why."""

    def __init__(self, module: str, code: int) -> None:
        super().__init__(f"python -m {module} ended with exit code {code}; see above.")
        self.code = code


def main(words: Sequence[str]) -> int:
    """Run the command line; return the process exit code."""
    options = parser().parse_args(words)
    try:
        version = begin_lineage(StoreLayout(options.store), _config(options))
    except CommandError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    except (RegistryError, ConfigError, FormatError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    losses = {name: round(value, 4) for name, value in version.metrics.items() if "_loss" in name}
    print(json.dumps({"version": version.version_id, **losses}))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser("model_registry import", __doc__)
    add = parser.add_argument
    add("--preset", required=True, metavar="NAME", help="name or .toml with model.init_checkpoint")
    add("--partition", required=True, metavar="ID", help="whose held-out documents it is scored on")
    add(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="SECTION.NAME=VALUE",
        help="a setting, over that of the preset; give it again for more",
    )
    add(
        "--store",
        metavar="URI",
        default=load_settings().store_uri,
        help="root of the store: an absolute folder or gs://BUCKET/PREFIX (default: %(default)s)",
    )
    return parser


def _config(options: argparse.Namespace) -> PipelineConfig:
    overrides = parse_overrides(options.overrides) | {"corpus.partition": options.partition}
    return with_overrides(load_preset(options.preset), overrides)


def begin_lineage(store: StoreLayout, config: PipelineConfig) -> ModelVersion:
    """Make the first version of a lineage; it must have none.

    :param config: with ``model.init_checkpoint`` and ``corpus.partition``.
    :raises RegistryError: there is nothing to import, or a run holds the lineage.
    :raises CommandError: the text or the weights cannot be used.
    """
    lineage_id, partition = config.model.lineage_id, str(config.corpus.partition)
    lineage = store.lineage(lineage_id)
    has_model = uris.exists(lineage.production)
    if config.model.init_checkpoint is None or has_model:
        raise RegistryError(
            f"Nothing to import: model.init_checkpoint is {config.model.init_checkpoint}, and "
            f"lineage {lineage_id!r} has {'a' if has_model else 'no'} model in use. Name a model "
            "to begin with, and a new model.lineage_id."
        )
    # Other settings make another import: otherwise those of the first one would be kept.
    run_id = f"{lineage_id}/{config.model.init_checkpoint}/{config.sha256}"
    record = importing.record_of(config, run_id=run_id, partition=partition)
    folder = store.run(record.run_key)
    uris.create_if_absent(folder.config, config.to_bytes())
    job = ["--config", folder.config, "--store", store.root, "--partition", partition]
    _run("beam_jobs.train_vocabulary", job)
    manifest = _run("beam_jobs.prepare_corpus", job)["manifest"]
    with _held(lineage, config, record) as held:
        run = importing.begin_import(
            store,
            config,
            run_id=run_id,
            partition=partition,
            evaluated={partition: manifest} | plans.general_set(store, lineage, config),
            lease_sequence=held.sequence,
        )
        if run is None:
            raise RegistryError(f"Another model came into use meanwhile: {lineage.production}.")
        _run("training.import_version", importing.arguments(store, run))
        version, verdict = importing.finish_import(store, run)
    sys.stderr.write(f"In use: {version.version_id}. {verdict.reason}\n")
    if (doubt := importing.doubt(verdict)) is not None:
        sys.stderr.write(f"{doubt}\n")
    return version


@contextmanager
def _held(
    lineage: LineageLayout, config: PipelineConfig, record: RunRecord
) -> Iterator[LineageLease]:
    """Hold the lineage's lease, so that no run starts the lineage at the same time."""
    standing = lease.acquire(
        lineage,
        record,
        expires=lease.expiry(config, datetime.now(UTC)),
        poll_seconds=1.0,
        has_ended=lambda held: False,
    )
    if standing.lease is None or not standing.is_held:
        lease.leave(lineage, record.run_key)
        raise RegistryError(
            f"Not imported: {standing.describe()}. Wait for it, or break its lease."
        )
    try:
        yield standing.lease
    finally:
        lease.release(lineage, record.run_key)


def _run(module: str, arguments: list[str]) -> dict[str, Any]:
    """Run a command of this repository; return the JSON object that it prints last.

    :raises CommandError: it fails.
    """
    # Beam and TensorFlow stay in their own processes.
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise CommandError(module, done.returncode)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
