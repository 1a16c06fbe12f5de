"""Exports a configuration's step as HLO: traced by TensorFlow, linted and described."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2

from pipeline_config import PipelineConfig
from preflight.compiled.errors import UncompilableStepError
from preflight.compiled.programs import Argument, Program, ProgramId
from verification.tpu_compile_check import steps
from verification.tpu_compile_check.lint import lint, load

BUILDERS: dict[tuple[str, str], Callable[[PipelineConfig, int], steps.Step]] = {
    ("ours", "train"): steps.training_step,
    ("ours", "evaluation"): steps.evaluation_step,
    # The two differ in the activation of their configurations.
    **{
        (source, kind): build
        for source in ("tf_models_default", "tf_models_same_activation")
        for kind, build in (
            ("train", steps.plain_training_step),
            ("evaluation", steps.plain_evaluation_step),
        )
    },
}


def export(config: PipelineConfig, wanted: ProgramId) -> Program:
    """Return the program of one step, without running it.

    :param wanted: the step and its number of rows.
    :raises UncompilableStepError: XLA cannot compile it, or it breaks a rule of the lint.
    """
    step = BUILDERS[wanted.source, wanted.step](config, wanted.rows)
    compiled = tf.function(step.function, jit_compile=True)
    hlo = _lower(compiled, step)
    if findings := lint(hlo):
        lines = "\n".join(f"  {finding}" for finding in findings)
        raise UncompilableStepError(f"{wanted}: not a program for a TPU.\n{lines}")
    return Program(wanted, hlo, tuple(_arguments(hlo, compiled, step)))


def step_hlo(step: steps.Step) -> bytes:
    """Return the serialized ``HloModuleProto`` of a step.

    It is lowered for XLA's CPU device, which supports a subset of the TPU's operations.

    :raises UncompilableStepError: an operation is not supported by XLA, or a size is not static.
    """
    return _lower(tf.function(step.function, jit_compile=True), step)


def _lower(compiled: tf.types.experimental.PolymorphicFunction, step: steps.Step) -> bytes:
    try:
        get_ir = compiled.experimental_get_compiler_ir(*step.arguments)
        return bytes(get_ir(stage="hlo_serialized", platform_name="CPU"))
    except ValueError as error:
        raise UncompilableStepError(
            "XLA cannot compile the step. Strings, printing, Python functions and sizes that are "
            f"not known in advance belong outside of it. XLA says: {error}"
        ) from error


def _arguments(
    hlo: bytes, compiled: tf.types.experimental.PolymorphicFunction, step: steps.Step
) -> Iterator[Argument]:
    """Yield the arguments in the program's order: the batch, then the captured variables."""
    function = compiled.get_concrete_function(*step.arguments)
    batch = [spec.name for spec in tf.nest.flatten(function.structured_input_signature)]
    variables = {id(variable.handle): variable.name for variable in function.variables}
    # In the trace, an optimizer's slots have the name of the operation that updates them.
    captured = [
        variables.get(id(handle), inside.name) for handle, inside in function.graph.captures
    ]
    shapes = load(hlo).host_program_shape.parameters
    for place, (name, shape) in enumerate(zip([*batch, *captured], shapes, strict=True)):
        dtype = xla_data_pb2.PrimitiveType.Name(shape.element_type).lower()
        yield Argument(name, tuple(shape.dimensions), dtype, is_batch=place < len(batch))
