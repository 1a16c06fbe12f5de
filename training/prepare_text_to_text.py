"""Check the tasks that a T5 learns together, and make the copy that a run is trained from.

``python -m training.prepare_text_to_text --config STORE/runs/KEY/config.json --store STORE
--task NAME [--dry-run]``

The log goes to stderr; the last line of stdout is a summary in JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from pipeline_config import parse_finetuning_config
from pipeline_store import uris
from pipeline_store.formats import TaskManifest
from pipeline_store.layout import StoreLayout
from trained_models.errors import UserError
from training.runtime.job import run_job
from training.text_to_text.preparation import look_at_mixture, prepare_mixture

log = logging.getLogger("training")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    return run_job(lambda: _prepare(arguments), log_stream=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.prepare_text_to_text",
        description="Reads and checks tasks/NAME/text_to_text.toml and the files that it names, "
        "with the vocabulary and the lengths of a fine-tuning run, and copies the examples. What "
        "is done already is not done again.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 the examples cannot be used, "
        "45 any other failure",
    )
    parser.add_argument(
        "--config", required=True, metavar="URI", help="of a fine-tuning run: config.json"
    )
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    parser.add_argument("--task", required=True, metavar="NAME", help="folder below tasks/")
    parser.add_argument("--dry-run", action="store_true", help="check everything, write nothing")
    return parser


def _prepare(arguments: argparse.Namespace) -> None:
    store = StoreLayout(arguments.store)
    config = parse_finetuning_config(uris.read(arguments.config), arguments.config)
    if config.text_to_text.init_checkpoint is None:
        raise UserError(
            f"{arguments.config}: text_to_text.init_checkpoint is empty, so it is a run of "
            "classifiers, whose tasks beam_jobs.prepare_task prepares."
        )
    if arguments.dry_run:
        look_at_mixture(store, arguments.task, config)
        print(json.dumps({"task": arguments.task, "dry_run": True}))
        return
    found = prepare_mixture(store, arguments.task, config)
    print(json.dumps(_summary(found.manifest) | {"manifest": found.uri, "reused": found.reused}))


def _summary(manifest: TaskManifest) -> dict[str, object]:
    splits = manifest.splits.items()
    return {
        "task": manifest.name,
        "records": {split: one.records for split, one in splits},
        "tokens": {split: one.tokens for split, one in splits},
        "truncated": {split: one.truncated for split, one in splits},
        "dropped": manifest.dropped,
        "warnings": manifest.warnings,
    }


if __name__ == "__main__":
    sys.exit(main())
