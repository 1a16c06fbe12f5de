"""Shows alerts, and tests that they are delivered.

python -m pipeline_alerts list --store gs://my-bucket/store
python -m pipeline_alerts show 0a1b2c3d4e5f
python -m pipeline_alerts test
python -m pipeline_alerts watch-status --max-age-minutes 30
python -m pipeline_alerts watch-status --deliver
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline_alerts.causes import Cause
from pipeline_alerts.delivery import clearance, list_alerts
from pipeline_alerts.messages import Message, compose
from pipeline_alerts.outside import Outside
from pipeline_alerts.raising import raise_about_installation
from pipeline_alerts.standstill import Patience
from pipeline_config.command_line import Run, SubCommands
from pipeline_config.settings import add_store_argument, load_settings
from pipeline_store import uris
from pipeline_store.formats import Alert, AlertDelivery, AlertSending, FormatError
from pipeline_store.layout import StoreLayout

REPOSITORY = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> int:
    """Run a command; return 0, or 1 when it found a problem or something cannot be read."""
    return _commands().run(argv, OSError, FormatError)


def _list(arguments: argparse.Namespace) -> int:
    store = StoreLayout(arguments.store)
    found = sorted((Alert.load(uri) for uri in list_alerts(store)), key=lambda alert: alert.time)
    shown = found[-arguments.last :]
    if arguments.json:
        print(json.dumps([_with_deliveries(store, alert) for alert in shown], indent=2))
        return 0
    for alert in shown:
        channels = ", ".join(f"{c}: {s}" for c, s in _deliveries(store, alert).items()) or "logged"
        over = f"  cleared {cleared.time:%F %T} UTC" if (cleared := clearance(store, alert)) else ""
        head = f"{alert.time:%F %T} UTC  {alert.scope}  {alert.cause}  {alert.title}"
        print(f"{head}  ({channels}){over}")
    print(f"{len(found)} alert(s), {len(shown)} shown.")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    store = StoreLayout(arguments.store)
    wanted = f"/{arguments.scope}/"
    found = [Alert.load(uri) for uri in list_alerts(store) if wanted in uri]
    for alert in found:
        print(_composed(store, alert).text)
        for channel, state in _deliveries(store, alert).items():
            print(f"{channel}: {state}")
        print()
    if not found:
        print(f"There is no alert about {arguments.scope} in {store.alerts}.", file=sys.stderr)
    return 0 if found else 1


def _test(arguments: argparse.Namespace) -> int:
    store = StoreLayout(arguments.store)
    raise_about_installation(
        store,
        f"test-{datetime.now(UTC):%Y%m%dT%H%M%S%f}",
        Cause.TEST,
        about="alerts",
        summary="a test",
        reason="Somebody ran python -m pipeline_alerts test.",
    )
    print(
        "Written. The pipeline_watch DAG delivers it at its next pass, within five minutes; "
        "python -m pipeline_alerts list --last 1 then says through which connections."
    )
    return 0


def _watch_status(arguments: argparse.Namespace) -> int:
    if arguments.deliver:
        # A separate process: the channels import Airflow, which this package must not.
        words = ["--store", arguments.store, "--max-age-minutes", str(arguments.max_age_minutes)]
        roots = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "plugins")])
        command = [sys.executable, "-m", "alerting.outside", *words]
        environment = os.environ | {"PYTHONPATH": roots}
        return subprocess.run(command, env=environment, check=False).returncode
    settings = load_settings()
    outside = Outside(
        StoreLayout(arguments.store),
        Patience.of(settings),
        timedelta(minutes=arguments.max_age_minutes),
        with_text=settings.alert_with_text,
    )
    return outside.look().conclude()


def _deliveries(store: StoreLayout, alert: Alert) -> dict[str, str]:
    """Return the state of delivery through each channel, in words, by connection."""
    folder = uris.join(store.alerts, alert.scope)
    stem = f"{alert.cause}."
    states: dict[str, str] = {}
    for uri in uris.list_files(folder):
        name = uri.rpartition("/")[2]
        channel = name.removeprefix(stem).rpartition(".")[0].rpartition(".")[0]
        if name.startswith(stem) and name.endswith(".delivered.json"):
            delivery = AlertDelivery.load(uri)
            states[channel] = delivery.given_up or f"delivered {delivery.time:%F %T} UTC"
        elif name.startswith(stem) and name.endswith(".sending.json") and channel not in states:
            sending = AlertSending.load(uri)
            error = f": {sending.error}" if sending.error else ""
            states[channel] = f"not delivered after {sending.tries} tries{error}"
    return states


def _with_deliveries(store: StoreLayout, alert: Alert) -> dict[str, Any]:
    payload = _composed(store, alert).payload
    return payload | {"deliveries": _deliveries(store, alert)}


def _composed(store: StoreLayout, alert: Alert) -> Message:
    return compose(alert, clearance(store, alert), docs_url=load_settings().docs_url)


def _commands() -> SubCommands:
    found = SubCommands("pipeline_alerts", __doc__)

    def add(name: str, run: Run, text: str) -> argparse.ArgumentParser:
        command = found.add(name, run, text)
        add_store_argument(command)
        return command

    listing = add("list", _list, "list alerts, oldest first, and who has them")
    listing.add_argument("--last", type=int, default=50, help="default: %(default)s")
    listing.add_argument("--json", action="store_true", help="print what the webhook gets")
    show = add("show", _show, "print the alerts about a run or another scope in full")
    show.add_argument("scope", help="run key, such as 0a1b2c3d4e5f, or another scope of the list")
    add("test", _test, "raise a test alert, which the watch delivers through every connection")
    text = "exit with 1 when the watch made no pass lately, or a run or a TPU stands still"
    status = add("watch-status", _watch_status, text)
    status.add_argument("--max-age-minutes", type=float, default=30.0, help="default: %(default)s")
    status.add_argument(
        "--deliver",
        action="store_true",
        help="also ask the TPU service, and deliver all alerts that are pending; needs Airflow "
        "installed, not running",
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
