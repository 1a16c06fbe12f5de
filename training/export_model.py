"""Write a trained model in other formats, each compared with the model before it is committed.

``python -m training.export_model --model STORE/runs/KEY/training --store STORE
--config STORE/runs/KEY/config.json --output STORE/runs/KEY/exports``

The log goes to stderr; the last line of stdout is a JSON object that lists the output.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import get_args

from pipeline_config.training_schema import PromotionConfig
from pipeline_store.layout import ExportsLayout, StoreLayout
from trained_models import artifacts
from trained_models.commit import CommitGuard
from trained_models.errors import UserError
from training.exporting import writing
from training.runtime.job import load_config, nothing_to_save, on_sigterm, run_job

(_CHOICE,) = get_args(PromotionConfig.model_fields["export_formats"].annotation)
FORMATS: tuple[str, ...] = get_args(_CHOICE)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = parser().parse_args(argv)
    with on_sigterm(nothing_to_save("starts the export again")):
        return run_job(lambda: export_model(arguments), log_stream=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m training.export_model",
        description="Writes a model as a Hugging Face folder and as a SavedModel that takes text. "
        "Both are read again and compared with the model on held-out rows; only if hidden states, "
        "logits and filled masks agree, exports.json names them. Give the same command again, and "
        "nothing is done twice.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 a file is damaged or what was "
        "written is not the model, 42 out of memory, 43 stopped by SIGTERM, 45 any other failure",
    )
    parser.add_argument(
        "--model",
        required=True,
        metavar="URI",
        help="model version folder, or training folder of a finished run",
    )
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    parser.add_argument("--config", required=True, metavar="URI", help="the run's config.json")
    parser.add_argument(
        "--output", required=True, metavar="URI", help="folder for the formats and exports.json"
    )
    parser.add_argument(
        "--format",
        action="append",
        choices=FORMATS,
        dest="formats",
        help="give it again for more; without it those of promotion.export_formats",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="write and compare on this machine, print the figures, store nothing",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="FILE.npz",
        help="write there, too, the rows on which formats were compared and what the model itself "
        "computes on them, for another program to compare with",
    )
    return parser


def export_model(arguments: argparse.Namespace) -> None:
    """Write the formats that are missing; print a summary of all.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    store = StoreLayout(arguments.store)
    config = load_config(store.resolve(arguments.config))
    layout = ExportsLayout(store.resolve(arguments.output))
    model_uri = store.resolve(arguments.model)
    formats = list(dict.fromkeys(arguments.formats or config.promotion.export_formats))
    if arguments.reference and config.model.has_decoder:
        raise UserError(
            "--reference: it holds what a model puts in the place of [MASK], which a T5 has not. "
            "Leave it out."
        )
    sha256 = artifacts.model_files(model_uri).sha256
    guard = CommitGuard.from_environment()
    exports = writing.committed(layout, sha256, formats)
    if exports is None or arguments.reference:
        # Here, so that a wrong argument is reported at once and not after seconds of imports.
        from training.exporting.checks import write_reference
        from training.exporting.exporter import Exporter
        from training.text_to_text.lineage_export import LineageExporter

        load = LineageExporter.load if config.model.has_decoder else Exporter.load
        exporter = load(model_uri, store, config)
        if exports is None:
            exports = writing.export(exporter, formats, layout, guard, dry_run=arguments.dry_run)
        if arguments.reference and isinstance(exporter, Exporter):
            write_reference(arguments.reference, exporter.subject)
    print(json.dumps(writing.summary(exports, layout)))


if __name__ == "__main__":
    sys.exit(main())
