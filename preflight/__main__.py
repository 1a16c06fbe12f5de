"""Checks a configuration, and with ``--store`` everything a run needs, spending nothing.

``python -m preflight check-config --preset smoke --set training.train_steps=200``

With ``--project`` it also asks the Cloud TPU API whether it can serve the run.

``python -m preflight check-finetuning --store URI --set finetuning.tasks=NAME``

does the same for a fine-tuning run: its tasks, its model, its time and cost.

``python -m preflight cloud --preset bert_base_v5e --store gs://BUCKET/PREFIX --project PROJECT``

checks the installation instead: account, rights, APIs, network, image, store, versions, alerts.
"""

from __future__ import annotations

import argparse
import sys

from corpus.partitions import choose_partition
from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    load_finetuning_preset,
    load_preset,
    parse_config,
    preset_names,
    with_overrides,
)
from pipeline_config.loading import parse_overrides
from pipeline_config.settings import add_store_argument, load_settings, tpu_service
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight import finetuning_settings
from preflight.cloud.airflow_api import TOKEN
from preflight.estimates import finetuning_estimates
from preflight.estimates.estimates import estimate
from preflight.run import finetuning
from preflight.run.checks import check


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 if no check failed, else 1."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ConfigError as error:
        sys.stdout.writelines(f"{line}\n" for line in error.violations)
        return 1


def _check_config(options: argparse.Namespace) -> int:
    """Check a configuration and print the estimate; return 0.

    :raises ConfigError: a check failed.
    """
    config, looked_at = _check_store(_config(options), options)
    _ask_tpu_service(config, options)
    store = StoreLayout(options.store) if options.store is not None else None
    head = f"OK: lineage {config.model.lineage_id}, {looked_at}"
    lines = [head, *estimate(config, store).lines]
    sys.stdout.write("\n  ".join(lines) + "\n")
    return 0


def _check_finetuning(options: argparse.Namespace) -> int:
    """Check a fine-tuning run and print the estimate; return 0.

    :raises ConfigError: a check failed.
    """
    store = StoreLayout(options.store)
    overrides = parse_overrides(options.overrides, FinetuningConfig)
    chosen = with_overrides(load_finetuning_preset(options.preset), overrides)
    config = finetuning_settings.completed(chosen, store)
    if problems := finetuning.check(config, store):
        raise ConfigError(problems)
    _ask_tpu_service(finetuning_settings.rental_settings(config), options)
    head = f"OK: {config.encoder.version} on {', '.join(config.finetuning.tasks)}"
    lines = [head, *finetuning_estimates.estimate(config, store).lines]
    sys.stdout.write("\n  ".join(lines) + "\n")
    return 0


def _check_cloud(options: argparse.Namespace) -> int:
    # Imported lazily: Google's libraries are slow to load.
    from preflight.cloud.command import check_cloud

    if options.project is None:
        raise ConfigError(
            ["--project: in which Google Cloud project? Give it, or set GOOGLE_CLOUD_PROJECT."]
        )
    return check_cloud(_config(options), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m preflight", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = (
        "Print a line for every violation and exit with 1, or a summary with estimates and exit "
        "with 0."
    )
    command = commands.add_parser(
        "check-config",
        help="check a configuration",
        description=f"{text} Without --store only the configuration itself is checked.",
    )
    _add_configuration(command)
    command.add_argument(
        "--store",
        metavar="URI",
        help="also check inputs, vocabulary, lineage and region against this store: an absolute "
        "folder or gs://BUCKET/PREFIX",
    )
    command.add_argument(
        "--partition", metavar="ID", help="default: corpus.partition, else the newest with files"
    )
    _add_tpu_service(command)
    command.set_defaults(run=_check_config)
    command = commands.add_parser(
        "check-finetuning", help="check a fine-tuning run", description=text
    )
    names = ", ".join(preset_names(FinetuningConfig))
    command.add_argument(
        "--preset",
        default=load_settings().finetuning_preset,
        metavar="NAME",
        help=f"one of {names}, or a .toml file (default: %(default)s)",
    )
    _add_overrides(command)
    command.add_argument(
        "--store",
        default=load_settings().store_uri,
        metavar="URI",
        help="with the model and the tasks (default: %(default)s)",
    )
    _add_tpu_service(command)
    command.set_defaults(run=_check_finetuning)
    text = (
        "Print a row for each check, with what mends it, and exit with 1 when one failed. Nothing "
        "is spent; in the store one file is written and deleted."
    )
    command = commands.add_parser(
        "cloud", help="check an installation in the cloud", description=text
    )
    _add_configuration(command)
    add_arguments(command)
    command.set_defaults(run=_check_cloud)
    return parser


def _add_configuration(command: argparse.ArgumentParser) -> None:
    base = command.add_mutually_exclusive_group()
    base.add_argument(
        "--preset",
        default=load_settings().preset,
        metavar="NAME",
        help=f"one of {', '.join(preset_names())}, or a .toml file (default: %(default)s)",
    )
    base.add_argument("--config", metavar="FILE", help="a config.json instead of a preset")
    _add_overrides(command)


def _add_overrides(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="replace one setting; may be given several times",
    )


def _add_tpu_service(command: argparse.ArgumentParser) -> None:
    command.add_argument("--project", help="also ask the Cloud TPU API of this project")
    command.add_argument("--endpoint", help="of the API, such as unix:/run/tpu/api.sock")
    command.add_argument(
        "--insecure", action="store_true", help="no TLS and no credentials: an emulator"
    )


def _config(options: argparse.Namespace) -> PipelineConfig:
    return with_overrides(_base(options), parse_overrides(options.overrides))


def _base(options: argparse.Namespace) -> PipelineConfig:
    if options.config is None:
        return load_preset(options.preset)
    uri = uris.absolute(options.config)
    try:
        return parse_config(uris.read(uri), uri)
    except OSError as error:
        raise ConfigError([f"--config: {uri} cannot be read ({type(error).__name__})."]) from error


def _check_store(config: PipelineConfig, options: argparse.Namespace) -> tuple[PipelineConfig, str]:
    """Check against the store, if one is named; return the run's settings and what was checked.

    :raises ConfigError: a check failed.
    """
    if options.store is None:
        return config, "files not looked at (no --store)"
    store = StoreLayout(options.store)
    partition = choose_partition(config, options.partition, store)
    config = with_overrides(config, {"corpus.partition": partition})
    if problems := check(config, store, partition):
        raise ConfigError(problems)
    return config, f"partition {partition}"


def _ask_tpu_service(config: PipelineConfig, options: argparse.Namespace) -> None:
    """Ask the Cloud TPU API whether it can serve the run, if a project is named.

    :raises ConfigError: it will refuse the run.
    """
    if options.project is None:
        return
    # Imported lazily: the client library is slow to load.
    from google.auth.exceptions import GoogleAuthError

    from preflight.cloud.tpu_service import read_offer, tpu_rows
    from preflight.findings import problems
    from tpu_lifecycle.service.cloud_tpu import connect

    try:
        backend = connect(
            project_id=options.project,
            endpoint=options.endpoint,
            insecure=options.insecure,
            role="preflight",
        )
    except GoogleAuthError as error:
        raise ConfigError([f"--project: no usable credentials: {error}"]) from error
    try:
        lines = problems(tpu_rows(config, read_offer(config, backend)))
    finally:
        backend.close()
    if lines:
        raise ConfigError(lines)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the ``cloud`` command other than the configuration."""
    service = tpu_service()
    command.add_argument(
        "--project",
        default=service.project_id,
        help="of Google Cloud; default: GOOGLE_CLOUD_PROJECT, else that of Airflow's connection, "
        "if a variable has it",
    )
    add_store_argument(command)
    command.add_argument(
        "--airflow-url",
        metavar="URL",
        help="Airflow's address, if it is not installed here; what it has of connections it tells "
        f"whoever has a token in {TOKEN}",
    )
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")
    command.add_argument(
        "--endpoint",
        default=service.endpoint,
        help="of the TPU API, such as unix:/run/tpu/api.sock; default: as for --project",
    )
    command.add_argument(
        "--insecure",
        action="store_true",
        default=service.insecure,
        help="the TPU API takes no TLS and no credentials: an emulator",
    )


if __name__ == "__main__":
    sys.exit(main())
