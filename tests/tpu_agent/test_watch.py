"""How often the watch looks for reasons to stop."""

from __future__ import annotations

import time

from pipeline_store import uris
from tests.tpu_agent.world import World, wait_for
from tpu_agent.__main__ import parse_arguments
from tpu_agent.watch import StopKind, Watch

INTERVAL = 0.1


def test_a_record_that_cannot_be_read_is_looked_at_twice(world: World) -> None:
    options = world.agent_command(poll_interval=str(INTERVAL))[3:]
    good = uris.read(world.mailbox.record)
    looks = 0

    def notice() -> None:
        # Between two writes of it, and then for good.
        nonlocal looks
        looks += 1
        uris.write(world.mailbox.record, b"{" if looks in (2, 5, 6) else good)

    with Watch(parse_arguments(options), notice) as watch:
        wait_for("the fourth look", lambda: looks >= 4)
        assert watch.stop() is None
        stop = wait_for("a reason", watch.stop)
        assert stop.kind is StopKind.REVOKED
        assert looks == 6


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
