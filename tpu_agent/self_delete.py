"""The dead man's switch: the TPU VM deletes its own TPU when everybody else has forgotten it.

A separate process from the agent: it must work when the agent hangs, and end with the VM only.
``tpu_lifecycle/boot/boot.py`` starts it, and restarts it whenever it ends. It has no handler for
SIGTERM: that signal means that the VM shuts down, and the next boot starts it again.

python -m tpu_agent.self_delete --tpu-name NAME \
    --node-id ID --tpu-api-endpoint '' --mailbox URI --released-uri URI --worker 0 \
    --expires-at 2026-01-31T12:00:00+00:00 --lease-timeout 7200 --work-dir /var/lib/tpu-agent/agent
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from pipeline_store.layout import AttemptLayout
from tpu_agent.config import moment
from tpu_agent.switch import Switch, SwitchConfig

DELETIONS = "REPRETRAIN_TPU_DELETIONS"
"""Environment variable with the requests that delete the TPU, separated by whitespace."""

_log = logging.getLogger(__name__)


def parse_arguments(arguments: list[str]) -> SwitchConfig:
    """Return the configuration that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tpu_agent.self_delete",
        description="Deletes the TPU of this VM at its expiry, or when it is forgotten: its lease "
        "is not renewed and no job makes progress, or it was released and is still there. Runs "
        "until the VM ends.",
    )
    add = parser.add_argument
    add("--tpu-name", required=True, help="full name in the service of what is deleted")
    add("--node-id", required=True, help="this VM's own node")
    add(
        "--tpu-api-endpoint",
        required=True,
        help="an emulator's; empty: there is a service",
    )
    add("--mailbox", required=True, help="URI of the attempt's folder in the store")
    add("--released-uri", required=True, help="URI of the reservation's tombstone")
    add("--worker", required=True, type=int, help="number of this host in the slice, from 0")
    add("--expires-at", required=True, type=moment, help="ISO 8601; the TPU goes at this moment")
    add("--lease-timeout", required=True, type=float, help="seconds without renewal and progress")
    add("--work-dir", required=True, type=Path, help="the agent's folder")
    options = parser.parse_args(arguments)
    values = vars(options) | {
        "tpu_deletions": tuple(os.environ.get(DELETIONS, "").split()),
        "mailbox": AttemptLayout(options.mailbox),
        "work_dir": options.work_dir.resolve(),
    }
    return SwitchConfig(**values)


def main() -> None:
    """Run the switch."""
    config = parse_arguments(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s switch %(levelname)s %(message)s")
    _log.info(
        "%s expires at %s; lease timeout %.0f s, a look every %.1f s",
        config.tpu_name,
        config.expires_at,
        config.lease_timeout,
        config.poll_interval,
    )
    Switch(config).run()


if __name__ == "__main__":
    main()
