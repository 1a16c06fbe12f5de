"""Asks the TPU service, before anything is spent, whether it can serve a run's requests at all.

What it cannot tell, nobody can check: the API has no call that reads a quota or the capacity of a
zone, and none that says whether an account may create a TPU. Those are met by the create task.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator

from pipeline_config import PipelineConfig
from pipeline_config.peaks import PEAK_FLOPS_PER_CHIP
from tpu_lifecycle.backend import TpuBackend, TpuError

logger = logging.getLogger(__name__)

_NAMED = 5
# Images of one generation: https://cloud.google.com/tpu/docs/runtimes. Others boot on several, and
# a zone lists those of all its generations together.
_FAMILIES = {
    "v2-alpha-tpuv5-lite": "v5litepod",
    "v2-alpha-tpuv5": "v5p",
    "v2-alpha-tpuv6e": "v6e",
}


def cloud_problems(config: PipelineConfig, backend: TpuBackend) -> list[str]:
    """Return one line for every reason why the TPU service will refuse the run; often none.

    A zone that is not there, or in which the account may not look at TPUs, is a reason, as the
    run's teardown looks in every zone. What only some of the zones offer is none: the others can
    serve the run. That is logged as a warning, and so is a service that does not answer, because
    the create task waits for it with a patience of its own.
    """
    problems = list(_image_problems(config))
    zones, refused = [], {}
    try:
        known = _known_zones(backend)
        for zone in config.tpu.zones:
            if known and zone not in known:
                problems.append(f"tpu.zones: there is no zone {zone}{_instead(zone, known)}.")
                continue
            try:
                backend.list_zone(zone, {})
            except TpuError as error:
                if error.retryable:
                    raise
                refused[zone] = error
            else:
                zones.append(zone)
        types = {zone: _offered(backend.accelerator_types, zone) for zone in zones}
        images = {zone: _offered(backend.runtime_versions, zone) for zone in zones}
    except TpuError as error:
        logger.warning(
            "CLOUD CHECK: the TPU service does not answer, so what it offers in %s was not "
            "checked: %s",
            ", ".join(config.tpu.zones),
            error,
        )
        types, images = {}, {}
    if refused:
        names, first = ", ".join(refused), next(iter(refused.values()))
        problems.append(f"tpu.zones: the service shows no TPUs of {names}: {first}")
    problems += _not_offered("tpu.accelerator_type", config.tpu.accelerator_type, types)
    problems += _not_offered("tpu.runtime_version", config.tpu.runtime_version, images)
    return [" ".join(line.split()) for line in problems]


def _image_problems(config: PipelineConfig) -> Iterator[str]:
    """Yield a line when the software image is that of another generation of TPU."""
    tpu = config.tpu
    family = tpu.accelerator_type.rpartition("-")[0]
    wanted = _FAMILIES.get(tpu.runtime_version, family)
    # Of a type that nobody knows, the type is what is wrong.
    if family in PEAK_FLOPS_PER_CHIP and wanted != family:
        right = next((image for image, chip in _FAMILIES.items() if chip == family), None)
        yield (
            f"tpu.runtime_version: {tpu.runtime_version} boots on {wanted} TPUs only, but "
            f"tpu.accelerator_type is {tpu.accelerator_type}; use "
            f"{right or 'an image for that generation'}."
        )


def _known_zones(backend: TpuBackend) -> list[str]:
    """Return the project's zones; none when the account may not ask, as no run needs to."""
    try:
        return backend.zones()
    except TpuError as error:
        if error.retryable:
            raise
        logger.warning("CLOUD CHECK: the names in tpu.zones were not checked: %s", error)
        return []


def _offered(ask: Callable[[str], list[str]], zone: str) -> list[str]:
    """Return what a zone offers; nothing when the account may not ask, as no run needs to."""
    try:
        return ask(zone)
    except TpuError as error:
        if error.retryable:
            raise
        logger.warning("CLOUD CHECK: what %s offers was not checked: %s", zone, error)
        return []


def _not_offered(setting: str, wanted: str, offers: dict[str, list[str]]) -> Iterator[str]:
    """Yield a line when no zone offers what is wanted; log one when only some of them do."""
    told = {zone: offered for zone, offered in offers.items() if offered}
    without = [zone for zone, offered in told.items() if wanted not in offered]
    if not without:
        return
    names = sorted({name for zone in without for name in told[zone]})
    line = f"{setting}: {', '.join(without)} does not offer {wanted}{_instead(wanted, names)}"
    if len(without) == len(offers):
        yield f"{line}. Use that, or other tpu.zones."
    else:
        logger.warning("CLOUD CHECK: %s. The run goes on in the other tpu.zones.", line)


def _instead(wanted: str, names: list[str]) -> str:
    """Return, as the end of a sentence, which of the names are most like the wanted one."""
    close = difflib.get_close_matches(wanted, names, _NAMED, 0.5) or names[:_NAMED]
    return f"; there is {', '.join(close)}" if close else ""
