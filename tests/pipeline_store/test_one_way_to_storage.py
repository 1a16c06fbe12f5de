"""Nothing reads or writes the store but through ``pipeline_store.uris``, by reading the sources.

Libraries that bring files of their own get folders of this machine, which the exceptions below copy
from and to the store through ``uris``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WAYS_AROUND = (
    "airflow.io",
    "airflow.providers.google.cloud.hooks.gcs",
    "airflow.providers.google.cloud.operators.gcs",
    "airflow.providers.google.cloud.transfers",
    "airflow.sdk.ObjectStoragePath",
    "airflow.sdk.io",
    "apache_beam.io",
    "boto3",
    "fsspec",
    "gcsfs",
    "google.cloud.storage",
    "official.core.input_reader",
    "tensorflow.data.FixedLengthRecordDataset",
    "tensorflow.data.TFRecordDataset",
    "tensorflow.data.TextLineDataset",
    "tensorflow.io.TFRecordWriter",
    "tensorflow.io.gfile",
    "tensorflow.io.read_file",
    "tensorflow.io.write_file",
    "tensorflow.profiler.experimental",
    "tensorflow.saved_model",
    "tensorflow.summary",
    "tensorflow.train.Checkpoint",
    "tensorflow.train.CheckpointManager",
    "tensorflow.train.load_checkpoint",
)
"""Names by which a library would read or write files, or buckets, itself."""

EXCEPTIONS = {
    "pipeline_store/gcs.py": {"google.cloud.storage"},  # what uris is made of
    "preflight/bucket.py": {"google.cloud.storage"},  # asks for rights, touches no object
    # Tensors from a folder that `trained_models.artifacts` has fetched and verified, or to one
    # from which
    # `trained_models.checkpoint_store` uploads.
    "training/model/checkpoints.py": {
        "tensorflow.train.Checkpoint",
        "tensorflow.train.load_checkpoint",
    },
    "training/importing/tensorflow_checkpoints.py": {"tensorflow.train.load_checkpoint"},
    # Written to a folder of this machine and uploaded file by file.
    "training/exporting/saved_model.py": {"tensorflow.saved_model"},
    "training/exporting/checks.py": {"tensorflow.saved_model"},
    "training/finetuning/exporting/checks.py": {"tensorflow.saved_model"},
    "training/finetuning/exporting/functions.py": {"tensorflow.saved_model"},
    "training/finetuning/exporting/served.py": {"tensorflow.saved_model"},
    "training/compression/tflite.py": {"tensorflow.saved_model"},
    "training/compression/written.py": {"tensorflow.train.load_checkpoint"},
    "training/serve_check.py": {"tensorflow.saved_model"},
    "training/text_to_text/exporter.py": {"tensorflow.saved_model"},
    "training/text_to_text/saved_model.py": {"tensorflow.saved_model"},
    "training/reporting/events.py": {"tensorflow.summary"},
    "training/runtime/profiling.py": {"tensorflow.profiler.experimental"},
    # What others do, to compare with: files of this machine.
    "verification/benchmarks/data/peers/count_tokens.py": {"tensorflow.data.TFRecordDataset"},
    "verification/benchmarks/train/sides/tensorflow_side.py": {"tensorflow.profiler.experimental"},
}
"""Who uses one of them all the same."""

KNOW_SCHEMES = {
    "verification/container_images/registry_access.py",  # of package indexes
    "pipeline_config/settings.py",  # whether a folder has to be there
    "pipeline_store/gcs.py",
    "pipeline_store/local.py",
    "pipeline_store/uris.py",
    "plugins/alerting/channels.py",  # of a webhook's address
    "plugins/operators/mirror.py",  # of the Hub's address
}
_LOOKING = {"endswith", "partition", "removeprefix", "rpartition", "split", "startswith"}


def sources() -> list[str]:
    paths = (path.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/*.py"))
    return sorted(str(path) for path in paths if path.parts[0] != "tests")


def imported_as(tree: ast.AST) -> dict[str, str]:
    """Return the full name that each imported name of a module stands for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import a.b` binds a.
                bound = alias.asname or alias.name.partition(".")[0]
                found[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def names_used(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of everything that a module imports or reaches through an import."""
    imported = imported_as(tree)
    yield from imported.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        parts: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name) and inner.id in imported:
            yield ".".join([imported[inner.id], *parts])


# Each source is asked two things.
@cache
def parsed(text: str) -> ast.AST:
    return ast.parse(text)


def ways_around(text: str) -> set[str]:
    used = set(names_used(parsed(text)))
    return {
        way
        for way in WAYS_AROUND
        if any(name == way or name.startswith(f"{way}.") for name in used)
    }


def looks_at_schemes(text: str) -> list[int]:
    """Return the lines at which a module takes a string apart by its scheme."""
    lines = []
    for node in ast.walk(parsed(text)):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            operands = node.args if node.func.attr in _LOOKING else []
        elif isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        constants = (o.value for o in operands if isinstance(o, ast.Constant))
        if any(isinstance(value, str) and "://" in value for value in constants):
            lines.append(node.lineno)
    return lines


def test_modules_reach_the_store_through_uris_only() -> None:
    texts = {path: (ROOT / path).read_text() for path in sources()}
    assert len(texts) > 300, "these are not all sources"
    # Equal and not less: an exception that nobody needs any more goes.
    assert {path: used for path, text in texts.items() if (used := ways_around(text))} == EXCEPTIONS


def test_modules_leave_schemes_to_uris() -> None:
    looking = {path for path in sources() if looks_at_schemes((ROOT / path).read_text())}
    assert looking <= KNOW_SCHEMES


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("from google.cloud import storage", "google.cloud.storage"),
        ("import google.cloud.storage as s", "google.cloud.storage"),
        ("import tensorflow as tf\ntf.io.gfile.exists('x')", "tensorflow.io.gfile"),
        ("from tensorflow.io import gfile", "tensorflow.io.gfile"),
        ("import tensorflow\ntensorflow.io.gfile.GFile('x')", "tensorflow.io.gfile"),
        ("def f():\n    import fsspec", "fsspec"),
        ("import apache_beam as beam\nbeam.io.ReadFromText('x')", "apache_beam.io"),
        ("from airflow.sdk import ObjectStoragePath as P", "airflow.sdk.ObjectStoragePath"),
    ],
)
def test_a_way_around_is_found_however_it_is_spelled(text: str, way: str) -> None:
    assert ways_around(text) == {way}


@pytest.mark.parametrize(
    "text", ["u.startswith('gs://')", "'://' in u", "u.removeprefix('file://')", "u == 'gs://b'"]
)
def test_looking_at_a_scheme_is_found(text: str) -> None:
    assert looks_at_schemes(text) == [1]
