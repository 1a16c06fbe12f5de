"""Pretrain BERT on the records of some partitions, from the newest checkpoint if there is one.

``python -m training.train --run STORE/runs/KEY --store STORE --manifest URI [--dry-run]``
"""

from __future__ import annotations

import argparse
import logging
import sys

from pipeline_config import PipelineConfig
from pipeline_store.formats import TrainingResult
from pipeline_store.layout import RunLayout, StoreLayout
from training import artifacts, corpus
from training.checkpoint_store import CheckpointStore
from training.commit import CommitGuard
from training.job import StopRequest, load_config, on_sigterm, run_job
from training.report import next_sentence_text

log = logging.getLogger("training")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    stop = StopRequest()
    # Before TensorFlow is imported: a signal in those seconds must not be lost.
    with on_sigterm(stop.on_signal):
        return run_job(lambda: train(arguments, stop))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.train",
        description="Pretrains BERT (masked LM). Give the same command again to go on after any "
        "interruption: the weights come out the same, bit for bit. A finished run is left alone.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 bad data, 42 out of memory, "
        "43 stopped by SIGTERM with a checkpoint saved, 45 any other failure",
    )
    parser.add_argument(
        "--run", required=True, metavar="URI", help="run folder; its config.json says what to do"
    )
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    parser.add_argument(
        "--manifest",
        required=True,
        action="append",
        metavar="URI",
        help="partition manifest to train on; give it again for more partitions",
    )
    parser.add_argument(
        "--init-model",
        metavar="URI",
        help="model version folder, or training folder of a finished run, to start from; "
        "without it model.init_checkpoint, else random weights",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check configuration, manifests and vocabulary, build the model and one batch, print "
        "their sizes, write nothing",
    )
    return parser


def train(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Check everything that needs no TensorFlow, then train.

    :raises JobError: see :mod:`training.errors`.
    """
    store = StoreLayout(arguments.store)
    run = RunLayout(store.resolve(arguments.run))
    config = load_config(run.config)
    sources = corpus.training_sources(arguments.manifest, store, config)
    vocabulary = corpus.vocabulary_info(store, config)
    inputs = corpus.training_inputs(sources, vocabulary, config)
    guard = CommitGuard.from_environment()
    checkpoints = CheckpointStore(
        run.training, guard, config, inputs=inputs, data_sha256=corpus.fingerprint(sources)
    )
    if _is_done(run, checkpoints) and not arguments.dry_run:
        return

    # Here, so that a wrong argument is reported at once and not after seconds of imports.
    from training import trainer
    from training.checkpoints import check_architecture
    from training.examples import check_records
    from training.masks import load_masker
    from training.records import RecordReader

    init_model = _init_model(arguments.init_model, store, config)
    if init_model is not None:
        check_architecture(init_model, config, vocabulary.sha256)
    reader = RecordReader(sources)
    check_records(reader)
    job = trainer.TrainingJob(
        config=config,
        layout=run.training,
        guard=guard,
        reader=reader,
        masker=load_masker(store, config) if config.masking.dynamic else None,
        inputs=inputs,
        checkpoint_store=checkpoints,
        init_model=init_model,
    )
    if arguments.dry_run:
        trainer.dry_run(job)
        return
    log.info("Training on %s records of %d shards.", f"{len(reader):,}", len(sources))
    _log_result("Done", trainer.Trainer(job).train(stop))


def _is_done(run: RunLayout, checkpoints: CheckpointStore) -> bool:
    result = TrainingResult.load_or_none(run.training.result)
    if result is None:
        return False
    checkpoints.refuse_changed(artifacts.result_checkpoint(run.training.root))
    _log_result("This run is trained already, and its checkpoint verifies", result)
    return True


def _init_model(argument: str | None, store: StoreLayout, config: PipelineConfig) -> str | None:
    uri = argument or config.model.init_checkpoint
    return None if uri is None else store.resolve(uri)


def _log_result(prefix: str, result: TrainingResult) -> None:
    log.info(
        "%s: %d steps, %s tokens, loss %.4f%s, %.1f s of training, weights %s.",
        prefix,
        result.train_steps,
        f"{result.tokens:,}",
        result.final_loss,
        next_sentence_text(result.next_sentence_loss, result.next_sentence_accuracy),
        result.seconds,
        result.weights_sha256[:16],
    )


if __name__ == "__main__":
    sys.exit(main())
