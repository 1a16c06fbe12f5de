"""Looks from outside of Airflow whether anything stands still, and tells.

``python -m pipeline_alerts watch-status --deliver`` runs this: it asks the TPU service, too, and
delivers every alert that is pending. Airflow need not run, only be installed: connections are read
from the environment (``AIRFLOW_CONN_...``) or from the secrets backend of its configuration. It
exits with 1 when something stands still, or could not be looked at or delivered.
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
    """Look and tell; return the exit code."""
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
