"""Turns a labeled task into records to fine-tune on, after checking it.

    python -m beam_jobs.prepare_task --config config.json --store /data/store --task NAME \\
        [--dry-run] [Beam options]

A preparation that is done already is not repeated.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from beam_jobs.cli import run_alone, run_cli
from beam_jobs.job.engines import Engine
from beam_jobs.job.options import job_parser, parse_job
from beam_jobs.job.progress import Pass
from beam_jobs.job.running import JobRequest, RemoteJob, Submitted, WorkPlace, launch
from beam_jobs.labelled.outcome import TaskOutcome
from beam_jobs.labelled.pipeline import run_pipeline, run_plainly
from beam_jobs.labelled.preparation import Preparation, in_folder, plan_preparation
from beam_jobs.labelled.training_text import note_training_text
from beam_jobs.labelled.verdict import warnings
from corpus.errors import UserError
from pipeline_config import ConfigError, FinetuningConfig, parse_rental_config
from pipeline_config.data_schema import BeamConfig
from pipeline_config.schema import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import TaskManifest
from pipeline_store.layout import StoreLayout

_DESCRIPTION = """\
Turns a labeled task into records to fine-tune on, after checking it.

The task is described by tasks/NAME/task.toml of the store. The configuration, of a fine-tuning or
a pretraining run, says whose vocabulary makes the tokens, how long rows are, and where the job
runs. What is done already is not done again. The last line printed is a summary in JSON."""
_EPILOG = """\
Options that are not listed here are Beam's and go before what beam.* of the configuration says.

exit codes: 0 done; 40 the request is wrong; 41 the task is refused, with a reason and lines for
each rule that its examples break; other: run again. See docs/reference/finetuning-data.md."""


class PreparedTask(NamedTuple):
    """A committed task; whether an earlier run has made it; the service's job, if there was one."""

    manifest: TaskManifest
    manifest_uri: str
    reused: bool
    remote_job: RemoteJob | None = None


def prepare_task(
    store: StoreLayout,
    name: str,
    *,
    lineage_id: str,
    max_seq_length: int,
    beam: BeamConfig | None = None,
    pipeline_args: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> PreparedTask:
    """Make sure that a task's records are in the store.

    The test examples that are in the lineage's training text are recorded next to the records.

    :param lineage_id: the lineage whose vocabulary tokenizes the texts.
    :param max_seq_length: length of the rows.
    :param beam: settings of the engine; default: this machine.
    :param pipeline_args: Beam options, as on the command line.
    :param labels: labels of the job on Dataflow.
    :raises ConfigError: the task's description is missing or wrong.
    :raises UserError: there are no such files, or the lineage has no vocabulary.
    :raises TaskRefusedError: the examples cannot be used; it names them.
    """
    preparation = plan_preparation(
        store, name, lineage_id=lineage_id, max_seq_length=max_seq_length
    )
    done = preparation.done()
    if done is not None:
        # The lineage may have gained partitions since.
        note_training_text(preparation, done)
        return PreparedTask(done, preparation.manifest_uri, reused=True)
    try:
        outcome, remote_job = _run(preparation, beam or BeamConfig(), pipeline_args, labels or {})
        manifest = preparation.commit(outcome)
    finally:
        uris.delete_tree(preparation.job.folder)
    note_training_text(preparation, manifest)
    return PreparedTask(manifest, preparation.manifest_uri, reused=False, remote_job=remote_job)


def _run(
    preparation: Preparation,
    beam: BeamConfig,
    pipeline_args: Sequence[str],
    labels: Mapping[str, str],
) -> tuple[TaskOutcome, RemoteJob | None]:
    job = preparation.job

    def run(engine: Engine, place: WorkPlace, submitted: Submitted) -> TaskOutcome:
        return run_pipeline(replace(job, place=place), engine, submitted)

    request = JobRequest(
        beam=beam,
        name=preparation.name,
        store=job.store,
        inputs=[file.uri for file in job.files],
        pipeline_args=pipeline_args,
        labels=labels,
        first_pass=Pass.READ,
        unit="examples",
    )
    return launch(request, run)


def try_task(
    store: StoreLayout, name: str, *, lineage_id: str, max_seq_length: int
) -> dict[str, Any]:
    """Run the preparation on this machine and keep nothing; return a summary of its result.

    :raises TaskRefusedError: and the other errors of :func:`prepare_task`.
    """
    preparation = plan_preparation(
        store, name, lineage_id=lineage_id, max_seq_length=max_seq_length
    )
    done = preparation.done()
    if done is not None:
        return _summary(done, preparation.manifest_uri) | {"dry_run": True, "done": True}
    with tempfile.TemporaryDirectory(prefix="task-") as folder:
        preparation = in_folder(preparation, folder)
        outcome = run_plainly(preparation.job)
    preparation.refuse_unusable(outcome)
    totals = outcome.totals
    job = preparation.job
    return {
        "task": name,
        "dry_run": True,
        "done": False,
        "records": {split: one.records for split, one in totals.items()},
        "tokens": {split: one.tokens for split, one in totals.items()},
        "truncated": {split: one.truncated for split, one in totals.items()},
        "labels": len(outcome.labels),
        "dropped": outcome.dropped,
        "warnings": warnings(outcome, job.task, job.max_seq_length),
    }


def _summary(manifest: TaskManifest, uri: str) -> dict[str, Any]:
    """Return the numbers that the command prints."""
    splits = manifest.splits.items()
    return {
        "task": manifest.name,
        "records": {split: one.records for split, one in splits},
        "tokens": {split: one.tokens for split, one in splits},
        "truncated": {split: one.truncated for split, one in splits},
        "labels": len(manifest.labels),
        "dropped": manifest.dropped,
        "warnings": manifest.warnings,
        "manifest": uri,
    }


def _parser() -> argparse.ArgumentParser:
    parser = job_parser(
        "prepare_task",
        _DESCRIPTION,
        _EPILOG,
        dry_run="read, check and convert everything on this machine; change nothing",
    )
    parser.add_argument("--task", metavar="NAME", required=True, help="folder below tasks/")
    return parser


@dataclass(frozen=True)
class _Arguments:
    """The parameters that the job takes from the configuration."""

    store: StoreLayout
    lineage_id: str
    max_seq_length: int
    beam: BeamConfig


def _arguments(config: str, store: str) -> _Arguments:
    """Read the configuration.

    :raises UserError: it does not exist, or a URI is wrong.
    :raises ConfigError: it breaks a rule.
    """
    try:
        layout = StoreLayout(uris.for_library(uris.absolute(store)))
        settings = parse_rental_config(uris.read(uris.absolute(config)), config)
    except FileNotFoundError as error:
        raise UserError(f"--config: {config} does not exist.") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from error
    if isinstance(settings, FinetuningConfig):
        recipe = settings.finetuning
        return _Arguments(layout, settings.encoder.lineage_id, recipe.max_seq_length, settings.beam)
    assert isinstance(settings, PipelineConfig)  # noqa: S101 - there are no other kinds
    return _Arguments(
        layout, settings.model.lineage_id, settings.masking.max_seq_length, settings.beam
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""

    def job() -> dict[str, Any]:
        began = time.monotonic()
        options, pipeline_args = parse_job(_parser(), argv)
        arguments = _arguments(options.config, options.store)
        if options.dry_run:
            return try_task(
                arguments.store,
                options.task,
                lineage_id=arguments.lineage_id,
                max_seq_length=arguments.max_seq_length,
            )
        prepared = prepare_task(
            arguments.store,
            options.task,
            lineage_id=arguments.lineage_id,
            max_seq_length=arguments.max_seq_length,
            beam=arguments.beam,
            pipeline_args=pipeline_args,
            labels=options.labels,
        )
        summary = _summary(prepared.manifest, prepared.manifest_uri)
        if prepared.remote_job is not None:
            summary |= {
                "dataflow_job": prepared.remote_job.job_id,
                "dataflow_link": prepared.remote_job.link,
            }
        seconds = round(time.monotonic() - began, 1)
        return summary | {"reused": prepared.reused, "seconds": seconds}

    return run_cli("prepare_task", job)


if __name__ == "__main__":
    run_alone(main)
