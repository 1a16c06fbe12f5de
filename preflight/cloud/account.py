"""Checks who asks, and what time it is there."""

from __future__ import annotations

from datetime import timedelta

import google.oauth2.credentials
from google.auth.exceptions import GoogleAuthError, TransportError

from preflight.cloud.site import Site
from preflight.findings import Finding, failed, ok, warning

SKEW_WARNED_OF = timedelta(seconds=10)
SKEW_REFUSED = timedelta(seconds=60)
"""Tokens are refused when the clock is minutes off; expiries of TPUs are wrong by all of it."""


def credentials_finding(site: Site) -> Finding:
    """Check that there are credentials, and that a token is given for them."""
    try:
        credentials = site.apis.credentials
    except GoogleAuthError as error:
        if error.retryable or isinstance(error, TransportError):
            raise
        return failed(
            f"no usable credentials: {error}",
            "gcloud auth application-default login --impersonate-service-account=ACCOUNT, or a "
            "machine that has the account itself",
        )
    if isinstance(credentials, google.oauth2.credentials.Credentials):
        return warning(
            "a person's own login: the rights below are this person's, not those of the account "
            "that Airflow has.",
            "gcloud auth application-default login --impersonate-service-account=ACCOUNT",
        )
    return ok(site.apis.account or type(credentials).__name__)


def clock_finding(site: Site) -> Finding:
    """Check that this machine's clock is Google's."""
    skew = site.apis.clock_skew()
    seconds = skew.total_seconds()
    found = f"this machine is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} Google"
    fix = "sudo timedatectl set-ntp true"
    if abs(skew) > SKEW_REFUSED:
        return failed(f"{found}; tokens are refused and TPUs expire at other times.", fix)
    if abs(skew) > SKEW_WARNED_OF:
        return warning(f"{found}.", fix)
    return ok(found)
