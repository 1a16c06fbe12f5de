"""The input of all cloud checks: a configuration, and the project and services to run it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from pipeline_config import PipelineConfig
from pipeline_config.accelerators import region_of
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.cloud.apis import GoogleApis
from preflight.cloud.tpu_service import Offer, read_offer
from tpu_lifecycle.service.backend import TpuBackend


@dataclass(frozen=True)
class Site:
    """One configuration in one project.

    :param find_backend: returns the TPU service; raises ``GoogleAuthError`` without credentials.
    :param location: returns the location of a URI's storage; None if it is unknown.
    """

    config: PipelineConfig
    store: StoreLayout
    apis: GoogleApis
    find_backend: Callable[[], TpuBackend]
    location: Callable[[str], str | None] = uris.location

    @property
    def project_id(self) -> str:
        """Return the Google Cloud project."""
        return self.apis.project_id

    @property
    def uses_dataflow(self) -> bool:
        """Return whether the data job runs on Dataflow."""
        return self.config.beam.runner == "DataflowRunner"

    @property
    def regions(self) -> list[str]:
        """Return the regions of ``tpu.zones``, each once."""
        return list(dict.fromkeys(region_of(zone) for zone in self.config.tpu.zones))

    @functools.cached_property
    def offer(self) -> Offer:
        """Return what the TPU service offers; queried once for all checks."""
        return read_offer(self.config, self.find_backend())
