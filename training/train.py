"""Pretrain BERT on the records of some partitions, from the newest checkpoint if there is one.

``python -m training.train --run STORE/runs/KEY --store STORE --manifest URI [--dry-run]``
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import TrainingResult
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models import record_sources, updates
from trained_models.decided_steps import decided_config
from training.loop.parts import Part, Start, plan_parts
from training.reporting.report import next_sentence_text
from training.runtime import slices, workers
from training.runtime.job import StopRequest, load_config, on_sigterm, run_job
from training.runtime.profiling import check_range, step_range

if TYPE_CHECKING:
    from training.loop.pretraining import Pretraining

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
        "43 stopped by SIGTERM with a checkpoint saved, 44 another machine is gone, 45 any other "
        "failure",
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
        "--replay-manifest",
        default=[],
        action="append",
        metavar="URI",
        help="manifest of an earlier partition that training.replay_fraction of the rows come "
        "from; give it again for more partitions",
    )
    parser.add_argument(
        "--held-out-manifest",
        default=[],
        action="append",
        metavar="URI",
        help="manifest of a partition whose held-out rows each checkpoint is scored on; give it "
        "again for more; without it those of the partitions trained on",
    )
    parser.add_argument(
        "--train-steps",
        type=int,
        metavar="N",
        help="steps that the run's plan has decided; for training.train_steps=auto",
    )
    parser.add_argument(
        "--init-model",
        metavar="URI",
        help="what to start from: a model version folder, the training folder of a finished run, a "
        "Hugging Face folder or the prefix of a TensorFlow checkpoint (see python -m "
        "training.import_model); without it model.init_checkpoint, else random weights",
    )
    parser.add_argument(
        "--accept-changes",
        action="store_true",
        help="go on from a checkpoint of other settings or records, which is otherwise refused "
        "with what differs; its tensors must fit",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check configuration, manifests and vocabulary, build the model and one batch, print "
        "their sizes, write nothing",
    )
    parser.add_argument(
        "--profile",
        type=step_range,
        metavar="FIRST:LAST",
        help="trace these steps, counted from 1, for TensorBoard's profiler",
    )
    return parser


@workers.naming_lost_workers()
def train(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Check everything that needs no TensorFlow, then train.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    store = StoreLayout(arguments.store)
    run = RunLayout(store.resolve(arguments.run))
    config = decided_config(load_config(run.config), arguments.train_steps)
    if not workers.takes_part(config):
        slices.lend(config, lambda: uris.exists(run.training.result))
        return
    slices.prepare(config)
    if arguments.profile is not None:
        check_range(arguments.profile, config)
    start = Start.of(arguments.init_model, store, config)
    parts = plan_parts(run, config, start, arguments, store)
    if (done := parts[-1].done) is not None and not arguments.dry_run:
        _log_result("This run is trained already, and its checkpoint verifies", done)
        return

    # Here, so that a wrong argument is reported at once and not after seconds of imports.
    from training.loop import pretraining, trainer

    acting = start.acting(config)
    _check_start(start, acting, parts[-1].inputs.vocabulary_sha256)
    # Before any records are read: machines can be joined only as long as TensorFlow is idle.
    strategy = None if arguments.dry_run else trainer.make_strategy(config)
    if start.update:
        log.info(
            "This run continues its lineage: peak rate %g, and the optimizer begins with %s.",
            acting.optimizer.learning_rate,
            "its moments" if acting.optimizer.carry_slots else "zeros",
        )
    if strategy is None:
        pretraining.dry_run(_pretraining(parts[0], start, arguments, store))
        return
    for part in parts:
        if part.done is not None:
            _log_result("The head is trained already", part.done)
            continue
        job = trainer.TrainingJob(
            config=part.config,
            layout=part.layout,
            guard=part.guard,
            objective=_pretraining(part, start, arguments, store),
            inputs=part.inputs,
            checkpoint_store=part.checkpoints,
            profile=arguments.profile if part is parts[-1] else None,
        )
        _log_result("Done", trainer.Trainer(job, strategy).train(stop))


def _check_start(start: Start, acting: PipelineConfig, vocabulary_sha256: str) -> None:
    from training.model.checkpoints import check_architecture

    if start.uri is not None:
        check_architecture(start.uri, acting, vocabulary_sha256)
        if acting.optimizer.carry_slots:
            updates.check_carried_slots(start.uri, acting)


def _pretraining(
    part: Part, start: Start, arguments: argparse.Namespace, store: StoreLayout
) -> Pretraining:
    from training.evaluation.held_out import HeldOut
    from training.importing.loading import initial_model
    from training.input.data import load_training_data
    from training.loop.pretraining import Pretraining

    config, init_uri = part.config, part.init_uri
    pretraining = Pretraining(
        config=config,
        data=load_training_data(part.sources, store, config, start.steps_behind),
        held_out=HeldOut.load(arguments.held_out_manifest or arguments.manifest, store, config),
        init_model=None if init_uri is None else initial_model(init_uri, store, config),
    )
    _log_sources(part.sources, arguments, config)
    return pretraining


def _log_sources(
    sources: list[record_sources.PhaseSources],
    arguments: argparse.Namespace,
    config: PipelineConfig,
) -> None:
    for part in sources:
        pools = {"new": part.new, "replayed": part.replay}
        log.info(
            "Steps %d to %d: %d rows of %d tokens each, from %s.",
            part.phase.first_step + 1,
            part.phase.end_step,
            part.phase.global_batch_size,
            part.phase.max_seq_length,
            " and ".join(_size(kind, pool) for kind, pool in pools.items() if pool),
        )
    if config.training.replay_fraction and not any(part.replay for part in sources):
        log.info(
            "All rows are new, though training.replay_fraction is %s: %s.",
            config.training.replay_fraction,
            "every shard of --replay-manifest is among those of --manifest"
            if arguments.replay_manifest
            else "there is no --replay-manifest, as in the first run of a lineage",
        )


def _size(kind: str, sources: list[record_sources.RecordSource]) -> str:
    records = sum(source.file.records for source in sources)
    return f"{records:,} {kind} records of {len(sources)} shards"


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
