"""The configuration of our measured trainings and fine-tunings."""

from __future__ import annotations

from pipeline_config import PipelineConfig
from pipeline_config.data_schema import MaskingConfig, VocabularyConfig
from pipeline_config.finetuning import RecipeConfig
from pipeline_config.training_schema import ModelConfig, OptimizerConfig, TrainingConfig
from verification.benchmarks.train import shapes
from verification.benchmarks.train.shapes import LENGTH, ROWS

# More steps than are ever measured, so that the learning rate hardly falls.
_STEPS = 1_000_000


def settings(
    shape: str = "mini",
    *,
    dtype: str = "float32",
    residual_dtype: str = "float32",
    dropout: float = 0.0,
) -> PipelineConfig:
    """Return the configuration of a run; other settings keep their defaults."""
    size = shapes.SHAPES[shape]
    return PipelineConfig(
        vocabulary=VocabularyConfig(size=shapes.VOCABULARY_SIZE),
        masking=MaskingConfig(
            max_seq_length=shapes.LENGTH, max_predictions_per_seq=shapes.PREDICTIONS
        ),
        model=ModelConfig(
            vocab_size=shapes.VOCABULARY_SIZE,
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=size.inner,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        ),
        optimizer=OptimizerConfig(
            learning_rate=shapes.LEARNING_RATE,
            weight_decay_rate=shapes.WEIGHT_DECAY,
            epsilon=shapes.EPSILON,
            clip_norm=shapes.CLIP_NORM,
            warmup_steps=0,
        ),
        training=TrainingConfig(
            train_steps=_STEPS,
            global_batch_size=shapes.ROWS,
            mixed_precision_dtype=dtype,
            residual_dtype=residual_dtype,
            distribution_strategy="one_device",
        ),
    )


def speed_recipe(dropout: float) -> RecipeConfig:
    """Return the fine-tuning recipe; other settings keep their defaults."""
    return RecipeConfig(
        max_seq_length=LENGTH,
        global_batch_size=ROWS,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        classifier_dropout=dropout,
        distribution_strategy="one_device",
    )
