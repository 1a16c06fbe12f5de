"""Airflow connection to the Cloud TPU API."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.providers.google.common.hooks.base_google import GoogleBaseHook

if TYPE_CHECKING:
    from tpu_lifecycle.service.backend import TpuBackend

# One channel for all tasks or triggers of a process. The process id is part of the key because a
# channel does not survive a fork.
_backends: dict[tuple[object, ...], TpuBackend] = {}


def forget(backend: TpuBackend) -> None:
    """Drop a backend from the cache, so that the next caller gets one with fresh credentials.

    It is not closed: other tasks or triggers may be using it.
    """
    for key in [key for key, kept in list(_backends.items()) if kept is backend]:
        _backends.pop(key, None)


class TpuHook(GoogleBaseHook):
    """Connects to the Cloud TPU API.

    Two extra fields of the connection are ours: ``tpu_api_endpoint`` replaces the public endpoint,
    and ``tpu_insecure`` connects without TLS and credentials, as an emulator requires.

    :param gcp_conn_id: Airflow connection of type Google Cloud.
    :param impersonation_chain: service account to impersonate, or a chain of them.
    :param role: which part of this program calls, such as ``teardown``; it is in the user agent of
        every call, and so in the service's audit log.
    """

    def __init__(
        self,
        gcp_conn_id: str = GoogleBaseHook.default_conn_name,
        impersonation_chain: str | Sequence[str] | None = None,
        role: str = "task",
    ) -> None:
        super().__init__(gcp_conn_id=gcp_conn_id, impersonation_chain=impersonation_chain)
        self.role = role

    @property
    def endpoint(self) -> str | None:
        """Return the endpoint that replaces the public one, if any."""
        return self._get_field("tpu_api_endpoint") or None

    @property
    def is_insecure(self) -> bool:
        """Return whether the endpoint takes no TLS and no credentials: an emulator."""
        # Forms and environment variables turn it into a string.
        return str(self._get_field("tpu_insecure", False)).strip().lower() in ("true", "1", "yes")

    def backend(self, project_id: str | None = None) -> TpuBackend:
        """Return this process's backend for the connection.

        :param project_id: None: the connection's project.
        """
        project = project_id or self.project_id
        chain = self.impersonation_chain
        identity = chain if isinstance(chain, str) or chain is None else tuple(chain)
        key = (os.getpid(), self.gcp_conn_id, identity, self.role, self.endpoint, project)
        if key not in _backends:
            _backends[key] = self.new_backend(project)
        return _backends[key]

    def new_backend(self, project_id: str) -> TpuBackend:
        """Return a backend with a channel of its own; the caller closes it."""
        from tpu_lifecycle.service import connecting

        if self.is_insecure:
            return connecting.connect(
                project_id=project_id, endpoint=self.endpoint, insecure=True, role=self.role
            )
        return connecting.connect(
            project_id=project_id,
            credentials=self.get_credentials(),
            client_options=self.get_client_options(api_endpoint_override=self.endpoint),
            role=self.role,
        )

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the API answers and a message, for the button in the connection form."""
        from pipeline_config import load_preset
        from pipeline_config.settings import load_settings
        from tpu_lifecycle.service import connecting
        from tpu_lifecycle.service.backend import TpuError

        zone = load_preset(load_settings().preset).tpu.zones[0]
        try:
            found = self.backend().list_zone(zone, {})
        except TpuError as error:
            return False, str(error)
        return True, f"The {connecting.facts().title} answers: {len(found)} TPU(s) in {zone}."
