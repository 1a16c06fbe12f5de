"""Rules that combine several settings. Each is a small function that yields a line per violation.

Limits of a single setting are in the schema. Rules that need to check files or the cloud are in
:mod:`preflight.run.checks`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pipeline_config.accelerators import core_count
from pipeline_config.architecture_rules import ARCHITECTURE_RULES
from pipeline_config.finetuning import RecipeConfig
from pipeline_config.rental_rules import RENTAL_RULES
from pipeline_config.row_shapes import longest_corrupted, row_shapes
from pipeline_config.schema import PARTITION_PATTERN, PipelineConfig


def violations(config: PipelineConfig) -> list[str]:
    """Return one line for every violation in the configuration; empty when it is valid."""
    return [
        *(line for rule in RULES for line in rule(config)),
        *(line for rule in RENTAL_RULES for line in rule(config)),
    ]


def _partition_is_an_id(config: PipelineConfig) -> Iterator[str]:
    """A partition is a folder name and part of keys."""
    partition = config.corpus.partition
    if partition is None:
        return
    if not _is_partition(partition):
        yield (
            f"corpus.partition: {partition!r} is not a partition id; use a-z, 0-9, '.', '_' and "
            "'-', such as 2026-01-31."
        )


def _is_partition(name: str) -> bool:
    return re.fullmatch(PARTITION_PATTERN, name) is not None and ".." not in name


def documents_of(input_format: str) -> tuple[str, ...]:
    """Return the values of ``corpus.document`` that a format allows; ``auto`` means the first.

    :param input_format: ``corpus.input_format``, but not ``auto``.
    """
    known = {"text": ("blank_line", "file", "line"), "sentences": ("blank_line",)}
    return known.get(input_format, ("record",))


def _documents_are_in_the_format(config: PipelineConfig) -> Iterator[str]:
    """corpus.document says what a document can be in this format."""
    corpus = config.corpus
    if "auto" in (corpus.input_format, corpus.document):
        return
    if corpus.document not in (possible := documents_of(corpus.input_format)):
        yield (
            f"corpus.document: {corpus.document} cannot be a document of "
            f"corpus.input_format={corpus.input_format}; use {' or '.join(possible)}, or auto."
        )


def _groups_are_of_records(config: PipelineConfig) -> Iterator[str]:
    """A group is named by a field of records."""
    corpus = config.corpus
    if corpus.split_by == "group" and corpus.group_field is None:
        yield (
            "corpus.group_field: corpus.split_by=group needs the field or column that says which "
            "records belong together; name it."
        )
    if corpus.group_field is not None and corpus.input_format in {"text", "sentences"}:
        yield (
            "corpus.group_field: text files have no fields; leave it empty with "
            f"corpus.input_format={corpus.input_format}, or use corpus.split_by=file."
        )


def _units_need_signatures(config: PipelineConfig) -> Iterator[str]:
    """What is held out together holds no copies of other text."""
    corpus = config.corpus
    if corpus.duplicates == "keep" and corpus.split_by in {"group", "file"}:
        yield (
            f"corpus.split_by: {corpus.split_by} with corpus.duplicates=keep could hold out copies "
            "of what is trained on; set corpus.duplicates to exact, or corpus.split_by to document."
        )


def _rows_fit_positions(config: PipelineConfig) -> Iterator[str]:
    """A row is at most as long as the model has positions."""
    positions = config.model.max_position_embeddings
    for prefix, length, _ in row_shapes(config):
        if length > positions:
            yield (
                f"masking.{prefix}max_seq_length: rows of {length} tokens do not fit a model with "
                f"model.max_position_embeddings={positions}; shorten the rows or enlarge the model."
            )


def _predictions_fit_rows(config: PipelineConfig) -> Iterator[str]:
    """A row has room for its predictions, and for as many as masked_lm_prob asks for."""
    probability = config.masking.masked_lm_prob
    for prefix, length, predictions in row_shapes(config):
        room = length - 2
        if predictions > room:
            yield (
                f"masking.{prefix}max_predictions_per_seq: {predictions} predictions do not fit a "
                f"row of {length} tokens, which has {room} besides [CLS] and [SEP]."
            )
        needed = math.floor(length * probability)
        if config.masking.unit == "sentinel":
            needed = longest_corrupted(config.masking, length).target
        if predictions < needed:
            yield (
                f"masking.{prefix}max_predictions_per_seq: {predictions} would silently cut "
                f"masked_lm_prob={probability}; rows of {length} need {needed}."
            )


def _extra_rows_differ(config: PipelineConfig) -> Iterator[str]:
    """The two row lengths are different."""
    if config.masking.extra_max_seq_length == config.masking.max_seq_length:
        yield (
            f"masking.extra_max_seq_length: {config.masking.extra_max_seq_length} is also "
            "masking.max_seq_length; leave it empty, or give another length."
        )


def _pairs_need_two_segment_types(config: PipelineConfig) -> Iterator[str]:
    """The model tells two segments apart."""
    types, architecture = config.model.type_vocab_size, config.model.architecture
    if config.masking.packing != "segment_pair":
        return
    if not config.model.has_segments:
        yield (
            "masking.packing: segment_pair needs a model that is told segments apart, which "
            f"model.architecture={architecture} is not; pack doc_sentences or full_sentences."
        )
    elif types < 2:
        yield (
            "masking.packing: segment_pair needs two segment types, but model.type_vocab_size is "
            f"{types}; set it to 2."
        )


def _dynamic_rows_are_written_once(config: PipelineConfig) -> Iterator[str]:
    """Copies of rows that carry no masks would be equal."""
    masking = config.masking
    if masking.dynamic and masking.dupe_factor > 1:
        yield (
            f"masking.dupe_factor: {masking.dupe_factor} copies of a row are equal with "
            "masking.dynamic, which draws new masks in every epoch anyway; set it to 1, or "
            "masking.dynamic to false."
        )


def _domain_words_need_a_vocabulary(config: PipelineConfig) -> Iterator[str]:
    """Words are added to a given WordPiece vocabulary only."""
    vocabulary = config.vocabulary
    if vocabulary.domain_words and (vocabulary.uri is None or vocabulary.kind != "wordpiece"):
        yield (
            f"vocabulary.domain_words: {vocabulary.domain_words} words can be put only into the "
            "[unused] places of a WordPiece vocabulary given by vocabulary.uri; a trained one has "
            "the domain's words already."
        )


def _heads_divide_width(config: PipelineConfig) -> Iterator[str]:
    """The attention heads share the hidden width evenly."""
    model = config.model
    if model.attention_head_size is None and model.hidden_size % model.num_attention_heads:
        yield (
            f"model.num_attention_heads: {model.num_attention_heads} does not divide "
            f"model.hidden_size={model.hidden_size}."
        )


def _vocabulary_fits_model(config: PipelineConfig) -> Iterator[str]:
    """The embedding has a row for every token of the vocabulary."""
    if config.vocabulary.size > config.model.vocab_size:
        yield (
            f"vocabulary.size: a vocabulary of {config.vocabulary.size} tokens does not fit "
            f"model.vocab_size={config.model.vocab_size}; token ids beyond it give NaN losses."
        )


def _loop_divides_intervals(config: PipelineConfig) -> Iterator[str]:
    """Checkpoints fall between two loops of steps."""
    training = config.training
    if training.checkpoint_interval % training.steps_per_loop:
        yield (
            f"training.checkpoint_interval: {training.checkpoint_interval} is not a multiple of "
            f"training.steps_per_loop={training.steps_per_loop}; checkpoints are written between "
            "loops."
        )


def _auto_has_a_limit(config: PipelineConfig) -> Iterator[str]:
    """Steps that are worked out from a number of passes have one."""
    training = config.training
    if training.train_steps == "auto" and training.max_passes == 0:
        yield (
            "training.max_passes: 0 lifts the limit by which training.train_steps=auto is worked "
            "out; leave it empty, or name a number of steps."
        )


def _steps(config: PipelineConfig) -> int | None:
    """Return the steps of the run; None if its plan decides them and then checks the rules."""
    steps = config.training.train_steps
    return None if isinstance(steps, str) else steps


def _rate_schedule_fits(config: PipelineConfig) -> Iterator[str]:
    """Warm-up ends before training does, and the rate falls after it."""
    optimizer, steps = config.optimizer, _steps(config)
    if steps is not None and optimizer.warmup_steps >= steps:
        yield (
            f"optimizer.warmup_steps: {optimizer.warmup_steps} steps of warm-up leave nothing of "
            f"training.train_steps={steps}."
        )
    for name in ("learning_rate", "update_learning_rate"):
        peak = getattr(optimizer, name)
        if peak is not None and optimizer.end_learning_rate > peak:
            yield (
                f"optimizer.end_learning_rate: {optimizer.end_learning_rate} is above the peak "
                f"optimizer.{name}={peak}."
            )


def _rate_falls_in_time(config: PipelineConfig) -> Iterator[str]:
    """decay_steps belong to constant_then_linear, and lie between warm-up and end."""
    optimizer, steps = config.optimizer, _steps(config)
    falls_late = optimizer.learning_rate_schedule == "constant_then_linear"
    if falls_late != (optimizer.decay_steps > 0):
        yield (
            f"optimizer.decay_steps: {optimizer.decay_steps} with optimizer.learning_rate_schedule="
            f"{optimizer.learning_rate_schedule}; constant_then_linear needs at least 1, the "
            "others have none."
        )
    elif (
        falls_late and steps is not None and optimizer.warmup_steps + optimizer.decay_steps > steps
    ):
        yield (
            f"optimizer.decay_steps: {optimizer.warmup_steps} steps of warm-up and "
            f"{optimizer.decay_steps} of falling rate are more than training.train_steps={steps}."
        )


def _long_rows_come_last(config: PipelineConfig) -> Iterator[str]:
    """A curriculum has rows of two lengths, the longer ones last, and steps for both."""
    training, masking = config.training, config.masking
    fraction = training.extra_steps_fraction
    if not fraction:
        return
    if masking.extra_max_seq_length is None:
        yield (
            f"training.extra_steps_fraction: {fraction} of the steps need rows of "
            "masking.extra_max_seq_length, which is empty; give it a length, such as 512."
        )
    elif masking.extra_max_seq_length < masking.max_seq_length:
        yield (
            f"masking.extra_max_seq_length: {masking.extra_max_seq_length} is shorter than "
            f"masking.max_seq_length={masking.max_seq_length}, but training.extra_steps_fraction "
            "puts its rows last; exchange them."
        )
    steps = _steps(config)
    if steps is not None and (extra := round(steps * fraction)) in (0, steps):
        yield (
            f"training.extra_steps_fraction: {fraction} of training.train_steps={steps} is {extra} "
            "steps; both lengths need at least one."
        )


def _replay_leaves_new_rows(config: PipelineConfig) -> Iterator[str]:
    """Some rows of a batch are of the new partition."""
    if config.training.replay_fraction == 1.0:
        yield (
            "training.replay_fraction: 1.0 leaves no row of the new partition; use a small share, "
            "such as 0.1."
        )


def _unseen_is_trained_on_once(config: PipelineConfig) -> Iterator[str]:
    """A backfill that is trained on once for all is not trained on again by each of its runs."""
    training = config.training
    if training.train_again and training.partitions == "unseen":
        yield (
            "training.train_again: with training.partitions=unseen one run trains on every "
            "partition once for all, and each of the others would train on its own again; set one "
            "of the two."
        )


def _general_text_is_another_partition(config: PipelineConfig) -> Iterator[str]:
    """Text that is only scored on is a partition, and not the one that is trained on."""
    general = config.evaluation.general_partition
    if general is None:
        return
    if not _is_partition(general):
        yield (
            f"evaluation.general_partition: {general!r} is not a partition id; use a-z, 0-9, '.', "
            "'_' and '-', such as general."
        )
    elif general == config.corpus.partition:
        yield (
            f"evaluation.general_partition: {general} is also corpus.partition, which is trained "
            "on; name a partition of general text that no run trains on, or leave it empty."
        )


def _probes_are_named_once(config: PipelineConfig) -> Iterator[str]:
    """No probe is done twice."""
    promotion = config.promotion
    yield from named_twice(
        {
            "promotion.probe_tasks": promotion.probe_tasks,
            "promotion.probe_random_seeds": promotion.probe_random_seeds,
        }
    )


def named_twice(settings: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """Yield a line for each setting, given by name, that has a value more than once."""
    for name, values in settings.items():
        if twice := [str(value) for value, count in Counter(values).items() if count > 1]:
            yield f"{name}: {', '.join(twice)} given more than once; name each once."


def _replicas_get_whole_parts(config: PipelineConfig) -> Iterator[str]:
    """Every batch splits evenly into parts for gradient accumulation."""
    parts = config.training.gradient_accumulation_steps
    if parts == 1:
        return
    on_tpu = config.training.distribution_strategy == "tpu"
    cores = core_count(config.tpu.accelerator_type) if on_tpu else 1
    for name, batch in training_batches(config):
        if batch % (parts * cores):
            yield (
                f"training.gradient_accumulation_steps: {parts} parts on {cores} replicas do not "
                f"divide {name}={batch} evenly; use a multiple of {parts * cores}."
            )


def training_batches(config: PipelineConfig) -> Iterator[tuple[str, int]]:
    """Yield the name and size of each setting that is the global batch of some steps."""
    yield "training.global_batch_size", config.training.global_batch_size
    if config.training.extra_steps_fraction:
        yield "training.extra_global_batch_size", config.training.extra_global_batch_size


def _frozen_layers_leave_some(config: PipelineConfig) -> Iterator[str]:
    """Some layer is trained."""
    frozen, layers = config.training.frozen_layers, config.model.num_hidden_layers
    if frozen > layers:
        yield (
            f"training.frozen_layers: {frozen} is more than the model's "
            f"model.num_hidden_layers={layers}; use at most {layers}, which trains the head alone."
        )


def _scores_are_made(config: PipelineConfig) -> Iterator[str]:
    """What looks at held-out losses has some."""
    training = config.training
    wanted = [name for name in ("keep_best", "early_stop_evaluations") if getattr(training, name)]
    if wanted and not config.evaluation.rows_per_checkpoint:
        yield (
            f"training.{wanted[0]}: it looks at the held-out loss of each checkpoint, but "
            "evaluation.rows_per_checkpoint is 0; set it to some thousand rows."
        )
    if config.evaluation.pattern and not config.evaluation.rows_per_checkpoint:
        yield (
            "evaluation.pattern: it names what checkpoints are scored on, but "
            "evaluation.rows_per_checkpoint is 0, so none is; set it, or leave the pattern empty."
        )


def _short_residuals_need_short_arithmetic(config: PipelineConfig) -> Iterator[str]:
    """Hidden states are not kept in a shorter type than they are computed in."""
    training = config.training
    if (training.residual_dtype, training.mixed_precision_dtype) == ("bfloat16", "float32"):
        yield (
            "training.residual_dtype: bfloat16 between layers that compute in float32 only loses "
            "digits; set training.mixed_precision_dtype to bfloat16 too, or this to float32."
        )


def _spot_saves_in_time(config: PipelineConfig) -> Iterator[str]:
    """On a spot TPU a checkpoint is written before the end."""
    interval, steps = config.training.checkpoint_interval, _steps(config)
    if config.tpu.provisioning_model == "spot" and steps is not None and interval >= steps:
        yield (
            f"training.checkpoint_interval: on a spot TPU a preemption would lose everything, as "
            f"the first checkpoint is at step {interval} of {steps}; use a smaller interval."
        )


def _strategy_fits_batch(config: PipelineConfig) -> Iterator[str]:
    """A batch splits evenly over the cores of the TPU."""
    if config.training.distribution_strategy != "tpu":
        return
    cores = core_count(config.tpu.accelerator_type)
    evaluation = ("evaluation.global_batch_size", config.evaluation.global_batch_size)
    for name, batch in (*training_batches(config), evaluation):
        if batch % cores:
            yield (
                f"{name}: {batch} rows cannot be split evenly over the {cores} cores of "
                f"{config.tpu.accelerator_type}."
            )


def _probes_fit_the_slice(config: PipelineConfig) -> Iterator[str]:
    """A probe's batches split evenly over the cores of the TPU."""
    if config.training.distribution_strategy != "tpu" or not config.promotion.probe_tasks:
        return
    cores = core_count(config.tpu.accelerator_type)
    recipe = RecipeConfig()
    for batch in (recipe.global_batch_size, recipe.eval_batch_size):
        if batch % cores:
            yield (
                f"promotion.probe_tasks: batches of {batch} examples, as probes have, cannot be "
                f"split evenly over the {cores} cores of {config.tpu.accelerator_type}; empty it, "
                "or take a smaller TPU."
            )


def _multislice_is_queued(config: PipelineConfig) -> Iterator[str]:
    """Several slices are asked for through the queue, and the trainer can use them."""
    tpu = config.tpu
    if tpu.slice_count > 1 and tpu.api == "nodes":
        yield (
            f"tpu.slice_count: {tpu.slice_count} slices cannot be asked for with tpu.api=nodes; "
            "use queued-resources."
        )
    strategy = config.training.distribution_strategy
    if tpu.slice_count > 1 and strategy in ("tpu", "multi_worker_mirrored"):
        yield (
            f"tpu.slice_count: {tpu.slice_count} slices, but {strategy!r} uses one, as slices are "
            "not joined. Set it to 1."
        )


def _lineage_outwaits_an_approval(config: PipelineConfig) -> Iterator[str]:
    """Runs that wait for their lineage outlast a person's answer."""
    promotion, budget = config.promotion, config.budget
    if (
        promotion.require_approval
        and promotion.approval_timeout_hours >= budget.max_lineage_wait_hours
    ):
        yield (
            f"promotion.approval_timeout_hours: while {promotion.approval_timeout_hours:g} h are "
            "waited for an answer no other run of the lineage trains, and those give up after "
            f"budget.max_lineage_wait_hours={budget.max_lineage_wait_hours:g}; shorten the first "
            "or raise the second."
        )


# The first line of each rule's docstring is its entry in docs/reference/config.md.
RULES = (
    _partition_is_an_id,
    _documents_are_in_the_format,
    _groups_are_of_records,
    _units_need_signatures,
    _rows_fit_positions,
    _predictions_fit_rows,
    _extra_rows_differ,
    _pairs_need_two_segment_types,
    _dynamic_rows_are_written_once,
    _heads_divide_width,
    _vocabulary_fits_model,
    _domain_words_need_a_vocabulary,
    *ARCHITECTURE_RULES,
    _loop_divides_intervals,
    _auto_has_a_limit,
    _rate_schedule_fits,
    _rate_falls_in_time,
    _long_rows_come_last,
    _replay_leaves_new_rows,
    _unseen_is_trained_on_once,
    _general_text_is_another_partition,
    _probes_are_named_once,
    _replicas_get_whole_parts,
    _frozen_layers_leave_some,
    _scores_are_made,
    _short_residuals_need_short_arithmetic,
    _spot_saves_in_time,
    _strategy_fits_batch,
    _probes_fit_the_slice,
    _multislice_is_queued,
    _lineage_outwaits_an_approval,
)
