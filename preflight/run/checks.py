"""All checks before a run that need to read files or ask the cloud.

Rules on the configuration alone are in :mod:`pipeline_config.rules`. Two pitfalls need no check
because they cannot occur: data and trainer cannot disagree on lengths, as both read one
configuration; and no model is evaluated on text that it was trained on, as a document's side of the
split follows from a hash of its content.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping

from corpus.text.inputs import match_inputs
from model_registry import attempts
from pipeline_config import PipelineConfig, RentalConfig
from pipeline_config.unquoted import fault
from pipeline_store import uris
from pipeline_store.formats import FormatError, PartitionManifest, ShardManifest
from pipeline_store.layout import StoreLayout
from preflight.bucket import rights_finding
from preflight.estimates.auto_steps import decide
from preflight.estimates.sizes import prepared
from preflight.findings import Finding, Row, problems
from preflight.places import (
    dataflow_finding,
    region_finding,
    store_finding,
    temporary_place_finding,
)
from preflight.run.disk import disk_problems, vm_disk_problems
from preflight.run.lineage import (
    document_problems,
    general_problems,
    pattern_problems,
    start_problems,
    vocabulary_problems,
)
from trained_models.decided_steps import RowCounts
from trained_models.errors import UserError


def passes_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line if the steps pass over the partition more often than ``training.max_passes``.

    Also if the partition, or a budget, is too small for the fewest steps of auto. Only certain
    problems are reported: the partition is prepared, its files have not changed since, and no other
    partition joins it. Otherwise the plan, which counts all rows, refuses the run.
    """
    if _others_may_join(config, store):
        return
    manifest = prepared(config, partition, store)
    if manifest is None or not manifest.training_rows:
        return
    # With replayed rows fewer rows of a batch are new, so this gives the fewest possible passes for
    # these steps, and the most steps of auto.
    rows = RowCounts(manifest.training_rows, replayed=1)
    try:
        decide(config, rows, store)
    except UserError as error:
        if _is_as_prepared(manifest, config, partition, store):
            yield str(error)


def _others_may_join(config: PipelineConfig, store: StoreLayout) -> bool:
    if config.training.partitions != "left_out":
        return config.training.partitions == "unseen"
    try:
        return bool(attempts.left_out(store.lineage(config.model.lineage_id)))
    except FormatError:  # reported by another check
        return True


def _is_as_prepared(
    manifest: PartitionManifest, config: PipelineConfig, partition: str, store: StoreLayout
) -> bool:
    """Return whether the files still have the names and sizes with which they were prepared."""
    shards = [ShardManifest.load(store.resolve(uri)) for uri in manifest.shards]
    before = sorted((shard.input_uri, shard.input_bytes) for shard in shards)
    files = match_inputs(config.corpus.input_pattern, partition, store)
    return sorted((uri, uris.size(uri)) for uri in files) == before


logger = logging.getLogger(__name__)

_ROOMS = ("corpus", "model_registry", "pipeline_config", "pipeline_store", "trained_models")
_SERVICES = ("google", "gcsfs", "aiohttp", "requests")


def check(
    config: PipelineConfig,
    store: StoreLayout,
    partition: str,
    *,
    location: Callable[[str], str | None] = uris.location,
) -> list[str]:
    """Return one line for every reason why a run cannot succeed; empty if there is none.

    :param config: valid in itself, as :func:`pipeline_config.with_overrides` returns it.
    :param partition: the partition to train on.
    :param location: returns the location of a URI's storage, such as ``US-CENTRAL1``.
    """
    checks: dict[str, Callable[[], Iterable[str]]] = {
        "corpus.input_pattern": lambda: _text_problems(config, partition, store),
        "corpus.document": lambda: document_problems(config, store),
        "vocabulary.uri": lambda: vocabulary_problems(config, store),
        "model.lineage_id": lambda: start_problems(config, store),
        "evaluation.general_partition": lambda: general_problems(config, store),
        "evaluation.pattern": lambda: pattern_problems(config, store),
        "training.train_steps": lambda: passes_problems(config, partition, store),
        "promotion.probe_tasks": lambda: _probe_problems(config, store),
        **common_checks(config, store, location),
    }
    return run_checks(store, checks)


def _probe_problems(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield why a labeled task cannot be prepared, as far as quick checks can tell."""
    # Imported lazily: it needs libraries that would slow the parsing of a DAG file.
    from beam_jobs.labelled.description import check_task

    for task in config.promotion.probe_tasks:
        yield from (f"promotion.probe_tasks: {line}" for line in check_task(store, task))


def common_checks(
    config: RentalConfig, store: StoreLayout, location: Callable[[str], str | None]
) -> dict[str, Callable[[], Iterable[str]]]:
    """Return the checks for runs of all kinds, by the setting that they are about."""
    settings = PipelineConfig(beam=config.beam, tpu=config.tpu, budget=config.budget)
    return {
        "beam.runner": lambda: _lines("beam.runner", dataflow_finding(settings, store)),
        "beam.temp_location": lambda: _temporary_problems(settings, location),
        "tpu.zones": lambda: _lines("tpu.zones", region_finding(config.tpu, store, location)),
    }


def run_checks(store: StoreLayout, checks: Mapping[str, Callable[[], Iterable[str]]]) -> list[str]:
    """Return the lines of all checks; if the store itself fails, only of its checks.

    :param checks: by the setting that they are about; each returns a line for every problem.
    """
    # If the store is unusable, checks of stored files would only repeat the reason.
    found = _lines("store", rights_finding(store.root)) or _lines("store", store_finding(store))
    if found:
        return found
    for setting, find in checks.items():
        try:
            found += find()
        except Exception as error:  # noqa: BLE001 - no check, no spending
            where = "".join(traceback.format_tb(error.__traceback__))
            logger.error("The check of %s failed, %s:\n%s", setting, _told(error), where)
            found.append(f"{setting}: could not be checked ({_told(error)}).")
    return [" ".join(line.split()) for line in found]


def _told(error: Exception) -> str:
    """Return an error's message, if it cannot quote a file's content; else its type.

    Our own errors quote no content, nor do those of the system and of services. Other libraries
    may, on an unexpected file.
    """
    kind = type(error)
    is_ours_or_a_services = kind.__module__.partition(".")[0] in {*_ROOMS, *_SERVICES}
    if is_ours_or_a_services or isinstance(error, OSError):
        return f"{kind.__name__}: {error}"
    return fault(error)


def _lines(setting: str, finding: Finding | None) -> list[str]:
    return [] if finding is None else problems([Row(setting, finding)])


def _text_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    # Imported lazily: they need libraries that would slow the parsing of a DAG file.
    from preflight.run.inputs import field_problems, input_problems

    found = list(input_problems(config, partition, store))
    # Input without text has no fields to check and no size to estimate.
    yield from found or (
        *field_problems(config, partition, store),
        *disk_problems(config, partition, store),
        *vm_disk_problems(config, partition, store),
    )


def _temporary_problems(
    config: PipelineConfig, location: Callable[[str], str | None]
) -> Iterator[str]:
    beam = config.beam
    if beam.runner == "DataflowRunner" and beam.temp_location is not None:
        yield from _lines("beam.temp_location", rights_finding(beam.temp_location))
        yield from _lines("beam.temp_location", temporary_place_finding(config, location))
