"""The command line of the data job."""

from __future__ import annotations

import argparse
import logging

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

# Beam's DirectRunner downloads the Prism engine when it can and falls back to this one when it
# cannot, so what runs would depend on the network.
LOCAL_RUNNER = "FnApiRunner"

logger = logging.getLogger(__name__)


class PrepareCorpusOptions(PipelineOptions):
    """Options of ``python -m beam_jobs.prepare_corpus`` beside Beam's own."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        # Beam parses every option class for every pipeline of a process, so none can be required.
        parser.prog = "python -m beam_jobs.prepare_corpus"
        parser.add_argument(
            "--config", metavar="FILE", help="required: config.json, a path or gs:// URI"
        )
        parser.add_argument("--store", metavar="URI", help="required: a directory or gs:// URI")
        parser.add_argument("--partition", metavar="ID", help="required: such as 2026-01-31")
        parser.add_argument(
            "--input", metavar="PATTERN", help="instead of corpus.input_pattern of the file"
        )
        parser.add_argument(
            "--dry-run",
            dest="list_only",
            action="store_true",
            help="check the inputs and list the shards with their state; do no work",
        )


def local_by_default(options: PipelineOptions) -> PipelineOptions:
    """Pin the engine of local runs, unless another runner is asked for."""
    standard = options.view_as(StandardOptions)
    if standard.runner == "DirectRunner":
        logger.info("DirectRunner may download another engine; %s is used", LOCAL_RUNNER)
    if standard.runner in (None, "DirectRunner"):
        standard.runner = LOCAL_RUNNER
    return options
