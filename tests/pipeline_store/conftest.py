"""On a directory and a double of Cloud Storage, or with ``--bucket`` on a real bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline_store.bad_network import bad_network
from tests.pipeline_store.stores import bucket_store, cloud_storage

__all__ = ["bad_network", "bucket_store", "cloud_storage"]


@pytest.fixture
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the root URI of an empty store of each kind, or of that in ``--bucket`` alone."""
    if request.param == "directory":
        return str(tmp_path / "store")
    return str(request.getfixturevalue("bucket_store"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bucket", "the bucket that the contract of the store is checked in")
    group.addoption(
        "--bucket",
        metavar="gs://BUCKET/PREFIX",
        help="a folder below it is made and deleted again; without it a double is asked",
    )
    group.addoption(
        "--emulator",
        action="store_true",
        help="the bucket is an emulator's: leave out ifGenerationMatch and matchGlob, which they "
        "do not know",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "beyond_emulators: needs ifGenerationMatch or matchGlob")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # The options are unknown when all tests of the repository run.
    if "any_store" in metafunc.fixturenames:
        bucket = metafunc.config.getoption("--bucket", None)
        kinds = ["bucket"] if bucket else ["directory", "gs"]
        metafunc.parametrize("any_store", kinds, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--emulator", default=False):
        return
    left_out = [item for item in items if item.get_closest_marker("beyond_emulators")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
