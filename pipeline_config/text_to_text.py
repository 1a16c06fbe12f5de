"""Settings for fine-tuning a T5 model: text-to-text tasks, the model and the recipe.

In a run of the DAG, ``tasks/<name>/text_to_text.toml`` of the store has the tasks, and the run's
configuration everything else; by hand, one TOML file has all of it. Settings that labeled tasks or
fine-tuning runs have too take their limits, defaults and descriptions from
:mod:`pipeline_config.task` and :mod:`pipeline_config.finetuning`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from pipeline_config.finetuning import (
    FinetuningConfig,
    Rate,
    RecipeConfig,
    TextToTextSettings,
    training_config,
)
from pipeline_config.loading import ConfigError
from pipeline_config.rental_schema import TpuConfig
from pipeline_config.schema import PipelineConfig
from pipeline_config.sections import Fraction, Mark, Section, Seed, TaskName
from pipeline_config.task import ColumnName, TaskConfig
from pipeline_config.training_schema import ModelConfig
from pipeline_config.unquoted import broken_fields, fault


def _as_in(schema: type[Section], name: str) -> Any:
    """Return a field of another section, to be reused under the same name."""
    return schema.model_fields[name]


TargetKind = Literal["text", "label"]
TextMetric = Literal["exact_match", "rouge_l", "bleu", "accuracy", "macro_f1", "invalid_share"]

TEXT_METRICS: dict[TargetKind, tuple[TextMetric, ...]] = {
    "text": ("exact_match", "rouge_l", "bleu"),
    "label": ("accuracy", "macro_f1", "invalid_share"),
}
"""Metrics of each kind of target."""

TOKEN_ACCURACY = "token_accuracy"  # noqa: S105 - the name of a metric
"""Metric by which checkpoints and learning rates are compared: the share of target tokens, over all
tasks, that are predicted correctly from the preceding ones. Decoding takes far longer, and is done
only at the end."""


class TextTask(Section):
    """A text-to-text task: input texts, and the text to generate for each."""

    name: TaskName = Field(description="Name in reports and files.")
    target: TargetKind = Field(
        "text",
        description="label: one of some labels; any other text counts as wrong, and is counted. "
        "text: anything.",
    )
    prefix: str = Field(
        "", max_length=200, description="Put before each text, so that a model tells its tasks."
    )
    weight: float = Field(
        1.0, gt=0.0, le=1e6, description="Share of the rows of a batch, relative to other tasks."
    )
    train: Annotated[str, Mark.TEXT_PATH] = Field(
        min_length=1,
        description="Files to learn from: patterns with * and ?, separated by commas, relative to "
        "this file's folder, or absolute or gs://.",
    )
    validation: Annotated[str | None, Mark.TEXT_PATH] = _as_in(TaskConfig, "validation")
    test: Annotated[str | None, Mark.TEXT_PATH] = _as_in(TaskConfig, "test")
    validation_fraction: Fraction = _as_in(TaskConfig, "validation_fraction")
    test_fraction: Fraction = _as_in(TaskConfig, "test_fraction")
    input_format: Literal["auto", "tsv", "csv", "jsonl", "parquet"] = _as_in(
        TaskConfig, "input_format"
    )
    columns: list[ColumnName] = _as_in(TaskConfig, "columns")
    quotechar: Literal['"', ""] = _as_in(TaskConfig, "quotechar")
    unicode_normalization: Literal["NFC", "NFKC", "none"] = _as_in(
        TaskConfig, "unicode_normalization"
    )
    text_column: ColumnName = Field("text", description="Column of the text.")
    target_column: ColumnName = Field("target", description="Column of what is to be written.")
    max_bad_fraction: Fraction = _as_in(TaskConfig, "max_bad_fraction")
    max_leak_fraction: Fraction = _as_in(TaskConfig, "max_leak_fraction")
    max_truncated_fraction: Fraction = Field(
        0.5, description="Share of a split's examples whose text or target may be cut."
    )


class TextMixture(Section):
    """``tasks/<name>/text_to_text.toml``: tasks that one model learns jointly."""

    tasks: list[TextTask] = Field(min_length=1, max_length=50, description="What is learned.")


class TextToTextConfig(TextMixture):
    """One fine-tuning of a T5 model."""

    init_checkpoint: Annotated[str, Mark.MODEL_PATH] = Field(
        min_length=1,
        description="Hugging Face folder of a T5 model: config.json, weights, spiece.model.",
    )
    max_source_length: int = _as_in(TextToTextSettings, "max_source_length")
    max_target_length: int = _as_in(TextToTextSettings, "max_target_length")
    num_train_epochs: float = Field(
        3.0, gt=0.0, le=1000.0, description="Passes over the training examples of all tasks."
    )
    global_batch_size: int = _as_in(RecipeConfig, "global_batch_size")
    eval_batch_size: int = _as_in(RecipeConfig, "eval_batch_size")
    learning_rate: Rate = Field(3e-4, description="Peak rate of AdamW.")
    random_seed: Seed = Field(1, description="Of dropout and the order of examples.")
    warmup_fraction: Fraction = _as_in(RecipeConfig, "warmup_fraction")
    learning_rate_schedule: Literal["linear", "cosine"] = _as_in(
        RecipeConfig, "learning_rate_schedule"
    )
    weight_decay_rate: float = Field(
        0.0, ge=0.0, le=1.0, description="Decoupled decay; not on scales and position biases."
    )
    clip_norm: float = _as_in(RecipeConfig, "clip_norm")
    dropout_rate: float = _as_in(TextToTextSettings, "dropout_rate")
    evaluations_per_epoch: int = _as_in(RecipeConfig, "evaluations_per_epoch")
    keep_best: bool = _as_in(RecipeConfig, "keep_best")
    early_stop_evaluations: int = _as_in(RecipeConfig, "early_stop_evaluations")
    steps_per_loop: int = _as_in(RecipeConfig, "steps_per_loop")
    mixed_precision_dtype: Literal["float32", "bfloat16"] = _as_in(
        RecipeConfig, "mixed_precision_dtype"
    )
    distribution_strategy: Literal["one_device", "mirrored", "tpu"] = Field(
        "one_device", description="mirrored: all devices of this machine. tpu: on a TPU VM."
    )
    num_beams: int = _as_in(TextToTextSettings, "num_beams")
    length_penalty: float = _as_in(TextToTextSettings, "length_penalty")


File = TypeVar("File", bound=TextMixture)


def parse_text_to_text(data: bytes, source: str, schema: type[File]) -> File:
    """Return a parsed text-to-text file.

    :param data: the file's content, TOML.
    :param source: name of the file in messages.
    :param schema: class to parse it as.
    :raises ConfigError: it breaks rules; every violation is listed.
    """
    try:
        found = schema.model_validate(tomllib.loads(data.decode()))
    except ValidationError as error:
        raise ConfigError([f"{source}: {line}" for line in broken_fields(error, schema)]) from None
    except (ValueError, RecursionError) as error:
        line = f"{source}: it is no TOML file ({fault(error)}). Correct that place."
        raise ConfigError([line]) from None
    if problems := list(_violations(found)):
        raise ConfigError([f"{source}: {line}" for line in problems])
    return found


def _violations(config: TextMixture) -> Iterator[str]:
    names = [task.name for task in config.tasks]
    if again := sorted({name for name in names if names.count(name) > 1}):
        yield f"tasks: {', '.join(again)} is given more than once; each needs a name of its own."
    for task in config.tasks:
        if task.text_column == task.target_column:
            yield f"task {task.name}: text_column and target_column have to differ."
        missing = {task.text_column, task.target_column} - set(task.columns)
        if task.columns and missing:
            yield f"task {task.name}: columns lacks {len(missing)} of its two columns."
        drawn = (0.0 if task.validation else task.validation_fraction) + (
            0.0 if task.test else task.test_fraction
        )
        if drawn >= 1.0:
            yield (
                f"task {task.name}: validation_fraction and test_fraction are {drawn:g} together, "
                "which leaves nothing to learn from; make them smaller, or name files."
            )
    if not isinstance(config, TextToTextConfig):
        return
    if config.early_stop_evaluations and not config.evaluations_per_epoch:
        yield (
            "early_stop_evaluations: it looks at the score of each checkpoint, but "
            "evaluations_per_epoch is 0; set it to 1 or more."
        )


def of_trial(
    config: FinetuningConfig, tasks: list[TextTask], *, learning_rate: float, random_seed: int
) -> TextToTextConfig:
    """Return the configuration of one training of a run that fine-tunes a T5."""
    wanted = set(TextToTextConfig.model_fields) - {"tasks"}
    settings = config.finetuning.model_dump(include=wanted) | config.text_to_text.model_dump()
    own = {"learning_rate": learning_rate, "random_seed": random_seed, "tasks": tasks}
    return TextToTextConfig.model_validate(settings | own)


def trainer_config(
    config: TextToTextConfig,
    *,
    train_steps: int,
    checkpoint_interval: int,
    has_scores: bool,
    tpu: TpuConfig | None = None,
) -> PipelineConfig:
    """Return the settings as a pretraining configuration, which the trainer takes.

    Its model section is not used: the T5's folder defines the sizes.

    :param has_scores: whether there are scores to compare checkpoints by.
    :param tpu: as for :func:`pipeline_config.finetuning.training_config`.
    """
    shared = set(TextToTextConfig.model_fields) & set(RecipeConfig.model_fields) - {"tasks"}
    recipe = RecipeConfig.model_validate(config.model_dump(include=shared))
    if not has_scores:
        recipe = recipe.model_copy(update={"keep_best": False, "early_stop_evaluations": 0})
    return training_config(
        recipe,
        ModelConfig(),
        train_steps=train_steps,
        checkpoint_interval=checkpoint_interval,
        learning_rate=config.learning_rate,
        random_seed=config.random_seed,
        tpu=tpu,
    )
