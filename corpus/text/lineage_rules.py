"""The rules that a lineage's first partition sets for later ones: documents, and their split."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from corpus.errors import UserError
from pipeline_config import PipelineConfig
from pipeline_config.data_schema import CorpusConfig
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, SplitUnit
from pipeline_store.layout import LineageLayout

_PARALLEL_READS = 16


def load_manifests(lineage: LineageLayout) -> dict[str, PartitionManifest]:
    """Return the manifests of all partitions of a lineage, by URI, in its order."""
    found = sorted(uri for uri in uris.list_files(lineage.partitions) if uri.endswith(".json"))
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return dict(zip(found, pool.map(PartitionManifest.load, found), strict=True))


def kept_unit(
    config: PipelineConfig, manifests: Iterable[PartitionManifest], partition: str | None
) -> SplitUnit | None:
    """Return the unit that a lineage's documents are split by; None: it has no partition yet.

    ``evaluation.general_partition`` is not trained on, so it decides nothing for the others: if it
    is one long file, it would put their paragraphs on both sides.

    :param manifests: the manifests of the lineage.
    :param partition: the partition that the unit is for; None: not known.
    :raises UserError: its documents were made, or split, by another rule than the settings ask for.
    """
    unit: SplitUnit | None = None
    general = config.evaluation.general_partition
    for manifest in manifests:
        if general is not None and manifest.partition == general != partition:
            continue
        unit = manifest.split_by
        before = manifest.settings.get("corpus", {})
        _refuse_other_documents(config, manifest, before)
        _refuse_other_unit(config, manifest, before)
    return unit


def _refuse_other_documents(
    config: PipelineConfig, manifest: PartitionManifest, before: dict[str, Any]
) -> None:
    # Settings that change nothing are not in a manifest.
    rule = CorpusConfig(document=before.get("document", "auto")).documents_of_text
    if rule == config.corpus.documents_of_text:
        return
    made = f"corpus.document={rule}" if "document" in before else "corpus.document=auto"
    raise _refusal(
        config,
        manifest,
        f"corpus.document: {config.corpus.document} is asked for, but",
        f"was prepared with {made}. The same text would be other documents, and what is held out "
        "could have been trained on.",
    )


def _refuse_other_unit(
    config: PipelineConfig, manifest: PartitionManifest, before: dict[str, Any]
) -> None:
    corpus, unit = config.corpus, manifest.split_by
    if corpus.split_by not in ("auto", unit):
        asked = f"corpus.split_by: {corpus.split_by} is asked for"
        raise _refusal(config, manifest, f"{asked}, but", f"is split by {unit}.")
    if unit != "document" and corpus.duplicates == "keep":
        asked = "corpus.duplicates: keep is asked for"
        why = f"is split by {unit}, of which copies could then be on both sides."
        raise _refusal(config, manifest, f"{asked}, but", why)
    if unit != "group":
        return
    for name in ("group_field", "validation_fraction"):
        asked, was = getattr(corpus, name), before.get(name)
        if asked != was:
            words = "another one" if name == "group_field" else f"{was}"
            raise _refusal(
                config,
                manifest,
                f"corpus.{name}: {asked} is asked for, but",
                f"was split into groups with {words}; documents of one group would be on both "
                "sides.",
            )


def _refusal(
    config: PipelineConfig, manifest: PartitionManifest, asked: str, why: str
) -> UserError:
    return UserError(
        f"{asked} partition {manifest.partition} of lineage {config.model.lineage_id!r} {why} Keep "
        "it, or use a new model.lineage_id."
    )
