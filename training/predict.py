"""Predict labels or values for the texts of files with a fine-tuned model.

``python -m training.predict --run STORE/runs/KEY --store STORE --task NAME --input texts.csv
--output predictions.tsv``

The log goes to stderr; the last line of stdout is a JSON object with the counts.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_store import request_paths, uris
from pipeline_store.formats import TaskManifest, TaskSplit
from pipeline_store.layout import ChildrenLayout, StoreLayout
from trained_models import artifacts
from trained_models.compression import records
from trained_models.errors import BadDataError, UserError
from training.finetuning.exporting.chosen import ChosenTrial, TrainedRun
from training.runtime.job import nothing_to_save, on_sigterm, run_job

if TYPE_CHECKING:
    from training.finetuning.exporting.answers import Answering

log = logging.getLogger("training")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = parser().parse_args(argv)
    with on_sigterm(nothing_to_save("starts again")):
        return run_job(lambda: predict(arguments), log_stream=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m training.predict",
        description="Writes a line for every example of the files: the labels and their "
        "probabilities, or the value; where a line cannot be used, the reason. Texts are in the "
        "columns that the task's description names; labels are not needed.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 a file is damaged, 42 out of "
        "memory, 43 stopped by SIGTERM, 45 any other failure",
    )
    parser.add_argument("--run", required=True, metavar="URI", help="folder of a fine-tuning run")
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--task", metavar="NAME", help="ask the best model of this task")
    which.add_argument("--trial", metavar="ID", help="ask the model of this trial")
    parser.add_argument(
        "--child",
        metavar="NAME",
        help="ask this smaller model of it, which training.compress has made",
    )
    parser.add_argument(
        "--input",
        action="append",
        metavar="FILE",
        dest="inputs",
        help="tsv, csv, jsonl or parquet, also compressed; give it again for more. Without it, the "
        "files that task.toml names by predict",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="tsv; without it, predictions/TASK.tsv of the run",
    )
    parser.add_argument(
        "--batch-size", type=int, default=64, metavar="N", help="texts at once (default: 64)"
    )
    return parser


def predict(arguments: argparse.Namespace) -> None:
    """Run the model on every text; write the answers.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    if arguments.batch_size < 1:
        raise UserError(
            f"--batch-size: {arguments.batch_size} is no number of texts; give 1 or more."
        )
    store = StoreLayout(arguments.store)
    trained = TrainedRun.open(store, arguments.run)
    (trial_id,) = [arguments.trial] if arguments.trial else trained.best_trials(arguments.task)
    chosen = trained.trial(trial_id)
    task = chosen.result.trial.task
    if arguments.inputs:
        inputs = [uris.absolute(path) for path in arguments.inputs]
    else:
        inputs = _own_inputs(trained.inputs(task))
    missing = [uri for uri in inputs if not uris.exists(uri)]
    if missing:
        raise UserError(f"--input: {missing[0]} does not exist.")

    # Here, so that a wrong argument is reported at once and not after seconds of imports.
    from training.finetuning.exporting.answers import write_answers

    output = uris.absolute(arguments.output) if arguments.output else trained.run.predictions(task)
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.child is None:
            model = _own(chosen, store)
        else:
            model = _child(trained.source.children(trial_id), arguments.child, Path(scratch))
        path = Path(scratch, "predictions.tsv")
        counts = write_answers(chosen, model, inputs, path, batch_size=arguments.batch_size)
        uris.upload(str(path), output)
    log.info("%s: %d lines, %d of them with an error.", output, counts.rows, counts.errors)
    which = {"trial": trial_id} | ({"child": arguments.child} if arguments.child else {})
    print(json.dumps({"predictions": output, **which, **counts._asdict()}))


def _own(chosen: ChosenTrial, store: StoreLayout) -> Answering:
    from training.finetuning.exporting.exporter import TextModel

    return TextModel.load(chosen, store).functions()


def _child(layout: ChildrenLayout, name: str, scratch: Path) -> Answering:
    """Copy a child's files to this machine, verified, and load them."""
    from training.finetuning.exporting.served import TextAnswers

    child, place = records.find(layout, name), layout.child(name)
    for file in child.files:
        artifacts.fetch_file(
            uris.join(place.root, child.folder, file.path), file, scratch / file.path
        )
    return TextAnswers(str(scratch / child.served_as))


def _own_inputs(manifest: TaskManifest) -> list[str]:
    """Return the files that a task's description names, if they have not changed since.

    :raises UserError: it names none, or one lies outside the roots that the request may read.
    :raises BadDataError: a file has changed since the task was prepared. The message does not
        include the new hash: the file may no longer be a text of the task.
    """
    found = manifest.inputs.get(TaskSplit.PREDICT, [])
    if not found:
        raise UserError(
            f"The task.toml of {manifest.name!r} names no files by predict; name some there and "
            "prepare the task again, or give --input."
        )
    for file in found:
        try:
            is_same = request_paths.sha256(file.uri) == file.sha256
        except request_paths.OutsideRootsError as error:
            raise UserError(str(error)) from error
        if not is_same:
            raise BadDataError(
                f"{file.uri} was changed: when the task was prepared its SHA-256 was "
                f"{file.sha256}. Prepare the task again."
            )
    return [file.uri for file in found]


if __name__ == "__main__":
    sys.exit(main())
