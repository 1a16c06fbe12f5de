"""How often the watch looks for reasons to stop."""

from __future__ import annotations

import time

from tests.tpu_agent.world import World, wait_for
from tpu_agent.__main__ import parse_arguments
from tpu_agent.watch import StopKind, Watch

INTERVAL = 0.1


def test_there_is_one_look_per_interval_until_a_reason_is_seen(world: World) -> None:
    looks = []

    def notice() -> str | None:
        looks.append(time.monotonic())
        return "the VM goes away" if len(looks) == 4 else None

    options = world.agent_command(poll_interval=str(INTERVAL))[3:]
    began = time.monotonic()
    with Watch(parse_arguments(options), notice) as watch:
        stop = wait_for("the notice", watch.stop)
        assert stop.kind is StopKind.SHUTDOWN
        assert looks[-1] - began >= 4 * INTERVAL
        time.sleep(3 * INTERVAL)
    assert len(looks) == 4
