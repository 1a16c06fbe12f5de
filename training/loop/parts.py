"""Plans the trainings of a run: that of a new head alone, if there is one, then the model's.

For each it finds initial weights, settings, inputs and progress, without TensorFlow.
"""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass
from typing import NamedTuple

from pipeline_config import PipelineConfig
from pipeline_store.formats import TrainingInputs, TrainingResult
from pipeline_store.layout import RunLayout, StoreLayout, TrainingLayout
from trained_models import head_phase, heritage, record_sources, updates
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.finished import finished_training

log = logging.getLogger("training")


class Start(NamedTuple):
    """The start of a run.

    :param uri: URI of the initial weights; None: they are random.
    :param update: whether they are a version of the run's own lineage.
    :param steps_behind: steps of that version since the lineage began.
    """

    uri: str | None
    update: bool
    steps_behind: int

    @classmethod
    def of(cls, init_model: str | None, store: StoreLayout, config: PipelineConfig) -> Start:
        """Return the start that ``--init-model`` names, or else ``model.init_checkpoint``.

        :raises FormatError: the version has no readable record.
        """
        parent = None if init_model is None else store.resolve(init_model)
        update = updates.is_update(parent, store, config)
        steps_behind = updates.first_epoch(parent, update=update)
        imported = config.model.init_checkpoint
        uri = parent if parent or imported is None else store.resolve(imported)
        return cls(uri, update, steps_behind)

    def acting(self, config: PipelineConfig) -> PipelineConfig:
        """Return the effective configuration of a training of the model from this start."""
        has_moments = self.steps_behind > 0
        return updates.effective_config(config, update=self.update, has_moments=has_moments)


@dataclass(frozen=True)
class Part:
    """One training of a run.

    ``config`` is its effective configuration, ``init_uri`` names its initial weights, ``done`` is
    its result if it is finished.
    """

    layout: TrainingLayout
    config: PipelineConfig
    init_uri: str | None
    sources: list[record_sources.PhaseSources]
    inputs: TrainingInputs
    guard: CommitGuard
    checkpoints: CheckpointStore
    done: TrainingResult | None


def plan_parts(
    run: RunLayout,
    config: PipelineConfig,
    start: Start,
    arguments: argparse.Namespace,
    store: StoreLayout,
) -> list[Part]:
    """Return a run's trainings, each of which starts from the one before.

    :param config: with the number of steps decided.
    :param arguments: those of ``training.train``: manifests, and whether changes are accepted.
    :raises JobError: manifests, vocabulary, settings and saved checkpoints do not fit together.
    """
    acting, head = start.acting(config), None
    if _trains_head_first(config, start):
        version_id = start.uri.rpartition("/")[2] if start.update and start.uri else None
        head = run.head(version_id)
    init_uri = start.uri if head is None else head.root
    model = _part(run.training, acting, init_uri, arguments, store)
    if head is None:
        return [model]
    # A new head has the rate of a first training: it has learned nothing that it could forget.
    alone = head_phase.head_config(updates.effective_config(config, update=False))
    log.info(
        "The masked-LM head is new: %d steps of the head alone, the encoder held still, then %d of "
        "the whole model (training.head_steps).",
        alone.training.steps,
        config.training.steps,
    )
    return [_part(head, alone, start.uri, arguments, store), model]


def _trains_head_first(config: PipelineConfig, start: Start) -> bool:
    is_new = head_phase.is_head_new(
        start.uri, config, update=start.update, steps_behind=start.steps_behind
    )
    return is_new and head_phase.head_steps(config) > 0


def _part(
    layout: TrainingLayout,
    config: PipelineConfig,
    init_uri: str | None,
    arguments: argparse.Namespace,
    store: StoreLayout,
) -> Part:
    sources = record_sources.phase_sources(
        arguments.manifest, arguments.replay_manifest, store, config
    )
    vocabulary = record_sources.vocabulary_info(store, config)
    inputs = record_sources.training_inputs(sources, vocabulary, config)
    inputs = inputs.model_copy(update={"heritage": heritage.started(config)})
    guard = CommitGuard.from_environment()
    checkpoints = CheckpointStore(
        layout,
        guard,
        config,
        inputs=inputs,
        data_sha256=record_sources.fingerprint(inputs),
        accept_changes=arguments.accept_changes,
    )
    instead = f"To train on from it, start a new run with --init-model {layout.root}."
    done = finished_training(layout, checkpoints, instead)
    return Part(layout, config, init_uri, sources, inputs, guard, checkpoints, done)
