"""Measures a triggerer that runs many TpuJobTriggers at once.

    python -m verification.benchmarks.triggers [--triggers 300] [--poll-interval 30]

The triggerer is Airflow's, with a separate SQLite database; with --plain, a bare event loop.

Each trigger waits for a job on its own TPU in the emulator. How often and how late the triggers
poll comes from the emulator's record of calls, not from the triggers. Prints one JSON object per
line: the settings, then the result.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from local.commands import import_path
from pipeline_config import PipelineConfig
from pipeline_config.command_line import command_parser
from tpu_emulator.testing import RunningEmulator, start_emulator
from verification.benchmarks.commands import print_result
from verification.benchmarks.triggers.airflow_triggerer import measure
from verification.benchmarks.triggers.waits import CONN_ID, Waits

REPOSITORY = Path(__file__).resolve().parents[3]
READS = ("GetQueuedResource", "GetNode")


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    options = _parser().parse_args(argv)
    print_result(cores=os.cpu_count(), **vars(options))
    with tempfile.TemporaryDirectory(prefix="triggers-") as name:
        folder = Path(name)
        with start_emulator(folder) as emulator:
            waits = Waits.make(emulator, folder, options.triggers, options.poll_interval)
            _slow_down(emulator, options)
            measured = _measure(folder, waits, emulator, options)
            looks = emulator.admin.calls("GetQueuedResource")
    began = measured.pop("began")
    looks = [look for look in looks if look["received"] >= began]
    print_result(**measured, **lags(looks, options.poll_interval, measured["seconds"]))
    return 0


def _slow_down(emulator: RunningEmulator, options: argparse.Namespace) -> None:
    if options.latency:
        for method in READS:
            emulator.admin.delay_next(method, seconds=options.latency, count=10_000_000)


def _measure(
    folder: Path, waits: Waits, emulator: RunningEmulator, options: argparse.Namespace
) -> dict[str, Any]:
    """Run the triggers in a separate process; return the measurements that it reports."""
    (folder / "wires.json").write_text(json.dumps(waits.wires))
    environment = {
        "PYTHONPATH": import_path(),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        f"AIRFLOW_CONN_{CONN_ID.upper()}": json.dumps(waits.connection(emulator)),
    }
    if not options.plain:
        return measure(folder / "wires.json", environment, options.seconds, waits.beat)
    command = [
        sys.executable,
        "-m",
        "verification.benchmarks.triggers.triggerer",
        str(folder / "wires.json"),
    ]
    command += ["--seconds", str(options.seconds)]
    began = time.time()
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:
            waits.beat()
        output = process.stdout.read() if process.stdout else ""
    measured: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return measured | {"began": began}


def lags(looks: list[dict[str, Any]], interval: float, seconds: float) -> dict[str, Any]:
    """Return how often the triggers polled, and how late each poll after the first one was."""
    by_tpu = defaultdict(list)
    for look in looks:
        by_tpu[look["name"]].append(look["received"])
    gaps = sorted(
        later - earlier - interval
        for times in by_tpu.values()
        for earlier, later in itertools.pairwise(times)
    )

    def quantile(share: float) -> float | None:
        return round(gaps[min(len(gaps) - 1, int(share * len(gaps)))], 3) if gaps else None

    return {
        "triggers_seen": len(by_tpu),
        "looks": len(looks),
        "looks_per_second": round(len(looks) / seconds, 2),
        "late_median_seconds": quantile(0.5),
        "late_p99_seconds": quantile(0.99),
        "late_max_seconds": round(gaps[-1], 3) if gaps else None,
    }


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.benchmarks.triggers", __doc__)
    add = parser.add_argument
    add("--triggers", type=int, default=300, help="default: %(default)s")
    add("--plain", action="store_true", help="a bare event loop instead of Airflow's triggerer")
    add("--seconds", type=float, default=150.0, help="to measure; default: %(default)s")
    add(
        "--poll-interval",
        type=float,
        default=PipelineConfig().tpu.poll_interval,
        help="tpu.poll_interval; default: %(default)s",
    )
    add(
        "--latency",
        type=float,
        default=0.0,
        help="seconds that the service takes for a read; default: %(default)s",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
