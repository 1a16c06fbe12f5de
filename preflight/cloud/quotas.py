"""Reads the project's quota of TPU chips, as far as it can be determined.

Which metric a request draws on is not documented. Users of the Cloud TPU API report that names such
as ``tpu-v5s-litepod-serving-preemptible`` contain generation and tier, and that small v5e slices
draw on ``serving`` ones. The API does not return how much of a limit is in use. So this check
warns, and never refuses.

Source:
https://cloud.google.com/service-usage/docs/reference/rest/v1beta1/services.consumerQuotaMetrics
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pipeline_config.accelerators import region_of
from preflight.cloud.site import Site
from preflight.findings import Finding, not_checked, ok, warning
from tpu_lifecycle.service import connecting

_SPOT = "preemptible"


def quota_finding(site: Site) -> Finding:
    """Compare the limits of each zone with the chips that the run requests."""
    tpu = site.config.tpu
    if tpu.provisioning_model == "reserved":
        return not_checked("what is reserved is no matter of these limits")
    family, _, size = tpu.accelerator_type.rpartition("-")
    needed, facts = int(size) * tpu.slice_count, connecting.facts()
    if facts.quota_api is None:
        return not_checked(f"which quota counts the chips of the {facts.title} is not known")
    name = facts.quota_names.get(family, family)
    is_spot = tpu.provisioning_model == "spot"
    metrics = list(_metrics(site, facts.quota_api, name, is_spot))
    if not metrics:
        return not_checked(
            f"no quota metric of {family} is known to this project under a name that tells it",
            f"https://console.cloud.google.com/iam-admin/quotas?project={site.project_id}",
        )
    limits = {zone: max(_limit(metric, zone) for metric in metrics) for zone in tpu.zones}
    found = ", ".join(f"{_words(limit)} in {zone}" for zone, limit in limits.items())
    names = ", ".join(metric["metric"].rpartition("/")[2] for metric in metrics)
    if max(limits.values()) < needed:
        return warning(
            f"{needed} are asked for, and the largest limit of {names} is {found}.",
            f"ask for more at https://console.cloud.google.com/iam-admin/quotas"
            f"?project={site.project_id}",
        )
    return ok(f"{names}: {found}; how much is in use is not told")


def _words(limit: float) -> str:
    return "no limit" if math.isinf(limit) else f"{limit:,}"


def _metrics(site: Site, api: str, name: str, is_spot: bool) -> Iterator[dict[str, Any]]:
    """Yield the metrics that count chips of a generation in a tier."""
    path = f"v1beta1/projects/{site.project_id}/services/{api}/consumerQuotaMetrics"
    token = ""
    while True:
        answer = site.apis.get("serviceusage", path, {"pageToken": token} if token else None)
        for metric in answer.get("metrics", []):
            words = metric["metric"].rpartition("/")[2]
            if f"-{name}" in words and (_SPOT in words) == is_spot:
                yield metric
        token = answer.get("nextPageToken", "")
        if not token:
            return


def _limit(metric: dict[str, Any], zone: str) -> float:
    """Return a metric's limit in a zone: the lowest of its limits by zone and by region."""
    places = {"zone": zone, "region": region_of(zone)}
    limits: list[float] = []
    for limit in metric.get("consumerQuotaLimits", []):
        # Ordered from least to most specific: the last matching bucket applies.
        fitting = [
            bucket
            for bucket in limit.get("quotaBuckets", [])
            if all(places.get(key) == value for key, value in bucket.get("dimensions", {}).items())
        ]
        if fitting:
            value = int(fitting[-1].get("effectiveLimit", 0))
            limits.append(math.inf if value < 0 else value)  # -1: unlimited
    return min(limits, default=0)
