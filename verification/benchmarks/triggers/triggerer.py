"""Runs the measured process: an event loop with many triggers, and nothing else.

``python -m verification.benchmarks.triggers.triggerer WIRES.json --seconds 150``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil

LOOP_TICK_SECONDS = 0.1


def main() -> int:
    """Run the triggers for a while; print the resources that they used."""
    parser = argparse.ArgumentParser(prog="python -m verification.benchmarks.triggers.triggerer")
    parser.add_argument("wires", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    # Log messages of the triggers belong in task logs; stdout is for the result.
    result_stream = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    measured = asyncio.run(_run(json.loads(options.wires.read_text()), options.seconds))
    os.write(result_stream, (json.dumps(measured) + "\n").encode())
    return 0


async def _run(wires: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    from triggers.tpu import TpuJobTrigger

    process = psutil.Process()
    before = _megabytes(process)
    tasks = [asyncio.ensure_future(_first_event(TpuJobTrigger(**wire))) for wire in wires]
    began, cpu = time.monotonic(), process.cpu_times()
    late = await _loop_lateness(seconds)
    spent = time.monotonic() - began
    now = process.cpu_times()
    ended = [task.result() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "seconds": round(spent, 1),
        "rss_mb_with_imports_only": before,
        "rss_mb": _megabytes(process),
        "threads": process.num_threads(),
        "cpu_share": round((now.user + now.system - cpu.user - cpu.system) / spent, 3),
        "loop_late_p99_seconds": round(late[int(0.99 * len(late))], 4),
        "loop_late_max_seconds": round(late[-1], 4),
        "ended_early": len(ended),
        "first_end": ended[0] if ended else None,
    }


async def _first_event(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    return None


async def _loop_lateness(seconds: float) -> list[float]:
    """Return the sorted delays with which the event loop returned from short sleeps."""
    late = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        await asyncio.sleep(LOOP_TICK_SECONDS)
        late.append(time.monotonic() - now - LOOP_TICK_SECONDS)
    return sorted(late)


def _megabytes(process: psutil.Process) -> float:
    return round(process.memory_info().rss / 2**20, 1)


if __name__ == "__main__":
    sys.exit(main())
