"""What is exported is the trainer's own step, with the shapes of its own input pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling.tf_utils import get_activation

from pipeline_config import PipelineConfig
from preflight.compiled.errors import CheckError, UncompilableStepError
from preflight.compiled.programs import Program, program_id
from tests.training.corpora import T5, TinyStore, tiny_config, training_batches
from trained_models import record_sources
from training.architectures.models import build_model, trained_variables
from training.input.masks import load_masker
from training.input.records import RecordReader
from training.loop.step import make_replica_step
from training.optimization.optimizers import build_optimizer
from verification.tpu_compile_check import export as exporting
from verification.tpu_compile_check import steps
from verification.tpu_compile_check.check import DEFAULT_ACTIVATION
from verification.tpu_compile_check.export import export, step_hlo
from verification.tpu_compile_check.lint import fingerprint, instructions, load

ROWS = 4


def training_program(config: PipelineConfig, rows: int = ROWS) -> Program:
    return export(config, program_id(config, rows))


@pytest.fixture(scope="module")
def program() -> Program:
    return training_program(tiny_config())


def test_description_lists_the_batch_then_every_variable(program: Program) -> None:
    config = tiny_config()
    batch = {a.name.removeprefix("batch_"): a for a in program.arguments if a.is_batch}
    assert {name: (a.dtype, a.shape) for name, a in batch.items()} == {
        "input_word_ids": ("s32", (ROWS, 16)),
        "input_mask": ("s32", (ROWS, 16)),
        "input_type_ids": ("s32", (ROWS, 16)),
        "masked_lm_positions": ("s32", (ROWS, 4)),
        "masked_lm_ids": ("s32", (ROWS, 4)),
        "masked_lm_weights": ("f32", (ROWS, 4)),
    }
    is_batch = [argument.is_batch for argument in program.arguments]
    assert is_batch == sorted(is_batch, reverse=True)
    rest = [a.name for a in program.arguments if not a.is_batch]
    assert len(rest) == len(set(rest))
    model = build_model(config)
    trained = {variable.name for variable in trained_variables(model, config)}
    assert trained <= set(rest)
    # Two slots a variable and the step; at least, as an optimizer may have more.
    assert len(rest) >= 3 * len(trained) + 1


def test_exported_step_is_the_one_that_trains(program: Program) -> None:
    # As training.loop.trainer puts it together, on a batch of the real input pipeline.
    config = tiny_config(training__global_batch_size=ROWS)
    model = build_model(config)
    optimizer = build_optimizer(config, trained_variables(model, config))
    step = make_replica_step(model, optimizer, config)
    batch = steps.zero_batch(config, ROWS)
    assert fingerprint(step_hlo(steps.Step(step, (batch,)))) == fingerprint(program.hlo)


def test_fingerprint_sees_what_is_computed(program: Program) -> None:
    same = training_program(tiny_config())
    assert fingerprint(same.hlo) == fingerprint(program.hlo)
    for other in (
        training_program(tiny_config(), rows=2 * ROWS),
        training_program(tiny_config(optimizer__clip_norm=2.0)),
        training_program(tiny_config(model__hidden_act="gelu_new")),
    ):
        assert fingerprint(other.hlo) != fingerprint(program.hlo)


@pytest.mark.parametrize("hidden_act", ["relu", "gelu_new"])
def test_a_t5_is_a_program_for_a_tpu(hidden_act: str) -> None:
    config = tiny_config(**T5 | {"model__hidden_act": hidden_act})
    exported = training_program(config)
    assert exported.id.name == f"t5_1x{config.model.hidden_size}_{ROWS}x16"
    batch = {a.name.removeprefix("batch_") for a in exported.arguments if a.is_batch}
    assert {"input_word_ids", "masked_lm_ids"} <= batch
    evaluated = export(config, program_id(config, ROWS, step="evaluation"))
    assert fingerprint(evaluated.hlo) != fingerprint(exported.hlo)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("packing", ["doc_sentences", "segment_pair"])
def test_batch_is_that_of_the_input_pipeline(tmp_path: Path, dynamic: bool, packing: str) -> None:
    config = tiny_config(masking__dynamic=dynamic, masking__packing=packing)
    store = TinyStore.create(tmp_path).using(config)
    reader = RecordReader(
        record_sources.training_sources([store.partition("2026-01-01")], store.layout, config)
    )
    masker = load_masker(store.layout, config) if dynamic else None
    device = tf.distribute.get_strategy()
    (batch,) = training_batches(reader, config, device, masker=masker).element_spec
    rows = config.training.global_batch_size
    expected = {name: (spec.shape, spec.dtype) for name, spec in batch.items()}
    found = {n: (value.shape, value.dtype) for n, value in steps.zero_batch(config, rows).items()}
    assert found == expected


@pytest.mark.parametrize(
    "overrides",
    [
        {"training__mixed_precision_dtype": "bfloat16"},
        {"model__hidden_dropout_prob": 0.1, "model__attention_probs_dropout_prob": 0.1},
        pytest.param({"optimizer__type": "lamb"}, marks=pytest.mark.thorough),
        pytest.param({"optimizer__type": "amos"}, marks=pytest.mark.thorough),
        pytest.param({"masking__packing": "segment_pair"}, marks=pytest.mark.thorough),
        pytest.param(
            {"training__gradient_accumulation_steps": 2, "model__hidden_dropout_prob": 0.1},
            marks=pytest.mark.thorough,
        ),
        pytest.param({"training__frozen_layers": 1}, marks=pytest.mark.thorough),
    ],
    ids=["bfloat16", "dropout", "lamb", "amos", "next sentence", "parts", "frozen"],
)
def test_every_recipe_is_a_clean_program(overrides: dict[str, object]) -> None:
    program = training_program(tiny_config(**overrides))
    assert program.arguments[0].shape[0] == ROWS


@pytest.mark.parametrize("source", ["ours", "tf_models_default"])
@pytest.mark.parametrize("step", ["train", "evaluation"])
def test_all_four_steps_are_clean_programs(source: str, step: str) -> None:
    config = tiny_config()
    program = export(config, program_id(config, ROWS, step=step, source=source))
    opcodes = {item.opcode for item in instructions(load(program.hlo))}
    assert "dot" in opcodes
    # Only training updates the model in place; evaluation at most two sums of a metric.
    updates = len(load(program.hlo).input_output_alias.entries)
    assert updates > 50 if step == "train" else updates <= 2


def test_default_activation_is_what_the_configurations_of_tf_models_mean_by_gelu() -> None:
    model = steps.plain_model(tiny_config(model__hidden_act=DEFAULT_ACTIVATION))
    values = tf.linspace(-4.0, 4.0, 33)
    meant = get_activation("gelu")(values)
    np.testing.assert_array_equal(model.masked_lm.activation(values), meant)
    assert np.abs(meant - tf_keras.activations.gelu(values, approximate=False)).max() > 1e-4


def test_plain_step_is_only_there_for_adamw() -> None:
    config = tiny_config(optimizer__type="lamb")
    with pytest.raises(CheckError, match=r"optimizer\.type=adamw"):
        export(config, program_id(config, ROWS, source="tf_models_default"))


def test_findings_of_the_lint_refuse_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_float64(config: PipelineConfig, rows: int) -> steps.Step:
        return steps.Step(lambda values: tf.cast(values, tf.float64) * 2.0, (tf.ones([rows]),))

    monkeypatch.setitem(exporting.BUILDERS, ("ours", "train"), in_float64)
    with pytest.raises(UncompilableStepError, match=r"bert_1x32_4x16: not a program.*\n.*float64"):
        training_program(tiny_config())
