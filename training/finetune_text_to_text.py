"""Fine-tune a T5 model on text-to-text tasks and score it, resuming an interrupted run.

``python -m training.finetune_text_to_text --config FILE.toml --run URI [--check]``
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from pipeline_config.text_to_text import TextToTextConfig, parse_text_to_text
from pipeline_store import uris
from pipeline_store.formats import TrainingResult
from trained_models.commit import CommitGuard
from trained_models.importing.sources import split as folder_and_name
from training.runtime.job import StopRequest, on_sigterm, run_job
from training.text_to_text.setup import Prepared, RunFolder, prepare

log = logging.getLogger("training")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    stop = StopRequest()
    # Before TensorFlow is imported: a signal in those seconds must not be lost.
    with on_sigterm(stop.on_signal):
        return run_job(lambda: _finetune(arguments, stop))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.finetune_text_to_text",
        description="Fine-tunes a T5 model and scores it. Give the same command again to go on "
        "after any interruption: the weights come out the same, bit for bit.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 bad data, 42 out of memory, "
        "43 stopped by SIGTERM with a checkpoint saved, 45 any other failure",
    )
    parser.add_argument(
        "--config", required=True, metavar="URI", help="TOML file; docs/guides/text-to-text.md"
    )
    parser.add_argument("--run", required=True, metavar="URI", help="folder that all goes into")
    parser.add_argument(
        "--check",
        action="store_true",
        help="read and check model and files, say what would be trained, write nothing",
    )
    return parser


def _finetune(arguments: argparse.Namespace, stop: StopRequest) -> None:
    recipe = parse_text_to_text(uris.read(arguments.config), arguments.config, TextToTextConfig)
    prepared = prepare(recipe, folder_and_name(arguments.config)[0])
    training = prepared.trainer_config().training
    log.info(
        "%d steps of %d rows, scored every %d.",
        training.steps,
        training.global_batch_size,
        training.checkpoint_interval,
    )
    if arguments.check:
        log.info("Checked: nothing was written.")
        return
    # Imported here, so that errors in the files are reported before seconds of imports.
    from training.text_to_text.scoring import score
    from training.text_to_text.trials import Tuning, strategy_of

    folder, guard = RunFolder(arguments.run), CommitGuard.from_environment()
    tuning = Tuning.of(prepared, folder.training, guard)
    done = tuning.finished("Give --run another folder.")
    if done is not None and _is_scored(folder, prepared, done):
        log.info("This is done already: %s", folder.scores)
        return
    strategy = strategy_of(prepared, tuning.config)
    done = done or tuning.train(strategy, guard, stop)
    scores = score(tuning.load(strategy), prepared, strategy, folder)
    content = _head(prepared, done) | {"tasks": scores}
    guard.check()
    uris.write(folder.scores, (json.dumps(content, indent=2) + "\n").encode())


def _head(prepared: Prepared, done: TrainingResult) -> dict[str, object]:
    """Return the facts that scores depend on: weights, decoding, and examples."""
    names = {"num_beams", "length_penalty", "max_target_length"}
    return {
        "weights_sha256": done.weights_sha256,
        "decoding": prepared.recipe.model_dump(mode="json", include=names),
        "test_sha256": prepared.scored_sha256,
    }


def _is_scored(folder: RunFolder, prepared: Prepared, done: TrainingResult) -> bool:
    data = uris.read_or_none(folder.scores)
    if data is None:
        return False
    head = _head(prepared, done)
    found = json.loads(data)
    return head == {name: found.get(name) for name in head}


if __name__ == "__main__":
    sys.exit(main())
