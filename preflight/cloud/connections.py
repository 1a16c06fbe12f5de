"""Checks that Airflow has the connections that the installation's settings name."""

from __future__ import annotations

from pipeline_config.settings import Settings
from preflight.cloud.airflow_api import TOKEN, Lookup
from preflight.findings import Finding, failed, not_checked, ok, warning

_HOW_TO_ASK = f"name Airflow by --airflow-url, with a token in {TOKEN}"


def cloud_connection_finding(settings: Settings, lookup: Lookup) -> Finding:
    """Check the connection to Google Cloud."""
    conn_id = settings.gcp_conn_id
    has = lookup(conn_id)
    if has is None:
        return not_checked(f"nobody here knows Airflow's connection {conn_id}.", _HOW_TO_ASK)
    if not has:
        return failed(
            f"Airflow has no connection {conn_id}.",
            f"airflow connections add {conn_id} --conn-type google_cloud_platform --conn-extra "
            """'{"project": "PROJECT"}'""",
        )
    return ok(conn_id)


def alerts_finding(settings: Settings, lookup: Lookup) -> Finding:
    """Check the connections that alerts go to. Whether they deliver, only a delivery tells."""
    names = settings.alert_conn_ids
    if not names:
        return warning(
            "REPRETRAIN_ALERT_CONN_IDS is empty: alerts are only logged, and nobody is told.",
            "airflow connections add alerts_mail --conn-json ..., and "
            "export REPRETRAIN_ALERT_CONN_IDS=alerts_mail (docs/alerts.md)",
        )
    told = {name: lookup(name) for name in names}
    if missing := [name for name, has in told.items() if has is False]:
        return failed(
            f"REPRETRAIN_ALERT_CONN_IDS names {', '.join(missing)}, which Airflow does not have.",
            f"airflow connections add {missing[0]} --conn-json ... (docs/alerts.md)",
        )
    if unknown := [name for name, has in told.items() if has is None]:
        return not_checked(
            f"nobody here knows Airflow's connection {', '.join(unknown)}.",
            f"{_HOW_TO_ASK}; or python -m pipeline_alerts test",
        )
    return ok(", ".join(names))
