"""Writes the report on a partition's data: one HTML page, made from its manifests alone.

python -m beam_jobs.report --store /data/store --manifest URI [--output FILE]
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jinja2

from beam_jobs.cli import run_cli
from beam_jobs.reports.content import ReportContent
from beam_jobs.reports.plots import bar_chart
from corpus.errors import UserError
from pipeline_config.command_line import command_parser
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, ShardManifest
from pipeline_store.layout import LineageLayout, StoreLayout

_PARALLEL_READS = 16
_TEMPLATES = Path(__file__).parent / "reports" / "templates"


def write_report(
    manifest: PartitionManifest, manifest_uri: str, store: StoreLayout, lineage: LineageLayout
) -> str:
    """Write the page beside the manifest, replacing an older one; return its URI.

    :param manifest_uri: URI of the manifest; the page is named after it.
    :raises UserError: a shard that the manifest names is missing.
    """
    uri = lineage.data_report(manifest.partition, _manifest_id(manifest_uri))
    uris.write(uri, render(manifest, manifest_uri, store).encode())
    return uri


def render(manifest: PartitionManifest, manifest_uri: str, store: StoreLayout) -> str:
    """Return the page as self-contained HTML.

    :raises UserError: a shard that the manifest names is missing.
    """
    shard_uris = [store.resolve(uri) for uri in manifest.shards]
    content = ReportContent(
        manifest=manifest,
        manifest_id=_manifest_id(manifest_uri),
        manifest_uri=manifest_uri,
        shards=list(zip(shard_uris, _read_shards(shard_uris), strict=True)),
    )
    return _template().render(content=content, bar_chart=bar_chart)


def _manifest_id(manifest_uri: str) -> str:
    return manifest_uri.rpartition("/")[2].removesuffix(".json")


def _read_shards(shard_uris: Sequence[str]) -> Iterator[ShardManifest]:
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        try:
            yield from pool.map(ShardManifest.load, shard_uris)
        except FileNotFoundError as error:
            raise UserError(f"{error} is named by the partition's manifest, but gone.") from error


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": _count, "percent": _percent}
    return environment.get_template("report.html")


def _count(number: int) -> str:
    return f"{number:,}"


def _percent(share: float | None) -> str:
    """Return a share as a percentage, with more digits near 0 and 1; None is a share of nothing."""
    if share is None:
        return "-"
    if 0 < share < 0.0001:
        return "<0.01%"
    return f"{share:.2%}" if 0 < share < 0.0995 or 0.9905 < share < 1 else f"{share:.1%}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    options = _parser().parse_args(argv)

    def job() -> dict[str, str]:
        manifest_uri = uris.absolute(options.manifest)
        store = StoreLayout(uris.absolute(options.store))
        try:
            manifest = PartitionManifest.load(manifest_uri)
        except FileNotFoundError as error:
            raise UserError(f"--manifest: {options.manifest} does not exist.") from error
        if options.output is None:
            lineage = store.lineage(manifest.lineage_id)
            return {"report": write_report(manifest, manifest_uri, store, lineage)}
        output = uris.absolute(options.output)
        uris.write(output, render(manifest, manifest_uri, store).encode())
        return {"report": output}

    return run_cli("report", job)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("beam_jobs.report", __doc__)
    parser.add_argument("--store", metavar="URI", required=True, help="a directory or gs:// URI")
    parser.add_argument(
        "--manifest",
        metavar="URI",
        required=True,
        help="the partition's manifest, as prepare_corpus prints it",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="default: beside the manifest, with the end .html"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
