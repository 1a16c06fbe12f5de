"""Rules that combine settings of a fine-tuning run; like those of :mod:`pipeline_config.rules`.

The existence of tasks and models is checked in :mod:`preflight.run.finetuning`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_config.accelerators import core_count, host_chips, hosts
from pipeline_config.finetuning import FinetuningConfig, RecipeConfig
from pipeline_config.rental_rules import RENTAL_RULES, worst_case_cost
from pipeline_config.rules import named_twice

_USING_MODES = ("eval", "predict", "export")
"""Modes that use models of another run."""

_TEXT_TO_TEXT_MODES = ("train_and_eval", "train")


def finetuning_violations(config: FinetuningConfig) -> list[str]:
    """Return one line for every violation in the configuration; empty when it is valid."""
    return [
        *(line for rule in RENTAL_RULES for line in rule(config)),
        *(line for rule in FINETUNING_RULES for line in rule(config)),
    ]


def _source_run_is_used(config: FinetuningConfig) -> Iterator[str]:
    """Modes that use trained models name the run that trained them, and no other mode does."""
    recipe = config.finetuning
    if recipe.mode in _USING_MODES and recipe.source_run is None:
        yield (
            f"finetuning.source_run: mode {recipe.mode} uses the models of another fine-tuning "
            "run; give its key, the name of its folder in runs/."
        )
    if recipe.mode not in _USING_MODES and recipe.source_run is not None:
        yield (
            f"finetuning.source_run: {recipe.source_run} is not used in mode {recipe.mode}, which "
            "trains models of its own; leave it empty, or set mode to eval, predict or export."
        )


def _models_are_compared_where_they_are_measured(config: FinetuningConfig) -> Iterator[str]:
    """Models are compared on the test split, which only train_and_eval measures for all of them."""
    mode, others = config.finetuning.mode, config.encoder.compare_with
    if others and mode != "train_and_eval":
        yield (
            f"encoder.compare_with: {', '.join(others)} cannot be compared in mode {mode}; set "
            "finetuning.mode to train_and_eval, or leave it empty."
        )


def _exports_are_written(config: FinetuningConfig) -> Iterator[str]:
    """Formats are named where models are exported."""
    recipe = config.finetuning
    if recipe.mode == "export" and not (recipe.export_formats or config.compression.children):
        yield (
            "finetuning.export_formats: empty, so mode export writes nothing; name hugging_face, "
            "saved_model or both, or smaller models by compression.children."
        )
    if recipe.export_formats and recipe.mode not in ("export", "train_and_eval"):
        yield (
            f"finetuning.export_formats: mode {recipe.mode} exports no model; leave it empty, or "
            "set mode to train_and_eval or export."
        )


def _children_are_of_classifiers(config: FinetuningConfig) -> Iterator[str]:
    """Smaller models are made where whole classifiers are trained or exported."""
    recipe = config.finetuning
    if not config.compression.children:
        return
    if recipe.mode not in ("export", "train_and_eval"):
        yield (
            f"compression.children: mode {recipe.mode} makes no smaller models; leave it empty, or "
            "set finetuning.mode to train_and_eval or export."
        )
    if recipe.frozen_encoder:
        yield (
            "compression.children: with finetuning.frozen_encoder a classifier is a layer on an "
            "encoder that others share, and none can be made of it; leave one of them out."
        )
    if config.text_to_text.init_checkpoint is not None:
        yield "compression.children: smaller models are made of classifiers only; leave it empty."


def _nothing_is_trained_twice(config: FinetuningConfig) -> Iterator[str]:
    """Tasks, rates, seeds and smaller models are named once each."""
    recipe = config.finetuning
    # Formatted as in the names of the trials.
    rates = [f"{rate:g}" for rate in recipe.learning_rates]
    yield from named_twice(
        {
            "finetuning.tasks": recipe.tasks,
            "finetuning.learning_rates": rates,
            "finetuning.random_seeds": recipe.random_seeds,
            "encoder.compare_with": config.encoder.compare_with,
            "compression.children": config.compression.children,
        }
    )


def _batches_fit_the_cores(config: FinetuningConfig) -> Iterator[str]:
    """A batch splits evenly over the cores of the TPU."""
    recipe, kind = config.finetuning, config.tpu.accelerator_type
    if recipe.distribution_strategy != "tpu":
        return
    cores = core_count(kind)
    for name in ("global_batch_size", "eval_batch_size"):
        if (batch := getattr(recipe, name)) % cores:
            yield (
                f"finetuning.{name}: {batch} examples cannot be split evenly over the {cores} "
                f"cores of {kind}."
            )


def _one_host_fine_tunes(config: FinetuningConfig) -> Iterator[str]:
    """A training uses one host of one slice; several trainings are shared out by parallel_tpus."""
    tpu = config.tpu
    family = tpu.accelerator_type.rpartition("-")[0]
    limit = host_chips(tpu.accelerator_type)
    if config.finetuning.distribution_strategy == "tpu" and hosts(tpu.accelerator_type) > 1:
        yield (
            f"tpu.accelerator_type: {tpu.accelerator_type} has several hosts, and a training uses "
            f"one; that has at most {limit} chips of {family}. More TPUs: "
            "finetuning.parallel_tpus."
        )
    if tpu.slice_count > 1:
        yield (
            f"tpu.slice_count: {tpu.slice_count} slices, of which fine-tuning uses one. Set it to "
            "1; more TPUs: finetuning.parallel_tpus."
        )


def _early_stop_has_scores(config: FinetuningConfig) -> Iterator[str]:
    """What looks at scores while training has some."""
    recipe = config.finetuning
    if recipe.early_stop_evaluations and not recipe.evaluations_per_epoch:
        yield (
            "finetuning.early_stop_evaluations: it looks at the validation score of each "
            "checkpoint, but finetuning.evaluations_per_epoch is 0; set it to 1 or more."
        )


def _frozen_layers_have_no_rates(config: FinetuningConfig) -> Iterator[str]:
    """Layer-wise decay needs layers that are trained."""
    recipe = config.finetuning
    if recipe.frozen_encoder and recipe.layer_decay != 1.0:
        yield (
            f"finetuning.layer_decay: {recipe.layer_decay:g} changes nothing with "
            "finetuning.frozen_encoder, which trains no layer; set it to 1."
        )


def _a_t5_is_no_classifier(config: FinetuningConfig) -> Iterator[str]:
    """With `text_to_text.init_checkpoint` nothing is set that classifiers alone have."""
    if config.text_to_text.init_checkpoint is None:
        return
    recipe, encoder, usual = config.finetuning, config.encoder, RecipeConfig()
    if recipe.mode not in _TEXT_TO_TEXT_MODES:
        yield (
            f"finetuning.mode: {recipe.mode} is for classifiers. A T5 is trained with mode "
            f"{' or '.join(_TEXT_TO_TEXT_MODES)}."
        )
    if encoder.version is not None or encoder.compare_with:
        yield (
            "encoder.version, encoder.compare_with: versions of a lineage are encoders, and "
            "text_to_text.init_checkpoint names a T5 to fine-tune instead; leave one of them empty."
        )
    for name in ("frozen_encoder", "layer_decay", "class_weights", "train_fraction"):
        if (value := getattr(recipe, name)) != (default := getattr(usual, name)):
            yield (
                f"finetuning.{name}: {value} means nothing to a T5's training; leave it at "
                f"{default}."
            )


def _all_tpus_stay_in_budget(config: FinetuningConfig) -> Iterator[str]:
    """The dearest outcome of all parallel TPUs is within budget.max_cost."""
    budget, count = config.budget, config.finetuning.parallel_tpus
    worst = finetuning_worst_case_cost(config)
    # Another rule checks a single TPU.
    if count > 1 and budget.max_cost is not None and worst > budget.max_cost:
        yield (
            f"budget.max_cost: finetuning.parallel_tpus={count} TPUs, each within its own "
            f"budget.max_hours and max_chip_hours, can cost {worst:.2f} {budget.currency}, over "
            f"the limit of {budget.max_cost:.2f}; use fewer, lower budget.max_hours, or raise the "
            "limit."
        )


def finetuning_worst_case_cost(config: FinetuningConfig) -> float:
    """Return an upper bound of the cost of the run's TPUs, each of which has the whole budget."""
    return worst_case_cost(config) * config.finetuning.parallel_tpus


# The first line of each rule's docstring is its entry in docs/reference/config.md.
FINETUNING_RULES = (
    _source_run_is_used,
    _models_are_compared_where_they_are_measured,
    _exports_are_written,
    _children_are_of_classifiers,
    _nothing_is_trained_twice,
    _batches_fit_the_cores,
    _one_host_fine_tunes,
    _early_stop_has_scores,
    _frozen_layers_have_no_rates,
    _a_t5_is_no_classifier,
    _all_tpus_stay_in_budget,
)
