"""The rows of the training benchmark: the sides that each compares, and the computed values."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict

from trained_models.architectures.architecture import step_flops
from trained_models.phases import phases
from verification.benchmarks import results
from verification.benchmarks.noise import largest, spread
from verification.benchmarks.results import Row
from verification.benchmarks.train import shapes
from verification.benchmarks.train.contest import Measured, SideName, Sizes, contest, tcmalloc
from verification.benchmarks.train.settings import settings

# The training must be the bottleneck, not the input pipeline.
INPUT_HEADROOM = 20
_LIMITS = ("matmul_tensorflow", "matmul_torch")
_NO_UNITS = "this processor has no instructions for bfloat16"


@dataclass(frozen=True)
class Bench:
    """The location of the data, and the settings of the measurement."""

    work: Path
    threads: int
    sizes: Sizes

    def contest(self, *names: SideName) -> dict[SideName, Measured]:
        """Measure sides in turns."""
        return contest(names, self.work, self.threads, self.sizes)


def training_rows(
    bench: Bench, *, ours: dict[str, SideName], peers: tuple[SideName, ...]
) -> Iterator[Row]:
    """Compare trainings with the fastest peer, and with the limit of the machine.

    :param ours: our sides, by row name.
    """
    first = next(iter(ours.values()))
    limits = [SideName(module, dtype=first.dtype) for module in _LIMITS]
    found = bench.contest(*ours.values(), *peers, *limits)
    _check_weights(found)
    peer = min(peers, key=lambda name: found[name].seconds)
    peak = max(found[limit].flops_per_second for limit in limits)
    for row_name, name in ours.items():
        mine, other = found[name], found[peer]
        speed = _flops(name) / peak
        yield Row(
            row_name,
            shapes.ROWS / mine.seconds,
            "rows/s",
            str(peer),
            **contest_ratios(mine, other),
            utilization=speed / mine.seconds,
            details={
                "peer_value": shapes.ROWS / other.seconds,
                "peer_utilization": speed / other.seconds,
                "ms_per_step": mine.seconds * 1e3,
                "cpu_ms_per_step": mine.cpu_seconds * 1e3,
                "peer_ms_per_step": other.seconds * 1e3,
                "peer_cpu_ms_per_step": other.cpu_seconds * 1e3,
                # With their defaults, and at their best.
                "ratio_by_peer": {str(n): _ratio(mine.wall_s, found[n].wall_s) for n in peers},
                "peers_ms_per_step": {str(n): round(found[n].seconds * 1e3, 1) for n in peers},
                "peers_first_step_s": {str(n): round(found[n].first_request_s, 1) for n in peers},
                "matmul_peak_gflops": peak / 1e9,
                "step_gflop": _flops(name) / 1e9,
                "rounds": len(mine.wall_s),
                "threads": bench.threads,
                **_bfloat16_note(name.dtype),
                "versions": mine.about["versions"] | other.about["versions"],
            },
        )


class Ratios(TypedDict):
    """The ratios of a contest in a row; see :class:`verification.benchmarks.results.Row`."""

    ratio: float
    cpu_ratio: float
    best_ratio: float
    spread: float | None


def contest_ratios(mine: Measured, other: Measured) -> Ratios:
    """Return the ratios of a row, and the spread of the rounds of the contest.

    A ratio is computed within a round. The spread is that of the ratios or of a side, whichever is
    larger: work that slows all sides alike for a while does not change the ratio, but changes the
    row's value.
    """
    ratios = _ratios(mine.wall_s, other.wall_s)
    return {
        "ratio": statistics.median(ratios),
        "cpu_ratio": _ratio(mine.cpu_s, other.cpu_s),
        "best_ratio": other.best / mine.best,
        "spread": largest(spread(ratios), spread(mine.wall_s), spread(other.wall_s)),
    }


def _check_weights(found: dict[SideName, Measured]) -> None:
    counts = {str(n): m.about["parameters"] for n, m in found.items() if "parameters" in m.about}
    if len(set(counts.values())) > 1:
        raise ValueError(f"the sides train different numbers of weights: {counts}")


def _flops(name: SideName) -> float:
    config = settings(name.shape)
    return float(step_flops(config, phases(config)[0]))


def _ratio(mine: list[float], other: list[float]) -> float:
    return statistics.median(_ratios(mine, other))


def _ratios(mine: list[float], other: list[float]) -> list[float]:
    return [theirs / ours for ours, theirs in zip(mine, other, strict=True)]


def _bfloat16_note(dtype: str) -> dict[str, str]:
    if dtype != "bfloat16":
        return {}
    return {"bfloat16_units": results.bfloat16_units() or _NO_UNITS}


def input_pipeline_vs_training(bench: Bench) -> Iterator[Row]:
    """Yield a row that compares our input pipeline alone with the training that it feeds."""
    pipeline, training = SideName("input_pipeline"), SideName("ours")
    # A batch takes so little time that a round needs many to be measurable.
    steps = 64
    found = {
        **contest([pipeline], bench.work, bench.threads, replace(bench.sizes, steps=steps)),
        **bench.contest(training),
    }
    mine, other = found[pipeline], found[training]
    yield Row(
        "input_pipeline_vs_training",
        shapes.ROWS / mine.seconds,
        "rows/s",
        str(training),
        # Not in turns, because the lengths of their rounds differ too much.
        other.seconds / mine.seconds,
        other.cpu_seconds / mine.cpu_seconds,
        other.best / mine.best,
        largest(spread(mine.wall_s), spread(other.wall_s)),
        details={
            "peer_value": shapes.ROWS / other.seconds,
            "wanted_ratio": INPUT_HEADROOM,
            "input_wait_s_per_step": statistics.median(
                answer["input_wait_s"] / bench.sizes.steps for answer in other.answers
            ),
            "versions": other.about["versions"],
        },
    )


def matmul_peak(bench: Bench) -> Iterator[Row]:
    """Yield rows of the limit: only matrix multiplications, by number type."""
    for dtype in ("float32", "bfloat16"):
        found = bench.contest(*(SideName(module, dtype=dtype) for module in _LIMITS))
        speeds = {name.module: found[name].flops_per_second / 1e9 for name in found}
        yield Row(
            f"matmul_peak_{dtype}",
            max(speeds.values()),
            "GFLOP/s",
            spread=largest(*(spread(side.wall_s) for side in found.values())),
            details={
                "libraries": {name: round(value, 1) for name, value in speeds.items()},
                **_bfloat16_note(dtype),
            },
        )


def _against_hugging_face(
    name: str, shape: str, dtype: str = "float32", dropout: float = 0.0
) -> Callable[[Bench], Iterator[Row]]:
    mine = SideName("ours", shape, dtype, dropout=dropout)
    ours = {name: mine}
    if dtype == "bfloat16":
        ours[f"{name}_residuals_too"] = replace(mine, residual_dtype="bfloat16")
    theirs = replace(mine, module="hugging_face")
    compiled = replace(theirs, compiled=True)
    return partial(training_rows, ours=ours, peers=(theirs, compiled, *tuned(compiled)))


def tuned(side: SideName) -> tuple[SideName, ...]:
    """Return the PyTorch side with the settings of its tuning guide, if the machine has them."""
    return (replace(side, allocator=True),) if tcmalloc() is not None else ()


def _against_tf_models(name: str, shape: str) -> Callable[[Bench], Iterator[Row]]:
    mine = SideName("ours", shape)
    return partial(training_rows, ours={name: mine}, peers=(replace(mine, module="tf_models"),))


GROUPS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "matmul_peak": matmul_peak,
    "ours_fp32_vs_hf_gathered": _against_hugging_face("ours_fp32_vs_hf_gathered", "mini"),
    "ours_bf16_vs_hf_bf16": _against_hugging_face("ours_bf16_vs_hf_bf16", "mini", "bfloat16"),
    "ours_fp32_vs_tf_models": _against_tf_models("ours_fp32_vs_tf_models", "mini"),
    "input_pipeline_vs_training": input_pipeline_vs_training,
    "ours_fp32_vs_hf_gathered_dropout": _against_hugging_face(
        "ours_fp32_vs_hf_gathered_dropout", "mini", dropout=0.1
    ),
    "ours_fp32_vs_hf_gathered_minilm": _against_hugging_face(
        "ours_fp32_vs_hf_gathered_minilm", "minilm"
    ),
    "ours_bf16_vs_hf_bf16_minilm": _against_hugging_face(
        "ours_bf16_vs_hf_bf16_minilm", "minilm", "bfloat16"
    ),
    "ours_fp32_vs_tf_models_minilm": _against_tf_models("ours_fp32_vs_tf_models_minilm", "minilm"),
}
