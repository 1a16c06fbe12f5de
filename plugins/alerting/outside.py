"""Checks from outside of Airflow whether anything has stalled, and delivers alerts.

``python -m pipeline_alerts watch-status --deliver`` runs this: it also asks the TPU service, and
delivers every pending alert. Airflow must be installed but need not run: connections are read from
the environment (``AIRFLOW_CONN_...``) or from the secrets backend of its configuration. It exits
with 1 when something has stalled, or when a check or a delivery failed.
"""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta

from alerting.announcing import channels, run_link, tpu_of
from pipeline_alerts.delivery import deliver_all
from pipeline_alerts.outside import Outside
from pipeline_alerts.standstill import Patience
from pipeline_config.command_line import command_parser
from pipeline_config.settings import load_settings
from pipeline_store.layout import StoreLayout

NOBODY = (
    "REPRETRAIN_ALERT_CONN_IDS is empty here, so nobody is told of any alert: name the same "
    "connections as in Airflow, or leave out --deliver."
)


def main(argv: list[str] | None = None) -> int:
    """Check, deliver alerts and return the exit code."""
    arguments, settings = _parser().parse_args(argv), load_settings()
    store = StoreLayout(arguments.store)
    outside = Outside(
        store,
        Patience.of(settings),
        timedelta(minutes=arguments.max_age_minutes),
        link_of=run_link,
        tpu_of=tpu_of,
        with_text=settings.alert_with_text,
    )
    report = outside.look()
    with report.collected("the delivery of alerts"):
        ways = channels()
        if not ways:
            report.problems.append(NOBODY)
        report.problems += deliver_all(store, ways)
    return report.conclude()


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("pipeline_alerts watch-status --deliver", __doc__)
    settings = load_settings()
    parser.add_argument("--store", default=settings.store_uri, help="default: %(default)s")
    parser.add_argument("--max-age-minutes", type=float, default=30.0, help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
