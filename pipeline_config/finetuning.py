"""Every setting of a fine-tuning run.

As in :mod:`pipeline_config.schema`: the form, the trainer, the docs table and the stored
``config.json`` are made from these classes. A run fine-tunes a model of a lineage on tasks, which
:mod:`pipeline_config.task` describes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import Field

from pipeline_config import patterns
from pipeline_config.compression import CompressionConfig
from pipeline_config.data_schema import BeamConfig, VocabularyConfig
from pipeline_config.rental_schema import BudgetConfig, HangConfig, TpuConfig
from pipeline_config.schema import PipelineConfig, RunConfig
from pipeline_config.sections import Fraction, Mark, Section, Seed, TaskName
from pipeline_config.training_schema import ModelConfig, OptimizerConfig, TrainingConfig

FINETUNING_FORMAT = "finetuning-config"
FINETUNING_FORMAT_VERSION = 1

Rate = Annotated[float, Field(gt=0.0, le=1.0)]

MODEL = "model"
"""Name in a plan of the model that a run fine-tunes; the others are named as in
``encoder.compare_with``."""


class EncoderConfig(Section):
    """Which models are fine-tuned."""

    lineage_id: str = Field(
        "default",
        pattern=patterns.NAME,
        description="Line of models; its vocabulary makes the tokens.",
    )
    version: str | None = Field(
        None,
        pattern=patterns.VERSION,
        description="Version to fine-tune. Empty: the one that has just been promoted, if that "
        "started the run, else the one in use.",
    )
    compare_with: list[Literal["previous", "start"]] = Field(
        [],
        max_length=2,
        description="Did it pay? Fine-tune these as well, on the same tasks and seeds, and "
        "compare. previous: the version that it was trained from. start: what the lineage began "
        "with.",
    )


class RecipeConfig(Section):
    """How models are fine-tuned (BERT, arXiv 1810.04805, appendix A.3)."""

    mode: Literal["train_and_eval", "train", "eval", "predict", "export"] = Field(
        "train_and_eval",
        description="train_and_eval: learn, then measure on the test split. train: learn only. "
        "eval, predict, export: use the model that source_run has trained.",
    )
    source_run: str | None = Field(
        None,
        pattern=patterns.RUN_KEY,
        description="Key of the fine-tuning run whose models are measured, used or exported; for "
        "the modes eval, predict and export.",
    )
    tasks: Annotated[list[TaskName], Mark.TASKS] = Field(
        [],
        max_length=50,
        description="Tasks: names of folders tasks/NAME with a task.toml in the store.",
    )
    max_seq_length: int = Field(
        128, ge=8, le=4096, description="Tokens per example, [CLS] and [SEP] included."
    )
    num_train_epochs: float = Field(
        3.0, gt=0.0, le=1000.0, description="Passes over the training examples."
    )
    global_batch_size: int = Field(32, ge=1, le=65536, description="Examples per step.")
    eval_batch_size: int = Field(
        128, ge=1, le=65536, description="Examples per step when measuring."
    )
    learning_rates: list[Rate] = Field(
        [3e-5],
        min_length=1,
        max_length=10,
        description="Peak rates to try; the best on the validation split is taken.",
    )
    random_seeds: list[Seed] = Field(
        [1],
        min_length=1,
        max_length=50,
        description="Seeds of classifier, dropout and order; one training each.",
    )
    warmup_fraction: Fraction = Field(0.1, description="Share of the steps of linear rise.")
    learning_rate_schedule: Literal["linear", "cosine"] = Field(
        "linear", description="How the rate falls to 0 after the warm-up."
    )
    weight_decay_rate: float = Field(
        0.01, ge=0.0, le=1.0, description="Decoupled decay; not on bias and LayerNorm."
    )
    layer_decay: float = Field(
        1.0,
        gt=0.0,
        le=1.0,
        description="Factor on the rate from each layer to the one below it (layer-wise decay, "
        "arXiv 2003.10555). 1: the same for all.",
    )
    clip_norm: float = Field(
        1.0, gt=0.0, le=1000.0, description="Largest global norm of the gradient."
    )
    frozen_encoder: bool = Field(
        False,
        description="Only the classifier is trained, on the mean of the fixed encoder's last "
        "hidden states (a probe): cheap; says what the encoder knows already. It takes higher "
        "rates, 1e-3 to 1e-2, and some 20 epochs.",
    )
    hidden_dropout_prob: float = Field(0.1, ge=0.0, lt=1.0, description="On hidden states.")
    attention_probs_dropout_prob: float = Field(
        0.1, ge=0.0, lt=1.0, description="On attention weights."
    )
    classifier_dropout: float = Field(
        0.1, ge=0.0, lt=1.0, description="On what the classifier gets."
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: rare labels count as much as frequent ones in the loss."
    )
    train_fraction: float = Field(
        1.0, gt=0.0, le=1.0, description="Share of the training examples to use, by random_seed."
    )
    evaluations_per_epoch: int = Field(
        1, ge=0, le=100, description="Checkpoints scored on the validation split. 0: the last only."
    )
    keep_best: bool = Field(
        True, description="The result is the checkpoint that is best on the validation split."
    )
    early_stop_evaluations: int = Field(
        0,
        ge=0,
        le=1000,
        description="Stop after so many evaluations without a better one. 0: never.",
    )
    steps_per_loop: int = Field(
        50, ge=1, le=100_000, description="Steps between two returns to Python (logs, signals)."
    )
    mixed_precision_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of the arithmetic; variables stay float32."
    )
    distribution_strategy: Literal["one_device", "mirrored", "tpu"] = Field(
        "tpu", description="tpu on a TPU VM; one_device on a CPU, as in the local stack."
    )
    parallel_tpus: int = Field(
        1, ge=1, le=16, description="TPUs to share the trainings out to, each rented by itself."
    )
    export_formats: list[Literal["hugging_face", "saved_model"]] = Field(
        [],
        max_length=2,
        description="mode export, and after train_and_eval: formats to write the best model of "
        "each task in. hugging_face: a BertForSequenceClassification folder, of a T5 a "
        "T5ForConditionalGeneration. saved_model: text in, labels and probabilities out; of a T5 "
        "text out.",
    )


class TextToTextSettings(Section):
    """A T5 in place of the encoder: it learns to write a text for each text."""

    init_checkpoint: Annotated[str | None, Mark.MODEL_PATH] = Field(
        None,
        description="Hugging Face folder of a T5 model: config.json, weights, spiece.model. With "
        "it the run fine-tunes this T5 and no encoder, and each of finetuning.tasks is described "
        "by tasks/NAME/text_to_text.toml. Empty: classifiers.",
    )
    max_source_length: int = Field(
        512, ge=2, le=4096, description="Tokens of a text, prefix and </s> included."
    )
    max_target_length: int = Field(
        128, ge=2, le=4096, description="Tokens of a target, </s> included; also when decoding."
    )
    dropout_rate: float = Field(
        0.1,
        ge=0.0,
        lt=1.0,
        description="Wherever T5 has dropout; masks are the same for all "
        "positions of a row, as in Mesh TensorFlow.",
    )
    num_beams: int = Field(
        1, ge=1, le=32, description="Texts followed at a time when decoding; 1: greedy."
    )
    length_penalty: float = Field(
        1.0,
        ge=-10.0,
        le=10.0,
        description="Beam search divides a text's log-probability by its tokens to this power.",
    )


class FinetuningConfig(Section):
    """One fine-tuning run's complete configuration."""

    run: RunConfig = RunConfig()
    encoder: EncoderConfig = EncoderConfig()
    finetuning: RecipeConfig = RecipeConfig()
    text_to_text: TextToTextSettings = TextToTextSettings()
    compression: CompressionConfig = CompressionConfig()
    beam: BeamConfig = BeamConfig()
    tpu: TpuConfig = TpuConfig()
    budget: BudgetConfig = BudgetConfig()
    hang: HangConfig = HangConfig()

    def to_bytes(self) -> bytes:
        """Return the content of ``config.json``, which :func:`parse_finetuning_config` reads."""
        head = {"format": FINETUNING_FORMAT, "format_version": FINETUNING_FORMAT_VERSION}
        return (json.dumps(head | self.model_dump(mode="json"), indent=2) + "\n").encode()

    @property
    def sha256(self) -> str:
        """Return the hash of all settings."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def training_config(
    recipe: RecipeConfig,
    model: ModelConfig,
    *,
    train_steps: int,
    checkpoint_interval: int,
    learning_rate: float,
    random_seed: int,
    tpu: TpuConfig | None = None,
) -> PipelineConfig:
    """Return one trial's settings as a pretraining configuration, whose code trains it.

    :param model: architecture of the encoder.
    :param train_steps: steps of this trial, from its examples and epochs.
    :param tpu: the TPU that trains, whose peak utilization is measured against. None: the default.
    """
    own = {"kind": "bpe", "do_lower_case": False} if model.has_byte_tokens else {}
    return PipelineConfig(
        vocabulary=VocabularyConfig.model_validate(own),
        model=model.model_copy(
            update={
                "hidden_dropout_prob": recipe.hidden_dropout_prob,
                "attention_probs_dropout_prob": recipe.attention_probs_dropout_prob,
            }
        ),
        optimizer=OptimizerConfig(
            type="adamw",
            learning_rate=learning_rate,
            warmup_steps=round(recipe.warmup_fraction * train_steps),
            learning_rate_schedule=recipe.learning_rate_schedule,
            weight_decay_rate=recipe.weight_decay_rate,
            clip_norm=recipe.clip_norm,
        ),
        training=TrainingConfig(
            train_steps=train_steps,
            global_batch_size=recipe.global_batch_size,
            steps_per_loop=recipe.steps_per_loop,
            checkpoint_interval=checkpoint_interval,
            keep_best=recipe.keep_best,
            early_stop_evaluations=recipe.early_stop_evaluations,
            mixed_precision_dtype=recipe.mixed_precision_dtype,
            distribution_strategy=recipe.distribution_strategy,
            random_seed=random_seed,
            replay_fraction=0.0,
        ),
        tpu=tpu or TpuConfig(),
    )
