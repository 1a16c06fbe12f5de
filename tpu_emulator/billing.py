"""The bill: the cost of every node from READY until its VMs were gone, even if deleted since."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

from tpu_emulator import catalog
from tpu_emulator.history import GONE
from tpu_emulator.names import split
from tpu_emulator.store import Store

_STARTS = ("READY",)
# Their VMs are gone. A node that is DELETING, STOPPING or RESTARTING still has some.
_ENDS = ("PREEMPTED", "TERMINATED", "STOPPED", GONE)
_HOUR = 3600.0


def prices(by_type: Mapping[str, str]) -> dict[str, float]:
    """The prices of the command line as numbers.

    Raises:
        ValueError: an unknown accelerator type, or an invalid price.
    """
    result = {}
    for name, text in by_type.items():
        if name not in catalog.ACCELERATOR_TYPES:
            known = ", ".join(catalog.ACCELERATOR_TYPES)
            raise ValueError(f"--price {name}={text}: unknown accelerator type; known: {known}")
        result[name] = float(text)
        if not 0 <= result[name] < math.inf:
            raise ValueError(f"--price {name}={text}: a price is not negative")
    return result


def open_account(store: Store, node: Any, tier: str) -> None:
    """Stores what the bill says of a new node, even after its deletion, including its tier."""
    description = {
        "accelerator_type": node.accelerator_type,
        "tier": tier,
        "labels": dict(node.labels),
        "queued_resource": node.queued_resource,
    }
    store.query("INSERT INTO lives VALUES (?, ?, ?)", node.id, node.name, json.dumps(description))


def bill(store: Store, price_of: Mapping[str, float]) -> dict[str, Any]:
    """One line per node that ever existed, and the sums.

    Args:
        store: the emulator's memory.
        price_of: price of a chip-hour by accelerator type; a missing one is 0.
    """
    spans = _billed_seconds(store)
    lines = []
    for row in store.query("SELECT * FROM lives ORDER BY life"):
        description = json.loads(row["description"])
        accelerator = catalog.ACCELERATOR_TYPES[description["accelerator_type"]]
        price = price_of.get(accelerator.name, 0.0)
        node_seconds, running = spans.get(row["life"], (0.0, False))
        chip_seconds = node_seconds * accelerator.chips
        location, node_id = split(row["name"])
        lines.append(
            {"name": row["name"], "zone": location.zone, "node_id": node_id}
            | description
            | {
                "running": running,
                "node_seconds": node_seconds,
                "chip_seconds": chip_seconds,
                "price_per_chip_hour": price,
                "cost": chip_seconds / _HOUR * price,
            }
        )
    sums = {
        key: sum(line[key] for line in lines) for key in ("node_seconds", "chip_seconds", "cost")
    }
    return {"nodes": lines} | sums


def _billed_seconds(store: Store) -> dict[int, tuple[float, bool]]:
    """The billed seconds so far, by life, and whether the clock still runs."""
    total: dict[int, float] = {}
    since: dict[int, float] = {}
    for change in store.history.states():
        life = change["life"]
        if change["state"] in _STARTS:
            since.setdefault(life, change["at"])
        elif change["state"] in _ENDS and life in since:
            total[life] = total.get(life, 0.0) + change["at"] - since.pop(life)
    now = time.time()
    return {
        life: (total.get(life, 0.0) + (now - since[life] if life in since else 0.0), life in since)
        for life in total.keys() | since.keys()
    }
