"""Lists and runs all checks of an installation in the cloud.

The validate task of a run makes the same checks, as far as its own credentials allow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Generic, TypeVar

from google.auth.exceptions import GoogleAuthError

from pipeline_config import PipelineConfig
from pipeline_config.settings import Settings
from preflight.bucket import rights_finding as bucket_rights_finding
from preflight.cloud import account, images, networks, quotas, service_accounts, tpu_service
from preflight.cloud.airflow_api import (
    AirflowUnavailableError,
    Lookup,
    airflow_version,
    alerts_finding,
    cloud_connection_finding,
)
from preflight.cloud.apis import ApiError, ApiUnavailableError
from preflight.cloud.site import Site
from preflight.cloud.versions import airflow_finding, python_finding
from preflight.estimates.prices import price_finding
from preflight.findings import Finding, Row, failed, not_checked
from preflight.places import (
    dataflow_finding,
    identity_finding,
    region_finding,
    shared_finding,
    store_finding,
    temporary_place_finding,
)

_LookedAt = TypeVar("_LookedAt")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Installation:
    """The settings and lookups of an installation, apart from the cloud."""

    config: PipelineConfig
    settings: Settings
    lookup: Lookup
    today: date


@dataclass(frozen=True)
class Check(Generic[_LookedAt]):
    """One check: its name in tables, what it looks for, and the function that makes it.

    ``find`` returns None if the configuration does not need the check.
    """

    name: str
    about: str
    find: Callable[[_LookedAt], Finding | None]


AIRFLOW_CHECK: Check[str | None] = Check(
    "Airflow",
    "its version gives every guarantee of this project; the report names those that an older one "
    "cannot give",
    lambda url: airflow_finding(airflow_version(url)),
)
"""Check of the Airflow at a URL, or of the one that is installed here."""

INSTALLATION_CHECKS: tuple[Check[Installation], ...] = (
    Check("Python", "its version is that of the locked requirements", lambda _: python_finding()),
    Check(
        "cloud connection",
        "Airflow has the connection that `REPRETRAIN_GCP_CONN_ID` names",
        lambda at: cloud_connection_finding(at.settings, at.lookup),
    ),
    Check(
        "alerts",
        "`REPRETRAIN_ALERT_CONN_IDS` names connections, and Airflow has them",
        lambda at: alerts_finding(at.settings, at.lookup),
    ),
    Check(
        "budget.price_per_chip_hour",
        "it is set, and was looked up recently",
        lambda at: price_finding(at.config, at.today),
    ),
)
"""Checks that only the command makes."""

ACCOUNT_CHECKS: tuple[Check[Site], ...] = (
    Check("clock", "this machine's clock agrees with Google's", account.clock_finding),
    Check(
        "credentials",
        "they exist, yield a token, and are not a person's",
        account.credentials_finding,
    ),
    Check("APIs", "the APIs that the settings need are enabled", account.services_finding),
    Check(
        "roles",
        "the account may create, see and delete TPUs, and start Dataflow jobs",
        account.rights_finding,
    ),
    Check("quota", "the limits of TPU chips are at least what the run needs", quotas.quota_finding),
    Check(
        "tpu.service_account",
        "it exists and is enabled, and the account may let TPU VMs run as it",
        service_accounts.tpu_account_finding,
    ),
    Check(
        "tpu.subnetwork",
        "network and subnetwork exist, with Private Google Access if TPU VMs have no public "
        "addresses",
        networks.tpu_network_finding,
    ),
    Check(
        "tpu.container_image",
        "it is set unless `tpu.runtime_version` is not Google's, it is in its registry, and the "
        "registry is in the TPUs' region",
        images.trainer_image_finding,
    ),
    Check(
        "beam.service_account_email",
        "the same as for `tpu.service_account`, for Dataflow's workers",
        service_accounts.dataflow_account_finding,
    ),
    Check(
        "beam.subnetwork",
        "it exists, with Private Google Access",
        networks.dataflow_network_finding,
    ),
    Check(
        "beam.sdk_container_image",
        "it is in its registry, and the registry is in the TPUs' region",
        images.data_image_finding,
    ),
    Check(
        "shared store",
        "it is a bucket, so TPU VMs can reach it",
        lambda site: shared_finding(site.store),
    ),
)
"""Checks that the command and the validate task make if there are credentials."""

STORE_CHECKS: tuple[Check[Site], ...] = (
    Check(
        "store rights",
        "the account may create, read, list and delete objects, and see the bucket's location",
        lambda site: bucket_rights_finding(site.store.root),
    ),
    Check(
        "store",
        "a file can be written, created only once, replaced only if unchanged, and deleted",
        lambda site: store_finding(site.store),
    ),
    Check(
        "store identity",
        "it is where it was, with the id that it had, when TPUs were first asked for from it",
        lambda site: identity_finding(site.store),
    ),
    Check(
        "store region",
        "the bucket is in the TPUs' region",
        lambda site: region_finding(site.config.tpu, site.store, site.location),
    ),
    Check(
        "beam.runner",
        "Dataflow's workers can reach the store",
        lambda site: dataflow_finding(site.config, site.store),
    ),
    Check(
        "beam.temp_location rights",
        "the same as for `store rights`",
        lambda site: (
            bucket_rights_finding(site.config.beam.temp_location)
            if site.uses_dataflow and site.config.beam.temp_location
            else None
        ),
    ),
    Check(
        "beam.temp_location",
        "its bucket is in the workers' region",
        lambda site: temporary_place_finding(site.config, site.location),
    ),
)
"""Checks of the store by the command; the validate task uses :func:`preflight.run.checks.check`."""

TPU_CHECKS: tuple[Check[Site], ...] = (
    Check(
        "tpu.zones",
        "the zones exist, and the account may list their TPUs, as the teardown does",
        lambda site: tpu_service.zones_finding(site.config, site.offer),
    ),
    Check(
        "tpu.accelerator_type",
        "a zone offers it; if not, the report names the most similar types",
        lambda site: tpu_service.type_finding(site.config, site.offer),
    ),
    Check(
        "tpu.runtime_version",
        "a zone offers it, and it is an image for these chips",
        lambda site: tpu_service.image_finding(site.config, site.offer),
    ),
)
"""Checks of the TPU service, or an emulator, by the command and the validate task."""


def make(checks: Iterable[Check[_LookedAt]], looked_at: _LookedAt) -> Iterator[Row]:
    """Yield a row for each check that the configuration needs, making one after the other."""
    for check in checks:
        finding = _find(check, looked_at)
        if finding is not None:
            yield Row(check.name, finding)


def _find(check: Check[_LookedAt], looked_at: _LookedAt) -> Finding | None:
    try:
        return check.find(looked_at)
    except ApiError as error:
        return _refused(error)
    except (ApiUnavailableError, AirflowUnavailableError) as error:
        return not_checked(f"{error}.")
    except GoogleAuthError as error:
        # The check of the credentials reports why.
        return not_checked(f"there are no usable credentials: {error}.")
    except Exception as error:  # a check that cannot be made is a reason not to spend
        logger.exception("The check of %s failed", check.name)
        return failed(f"could not be checked ({type(error).__name__}: {error}).")


def _refused(error: ApiError) -> Finding:
    """Return the finding for an API that refused a request."""
    if error.is_disabled:
        return not_checked(f"{error}.", f"gcloud services enable {error.service}.googleapis.com")
    if error.is_forbidden:
        return not_checked(
            f"the account may not ask: {error}.", _MAY_ASK.get(error.service, "give it the right")
        )
    return failed(f"{error}.")


_MAY_ASK = {
    "artifactregistry": "give it roles/artifactregistry.reader on the repository",
    "cloudresourcemanager": "give it roles/browser in the project",
    "compute": "give it roles/compute.networkViewer in the project",
    "iam": "give it roles/iam.serviceAccountUser on the account",
    "serviceusage": "give it roles/serviceusage.serviceUsageViewer in the project",
}
"""Roles that allow these requests; a run needs only that of ``iam``."""
