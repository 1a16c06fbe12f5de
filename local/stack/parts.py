"""Defines the programs of the stack: how and in which order each is started and stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from local.stack.paths import RuntimePaths, StatePaths
from local.stack.ports import HOST
from local.stack.settings import (
    API_SERVER,
    MARKER,
    SCHEDULER_HEALTH,
    TASK_LOGS,
    TENSORBOARD,
    impatient_database,
    search_path,
)

POSTGRES, MIGRATION, TPU_EMULATOR = "postgres", "db-migration", "tpu-emulator"
SCHEDULER, DAG_PROCESSOR, TRIGGERER = "scheduler", "dag-processor", "triggerer"
LIVENESS = "liveness"


class Tier(IntEnum):
    """Tiers of parts, which are stopped in reverse order, one after the other."""

    DATABASE = 1
    SERVICES = 2
    # Tasks that are being stopped still report to the API server, so it stops after the schedulers.
    API = 3
    AIRFLOW = 4
    # Stopped first, so that it does not judge parts that are being stopped.
    LIVENESS = 5


@dataclass(frozen=True)
class Part:
    """One program under supervision."""

    name: str
    command: tuple[str, ...]
    tier: Tier
    needs: tuple[str, ...] = ()
    """Parts that must be healthy before it is started."""
    stop_signal: str = "TERM"
    stop_seconds: int = 15
    """Seconds it may take to stop before it and its process group are killed."""
    stop_group: bool = False
    """Whether its child processes get the stop signal too."""
    once: bool = False
    """Whether it runs to completion instead of as a service."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of this part only."""
    leaves_children: bool = True
    """Whether child processes can survive when it is killed."""
    listens: bool = False
    """Whether it is an event listener of supervisord, the only part of its tier."""

    @property
    def launch(self) -> tuple[str, ...]:
        """Return the start command, which first ends processes left by an earlier start."""
        if not self.leaves_children:
            return self.command
        pairs = (("--env", f"{name}={value}") for name, value in self.environment.items())
        own = (word for pair in pairs for word in pair)
        return python_module("local.stack.launcher", "--part", self.name, *own, "--", *self.command)


def all_parts(
    paths: StatePaths, runtime: RuntimePaths, ports: Mapping[str, int]
) -> tuple[Part, ...]:
    """Return the parts in start order."""
    return (
        Part(
            name=POSTGRES,
            command=python_module(
                "local.stack.postgres",
                *("--data-dir", str(paths.database)),
                *("--socket-dir", str(runtime.database)),
            ),
            tier=Tier.DATABASE,
            # "Fast" shutdown; TERM would wait for clients to disconnect.
            stop_signal="INT",
            # Its processes end by themselves when the first one is gone, and it does not start
            # while one of them exists. Their environment would not identify them, either.
            leaves_children=False,
        ),
        Part(
            name=MIGRATION,
            command=python_module(
                "local.stack.migration", "--done-file", str(paths.schema_version)
            ),
            tier=Tier.SERVICES,
            needs=(POSTGRES,),
            stop_group=True,
            once=True,
        ),
        Part(
            name=TPU_EMULATOR,
            command=python_module(
                "tpu_emulator",
                "serve",
                *("--socket", str(runtime.emulator_socket)),
                *("--state-dir", str(paths.emulator)),
                # A TPU VM starts from an empty environment. It needs this Python, and the marker
                # by which `down` finds its processes.
                *("--vm-env", f"PATH={search_path()}"),
                *("--vm-env", f"{MARKER}={paths.root}"),
            ),
            tier=Tier.SERVICES,
            stop_seconds=30,
        ),
        Part(
            name=TENSORBOARD,
            command=python_module(
                "local.stack.tensorboard_server",
                *("--runs", str(paths.runs)),
                *("--logdir", str(paths.named_runs)),
                *("--host", HOST),
                *("--port", str(ports[TENSORBOARD])),
            ),
            tier=Tier.SERVICES,
        ),
        Part(
            # Otherwise Airflow's scheduler and triggerer each start this server on all interfaces.
            name=TASK_LOGS,
            command=python_module(
                "uvicorn",
                "--factory",
                "airflow.utils.serve_logs.log_server:get_app",
                *("--host", HOST),
                *("--port", str(ports[TASK_LOGS])),
                "--no-access-log",
            ),
            tier=Tier.SERVICES,
        ),
        Part(
            name=API_SERVER,
            command=_airflow("api-server"),
            tier=Tier.API,
            needs=(MIGRATION,),
        ),
        Part(
            name=SCHEDULER,
            command=_airflow("scheduler", "--skip-serve-logs"),
            tier=Tier.AIRFLOW,
            needs=(MIGRATION,),
            # Its workers forward the signal, so that running tasks clean up (`on_kill`). A task
            # that ignores it is not worth waiting for.
            stop_group=True,
            stop_seconds=10,
            environment=impatient_database(runtime),
        ),
        Part(
            name=DAG_PROCESSOR,
            command=_airflow("dag-processor"),
            tier=Tier.AIRFLOW,
            needs=(MIGRATION,),
        ),
        Part(
            name=TRIGGERER,
            command=_airflow("triggerer", "--skip-serve-logs"),
            tier=Tier.AIRFLOW,
            needs=(MIGRATION,),
            environment=impatient_database(runtime),
        ),
        Part(
            name=LIVENESS,
            command=python_module("local.stack.liveness", "--port", str(ports[SCHEDULER_HEALTH])),
            tier=Tier.LIVENESS,
            # Started after the scheduler, so the time of its first start does not count.
            needs=(SCHEDULER,),
            leaves_children=False,
            listens=True,
        ),
    )


def stop_seconds(parts: Iterable[Part]) -> int:
    """Return the maximum seconds to stop all parts: the sum over tiers of the slowest part."""
    slowest: dict[Tier, int] = {}
    for part in parts:
        slowest[part.tier] = max(part.stop_seconds, slowest.get(part.tier, 0))
    return sum(slowest.values())


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module in this Python environment."""
    # -P: do not import from the working directory.
    return (sys.executable, "-P", "-m", module, *arguments)


def _airflow(*arguments: str) -> tuple[str, ...]:
    return python_module("airflow", *arguments)
