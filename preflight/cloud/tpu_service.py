"""Checks with the TPU service whether it can serve a run's requests at all.

Capacity cannot be checked: the API has no call that reads the capacity of a zone. The create task
deals with a lack of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline_config import PipelineConfig
from preflight.findings import Finding, Row, failed, not_checked, ok, warning
from tpu_lifecycle.service import connecting
from tpu_lifecycle.service.backend import (
    ServiceFacts,
    TpuBackend,
    TpuError,
    TpuPermissionError,
)
from trained_models.flops import PEAK_FLOPS_PER_CHIP

_NAMED = 5


@dataclass
class Offer:
    """The TPU service's answers about the zones in ``tpu.zones``."""

    facts: ServiceFacts
    """Constant facts about the service."""
    known: list[str] = field(default_factory=list)
    """All zones of the project; empty if the account may not list them, which no run needs."""
    refused: dict[str, TpuError] = field(default_factory=dict)
    """Zones in which the account may not list TPUs."""
    types: dict[str, list[str]] = field(default_factory=dict)
    """Accelerator types by zone; empty where the account may not list them; no run needs that."""
    images: dict[str, list[str]] = field(default_factory=dict)
    """Runtime versions by zone; as above."""
    untold: list[str] = field(default_factory=list)
    """Requests that the account may not make, with the service's messages."""
    away: TpuError | None = None
    """Why the service did not answer, so that types and images are not known."""


def tpu_rows(config: PipelineConfig, offer: Offer) -> list[Row]:
    """Return the findings of the checks of the TPU service.

    A service that does not answer is no reason to refuse, because the create task has its own
    retries and timeout for that.
    """
    return [
        Row("tpu.zones", zones_finding(config, offer)),
        Row("tpu.accelerator_type", type_finding(config, offer)),
        Row("tpu.runtime_version", image_finding(config, offer)),
    ]


def read_offer(config: PipelineConfig, backend: TpuBackend) -> Offer:
    """Query the service's zones, and the types and images in the configured ones."""
    offer = Offer(connecting.facts())
    try:
        offer.known = _ask(offer, "the names in tpu.zones", backend.zones)
        zones = [zone for zone in config.tpu.zones if not offer.known or zone in offer.known]
        usable = [zone for zone in zones if _may_look(offer, backend, zone)]
        types = {z: _ask(offer, f"types of {z}", backend.accelerator_types, z) for z in usable}
        images = {z: _ask(offer, f"images of {z}", backend.runtime_versions, z) for z in usable}
    except TpuError as error:
        offer.away = error
    else:
        offer.types, offer.images = types, images
    return offer


def zones_finding(config: PipelineConfig, offer: Offer) -> Finding:
    """Check that each zone exists, and that the run's teardown could list its TPUs."""
    lines, fix = [], ""
    for zone in config.tpu.zones:
        if offer.known and zone not in offer.known:
            lines.append(f"there is no zone {zone}{_instead(zone, offer.known)}.")
            fix = f"{offer.facts.list_zones}, and name zones of it in tpu.zones"
    if offer.refused:
        names, first = ", ".join(offer.refused), next(iter(offer.refused.values()))
        lines.append(f"the service shows no TPUs of {names}: {first}")
        fix = fix or f"give the account {offer.facts.role} in the project"
    if lines:
        return failed(" ".join(lines), fix)
    if offer.away is not None:
        return _away(offer.away)
    if not offer.known:
        return warning("; ".join(f"not checked: {words}" for words in offer.untold))
    return ok(", ".join(config.tpu.zones))


def type_finding(config: PipelineConfig, offer: Offer) -> Finding:
    """Check that some zone offers the accelerator type."""
    command = offer.facts.list_types.format(zone=config.tpu.zones[0])
    return _offered(
        "tpu.accelerator_type", config.tpu.accelerator_type, offer, offer.types, command
    )


def image_finding(config: PipelineConfig, offer: Offer) -> Finding:
    """Check that some zone offers the software image, and that it is for these chips."""
    tpu = config.tpu
    family = tpu.accelerator_type.rpartition("-")[0]
    families = offer.facts.image_families
    wanted = families.get(tpu.runtime_version, family)
    # For an unknown accelerator type, the type itself is the problem.
    if family in PEAK_FLOPS_PER_CHIP and wanted != family:
        right = next((image for image, chip in families.items() if chip == family), None)
        return failed(
            f"{tpu.runtime_version} boots on {wanted} TPUs only, but tpu.accelerator_type is "
            f"{tpu.accelerator_type}.",
            f"--set tpu.runtime_version={right}" if right else "use an image for that generation",
        )
    command = offer.facts.list_images.format(zone=tpu.zones[0])
    return _offered("tpu.runtime_version", tpu.runtime_version, offer, offer.images, command)


def _may_look(offer: Offer, backend: TpuBackend, zone: str) -> bool:
    try:
        backend.list_zone(zone, {})
    except TpuError as error:
        if error.retryable and not isinstance(error, TpuPermissionError):
            raise
        offer.refused[zone] = error
        return False
    return True


def _ask(offer: Offer, what: str, ask: Callable[..., list[str]], *arguments: str) -> list[str]:
    try:
        return ask(*arguments)
    except TpuError as error:
        if error.retryable and not isinstance(error, TpuPermissionError):
            raise
        offer.untold.append(f"{what}: {error}")
        return []


def _offered(
    setting: str, wanted: str, offer: Offer, offers: dict[str, list[str]], command: str
) -> Finding:
    """Compare a wanted name with what the zones offer; one zone that has it suffices."""
    if offer.away is not None:
        return _away(offer.away)
    told = {zone: names for zone, names in offers.items() if names}
    if not told:
        return not_checked("; ".join(offer.untold) or "no zone could be looked into")
    without = [zone for zone, names in told.items() if wanted not in names]
    if not without:
        return ok(f"{wanted} in {', '.join(told)}")
    names = sorted({name for zone in without for name in told[zone]})
    line = f"{', '.join(without)} does not offer {wanted}{_instead(wanted, names)}."
    if len(without) == len(offers):
        return failed(line, f"{command}, and name one of it in {setting}, or other tpu.zones")
    return warning(f"{line} The run goes on in the other tpu.zones.")


def _away(error: TpuError) -> Finding:
    return not_checked(f"the TPU service does not answer: {error}")


def _instead(wanted: str, names: list[str]) -> str:
    """Return the end of a sentence with the names most similar to the wanted one."""
    close = difflib.get_close_matches(wanted, names, _NAMED, 0.5) or names[:_NAMED]
    return f"; there is {', '.join(close)}" if close else ""
