"""All checks before a run that have to look at files or at the cloud.

Rules that need the configuration alone are in :mod:`pipeline_config.rules`. Two traps need no check
because they cannot occur: data and trainer cannot disagree on lengths, as both read one
configuration; and no model is evaluated on what it was trained on, as a document's side of the
split follows from a hash of its content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.bucket import rights_problems
from preflight.disk import disk_problems
from preflight.lineage import general_problems, start_problems, vocabulary_problems
from preflight.places import dataflow_problems, region_problems, store_problems

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
    if problems := list(rights_problems("store", store.root)) or list(store_problems(store)):
        return problems
    checks: dict[str, Callable[[], Iterator[str]]] = {
        "corpus.input_pattern": lambda: _text_problems(config, partition, store),
        "vocabulary.uri": lambda: vocabulary_problems(config, store),
        "model.lineage_id": lambda: start_problems(config, store),
        "evaluation.general_partition": lambda: general_problems(config, store),
        "beam.runner": lambda: dataflow_problems(config, store, location),
        "beam.temp_location": lambda: _temporary_problems(config),
        "tpu.zones": lambda: region_problems(config.tpu.zones, store, location),
    }
    for setting, find in checks.items():
        try:
            problems += find()
        except Exception as error:  # a check that cannot be made is a reason not to spend
            logger.exception("The check of %s failed", setting)
            problems.append(f"{setting}: could not be checked ({type(error).__name__}: {error}).")
    return [" ".join(line.split()) for line in problems]


def _text_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    # Imported when it is needed: they need libraries that would slow the parsing of a DAG file.
    from preflight.fields import field_problems
    from preflight.inputs import input_problems

    problems = list(input_problems(config, partition, store))
    # Whatever has no text has no size either.
    yield from problems or (
        *field_problems(config, partition, store),
        *disk_problems(config, partition, store),
    )


def _temporary_problems(config: PipelineConfig) -> Iterator[str]:
    beam = config.beam
    if beam.runner == "DataflowRunner" and beam.temp_location is not None:
        yield from rights_problems("beam.temp_location", beam.temp_location)
