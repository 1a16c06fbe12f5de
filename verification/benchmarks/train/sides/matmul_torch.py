"""Runs only square matrix multiplications in PyTorch, to find the machine's limit."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch

from verification.benchmarks.train.sides import serving

SIZES = (1024, 2048, 4096)


class Matmul:
    """A side that multiplies matrices of the fastest size."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.set_num_threads(options.threads)
        dtype = getattr(torch, options.dtype)
        pairs = [tuple(torch.randn(n, n).to(dtype) for _ in range(2)) for n in SIZES]
        self._pair = min(pairs, key=_seconds_a_flop)
        self.about: dict[str, Any] = {"versions": {"torch": torch.__version__}}

    def run(self, steps: int) -> dict[str, Any]:
        """Multiply; return the number of floating-point operations."""
        for _ in range(steps):
            torch.mm(*self._pair)
        return {"flops": 2.0 * len(self._pair[0]) ** 3 * steps}

    def profile(self, steps: int) -> dict[str, float]:
        """Return nothing, because there is only one operation."""
        raise NotImplementedError


def _seconds_a_flop(pair: tuple[torch.Tensor, torch.Tensor]) -> float:
    torch.mm(*pair)
    begin = time.perf_counter()
    torch.mm(*pair)
    return (time.perf_counter() - begin) / len(pair[0]) ** 3


if __name__ == "__main__":
    sys.exit(serving.main(Matmul))
