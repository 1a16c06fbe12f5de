"""The lint finds what compiles and yet does not belong on a TPU, and names the place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

from preflight.compiled.errors import UncompilableStepError
from verification.tpu_compile_check.export import step_hlo
from verification.tpu_compile_check.lint import Finding, instructions, lint, load
from verification.tpu_compile_check.steps import Step


def hlo(function: Callable[..., object], size: int | None = 4) -> bytes:
    values = tf.ones([4]) if size else tf.TensorSpec([None], tf.float32)
    return step_hlo(Step(function, (values,)))


def findings(function: Callable[..., object]) -> list[Finding]:
    return lint(hlo(function))


def in_float64(values: tf.Tensor) -> tf.Tensor:
    with tf.name_scope("loss_scaling"):
        return tf.cast(tf.cast(values, tf.float64) * 2.0, tf.float32)


def test_clean_step_has_no_findings() -> None:
    variable = tf.Variable(1.0)

    def step(values: tf.Tensor) -> tf.Tensor:
        return variable.assign_add(tf.reduce_sum(values[:2] * variable))

    assert findings(step) == []


def test_float64_is_found_with_its_place() -> None:
    found = findings(in_float64)
    assert {finding.rule.split(",")[0] for finding in found} == {"float64"}
    assert any("loss_scaling" in finding.place for finding in found)
    assert "loss_scaling" in str(found[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda values: tf.where(values > 0.0),
        lambda values: tf.boolean_mask(values, values > 0.0) * 2.0,
        lambda values: tf.unique(values)[0],
    ],
    ids=["where", "boolean_mask", "unique"],
)
def test_dynamic_shape_is_found(function: Callable[..., object]) -> None:
    assert any(finding.rule.startswith("dynamic shape") for finding in findings(function))


def test_custom_call_and_transfer_to_the_host_are_found() -> None:
    # TensorFlow has no way to write these on a CPU; other frontends do.
    module = load(hlo(lambda values: values * 2.0))
    first, second = list(instructions(module))[:2]
    first.opcode, first.custom_call_target = "custom-call", "my_host_function"
    second.opcode, second.metadata.op_name = "outfeed", "bert/summary"
    found = {finding.instruction: finding for finding in lint(module.SerializeToString())}
    assert found["my_host_function"].rule.startswith("custom call")
    assert found["outfeed"].rule.startswith("transfer")
    assert found["outfeed"].place == "bert/summary"


def prints(values: tf.Tensor) -> tf.Tensor:
    tf.print("loss", values)
    return values


@pytest.mark.parametrize(
    "function",
    [
        prints,
        lambda values: tf.numpy_function(lambda array: array, [values], tf.float32),
        lambda values: tf.strings.as_string(values, precision=2),
    ],
    ids=["print", "numpy_function", "string"],
)
def test_call_to_the_host_cannot_be_exported(function: Callable[..., object]) -> None:
    with pytest.raises(UncompilableStepError, match="outside of it") as caught:
        hlo(function)
    assert "No registered" in str(caught.value), "what XLA says names the operation"


def test_unknown_size_cannot_be_exported() -> None:
    with pytest.raises(UncompilableStepError, match="static input shape"):
        hlo(lambda values: values * 2.0, size=None)
