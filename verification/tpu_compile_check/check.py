"""Runs one check: exports a configuration's steps, compiles each, refuses one that won't fit."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_config import PipelineConfig, with_overrides
from preflight.compiled.errors import CheckError, DoesNotFitError
from preflight.compiled.figures import Comparison, Figures, compare, figures_of
from preflight.compiled.programs import Program, ProgramId, Source, StepKind, program_id
from preflight.compiled.slices import Chip, replicas
from trained_models.architectures.architecture import step_flops
from trained_models.phases import phases
from verification.tpu_compile_check.compiling import Report, compile_program

# The activation that tf-models' configurations mean by "gelu": official.modeling.activations.gelu.
DEFAULT_ACTIVATION = "gelu_new"
NO_DROPOUT = {"model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0}
ROWS_MULTIPLE = 8
"""A TPU's registers hold eight rows; other counts are padded."""


@dataclass(frozen=True)
class Request:
    """The programs to compile, and the compiler.

    ``rows``: of one replica; None divides the configuration's global batch by the slice's replicas.
    ``max_compiles``: maximum number of further programs that are compiled to find the largest batch
    that fits.
    """

    config: PipelineConfig
    chip: Chip
    folder: Path
    compiler: Path
    report: Report
    step: StepKind = "train"
    rows: int | None = None
    max_compiles: int = 8


def programs(request: Request, *, compare_plain: bool) -> list[tuple[PipelineConfig, ProgramId]]:
    """Return the programs of a request, each with its configuration; peers come first.

    A comparison is at dropout 0 on both sides; a configuration with dropout is then also compiled
    unchanged. If our activation is tf-models' own, the two peers are one program.
    """
    config, step, rows = request.config, request.step, _rows(request)
    own = program_id(config, rows, step=step)
    if not compare_plain:
        return [(config, own)]
    bare = with_overrides(config, NO_DROPOUT)
    default = with_overrides(bare, {"model.hidden_act": DEFAULT_ACTIVATION})
    peers: dict[Source, PipelineConfig] = {"tf_models_default": default}
    if bare.model.hidden_act != DEFAULT_ACTIVATION:
        peers["tf_models_same_activation"] = bare
    wanted = [
        *((peer, program_id(peer, rows, step=step, source=name)) for name, peer in peers.items()),
        (bare, program_id(bare, rows, step=step)),
    ]
    return wanted if own.dropout == 0 else [*wanted, (config, own)]


def _rows(request: Request) -> int:
    if request.rows is not None:
        return request.rows
    section = request.config.training if request.step == "train" else request.config.evaluation
    count = replicas(request.config)
    if section.global_batch_size < count:
        raise CheckError(
            f"A global batch of {section.global_batch_size} rows leaves some of the {count} "
            f"replicas of {request.config.tpu.accelerator_type} without a row."
        )
    return section.global_batch_size // count


def export_program(request: Request, config: PipelineConfig, wanted: ProgramId) -> Program:
    """Return a program, and free the memory of its trace, which a compile needs.

    :raises UncompilableStepError: see :func:`verification.tpu_compile_check.export.export`.
    """
    # Imported here, so that a wrong argument is reported at once, not after seconds of imports.
    from verification.tpu_compile_check.export import export

    request.report(f"{wanted}: exporting ...")
    program = export(config, wanted)
    gc.collect()
    return program


def check(
    request: Request, *, compare_plain: bool
) -> Iterator[tuple[ProgramId, Figures, list[Comparison]]]:
    """Yield the figures of every program of a request; ours with comparisons to each peer.

    Our program with dropout is compared with ours without.

    :raises DoesNotFitError: a program needs more memory than the chip has.
    :raises CheckError: it cannot be exported or compiled.
    """
    found: dict[Source, Figures] = {}
    for config, wanted in programs(request, compare_plain=compare_plain):
        compiled = _compile(request, config, wanted)
        if not compiled["fits"]:
            raise _refusal(request, config, wanted, compiled)
        figures = figures_of(wanted, request.chip, compiled, model_flops(config, wanted))
        others: dict[Source, Figures] = {}
        if wanted.source == "ours":
            others = {"ours": found["ours"]} if "ours" in found else dict(found)
        yield wanted, figures, [compare(figures, other, name) for name, other in others.items()]
        found[wanted.source] = figures


def model_flops(config: PipelineConfig, wanted: ProgramId) -> int | None:
    """Return the model FLOPs of a training step on a replica's rows; None for another step."""
    if wanted.step != "train":
        return None
    phase = replace(phases(config)[0], global_batch_size=wanted.rows)
    return step_flops(config, phase)


def _compile(request: Request, config: PipelineConfig, wanted: ProgramId) -> dict[str, Any]:
    path = export_program(request, config, wanted).write(request.folder)
    return compile_program(path, request.chip, compiler=request.compiler, report=request.report)


def _refusal(
    request: Request, config: PipelineConfig, wanted: ProgramId, compiled: dict[str, Any]
) -> DoesNotFitError:
    request.report(f"{wanted}: does not fit; looking for the largest batch that does")

    def fits(rows: int) -> bool:
        step, source = wanted.step, wanted.source
        smaller = program_id(config, rows, step=step, source=source)
        answer: bool = _compile(request, config, smaller)["fits"]
        request.report(f"{smaller}: {'fits' if answer else 'does not fit'}")
        return answer

    largest = largest_fitting(fits, wanted.rows, request.max_compiles)
    return DoesNotFitError(
        name=f"{wanted.name}_{request.chip.name}{wanted.suffix}",
        rows=wanted.rows,
        largest_rows=largest,
        replicas=replicas(config),
        compiled=compiled,
    )


def largest_fitting(fits: Callable[[int], bool], too_many: int, max_compiles: int) -> int | None:
    """Return the largest number of rows found to fit, below one that does not.

    Halves until one fits, then bisects between the two. Exact to a multiple of
    :data:`ROWS_MULTIPLE` if the compiles suffice, else a number that fits, though perhaps not the
    largest.

    :param fits: returns whether a step with a number of rows fits; takes one compile.
    :param too_many: number of rows that does not fit.
    :param max_compiles: maximum number of calls of ``fits``.
    :returns: None if no number was found to fit.
    """
    low, high = None, _round_up(too_many)
    for _ in range(max_compiles):
        middle = _round_down(high // 2 if low is None else (low + high) // 2)
        if middle < ROWS_MULTIPLE or middle == low:
            break
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _round_down(rows: int) -> int:
    return rows // ROWS_MULTIPLE * ROWS_MULTIPLE


def _round_up(rows: int) -> int:
    return -(-rows // ROWS_MULTIPLE) * ROWS_MULTIPLE
