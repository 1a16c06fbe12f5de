"""Selects the TPU service, which all other code knows only as a :class:`TpuBackend`."""

from __future__ import annotations

from typing import Any

from tpu_lifecycle.service.backend import ServiceFacts, TpuBackend
from tpu_lifecycle.service.cloud_facts import FACTS


def facts() -> ServiceFacts:
    """Return the constant facts about the service."""
    return FACTS


def connect(
    *,
    project_id: str,
    endpoint: str | None = None,
    insecure: bool = False,
    credentials: Any = None,
    client_options: Any = None,
    role: str = "task",
) -> TpuBackend:
    """Return the TPU service of a project, with a connection of its own.

    :param endpoint: other than the service's own address, such as ``unix:/run/tpu/api.sock``.
    :param insecure: no TLS and no credentials: an emulator. Needs ``endpoint``.
    :param credentials: None: those of the environment.
    :param client_options: of Google's client libraries; they have precedence over ``endpoint``.
    :param role: calling part of this program, such as ``teardown``, for the service's logs.
    """
    # Imported late: the client library is slow to load.
    from tpu_lifecycle.service import cloud_tpu

    return cloud_tpu.connect(
        project_id=project_id,
        endpoint=endpoint,
        insecure=insecure,
        credentials=credentials,
        client_options=client_options,
        role=role,
    )
