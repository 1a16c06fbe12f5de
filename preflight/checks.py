"""All checks before a run that have to look at files or at the cloud.

Rules that need the configuration alone are in :mod:`pipeline_config.rules`. Two traps need no check
because they cannot occur: data and trainer cannot disagree on lengths, as both read one
configuration; and no model is evaluated on what it was trained on, as a document's side of the
split follows from a hash of its content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.bucket import rights_finding
from preflight.disk import disk_problems
from preflight.findings import Finding, Row, problems
from preflight.lineage import general_problems, start_problems, vocabulary_problems
from preflight.places import (
    dataflow_finding,
    region_finding,
    store_finding,
    temporary_place_finding,
)

logger = logging.getLogger(__name__)


def check(
    config: PipelineConfig,
    store: StoreLayout,
    partition: str,
    *,
    location: Callable[[str], str | None] = uris.location,
) -> list[str]:
    """Return one line for every reason why a run cannot succeed; empty when nothing was found.

    :param config: sound by itself, as :func:`pipeline_config.with_overrides` returns it.
    :param partition: the partition to train on.
    :param location: tells where a URI's storage is, such as ``US-CENTRAL1``.
    """
    # If nothing can be stored, looking for what is stored only repeats the reason.
    found = _lines("store", rights_finding(store.root)) or _lines("store", store_finding(store))
    if found:
        return found
    checks: dict[str, Callable[[], Iterable[str]]] = {
        "corpus.input_pattern": lambda: _text_problems(config, partition, store),
        "vocabulary.uri": lambda: vocabulary_problems(config, store),
        "model.lineage_id": lambda: start_problems(config, store),
        "evaluation.general_partition": lambda: general_problems(config, store),
        "beam.runner": lambda: _lines("beam.runner", dataflow_finding(config, store)),
        "beam.temp_location": lambda: _temporary_problems(config, location),
        "tpu.zones": lambda: _lines("tpu.zones", region_finding(config.tpu.zones, store, location)),
    }
    for setting, find in checks.items():
        try:
            found += find()
        except Exception as error:  # a check that cannot be made is a reason not to spend
            logger.exception("The check of %s failed", setting)
            found.append(f"{setting}: could not be checked ({type(error).__name__}: {error}).")
    return [" ".join(line.split()) for line in found]


def _lines(setting: str, finding: Finding | None) -> list[str]:
    return [] if finding is None else problems([Row(setting, finding)])


def _text_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    # Imported when it is needed: they need libraries that would slow the parsing of a DAG file.
    from preflight.fields import field_problems
    from preflight.inputs import input_problems

    found = list(input_problems(config, partition, store))
    # Whatever has no text has no size either.
    yield from found or (
        *field_problems(config, partition, store),
        *disk_problems(config, partition, store),
    )


def _temporary_problems(
    config: PipelineConfig, location: Callable[[str], str | None]
) -> Iterator[str]:
    beam = config.beam
    if beam.runner == "DataflowRunner" and beam.temp_location is not None:
        yield from _lines("beam.temp_location", rights_finding(beam.temp_location))
        yield from _lines("beam.temp_location", temporary_place_finding(config, location))
