"""Makes a pass of the mirror to the Hugging Face Hub, which adds what the Hub is missing.

In each lineage's repository, ``main`` is the version in use, and each version has a tag. State
between passes is kept only on the Hub itself.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from model_registry import versions
from pipeline_config.settings import hub_repository, load_settings
from pipeline_mirror.hub_folder import HubFolder, is_exported, read_folder
from pipeline_mirror.models import readable_versions
from pipeline_mirror.passes import Report, store_label
from pipeline_store.formats import ModelVersion, ProductionPointer
from pipeline_store.layout import StoreLayout

if TYPE_CHECKING:
    from pipeline_mirror.hub_server import HubRepository, HubServer

log = logging.getLogger(__name__)


@dataclass
class HubReport(Report):
    """The results of a pass.

    :ivar tried: in a dry run, one line per lineage on what its repository would contain.
    """

    tried: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a summary of the pass in one line."""
        return "; ".join([*self.tried, super().__str__()])


def mirror_to_hub(store: StoreLayout, token: str, endpoint: str | None = None) -> HubReport:
    """Make a pass.

    :param token: access token of the Hub; empty: a dry run, which contacts no server.
    :param endpoint: the Hub's address; None: that of ``HF_ENDPOINT``, or the Hub's default.
    :raises ConfigError: the environment names no repositories.
    :raises ImportError: ``huggingface_hub`` is not installed here.
    :raises ServerAwayError: the Hub is unavailable, or became so.
    """
    report = HubReport()
    names = {one: hub_repository(one) for one in versions.lineage_ids(store)}
    label = store_label(store)
    if label is None:
        return report
    server = _server(token, label, endpoint)
    for lineage_id, name in names.items():
        with report.collected(f"lineage {lineage_id}"):
            _Line(store, report, lineage_id, name, label).mirror(server)
    return report


def write_version(store: StoreLayout, lineage_id: str, version_id: str, folder: Path) -> HubFolder:
    """Write a version's repository into an empty folder of this machine, to look at or to push.

    :raises RegistryError: there is no such version.
    :raises MirrorError: it was not exported.
    :raises FormatError: a file of it is damaged.
    """
    lineage = store.lineage(lineage_id)
    found = read_folder(
        lineage,
        versions.load_version(lineage, version_id),
        repository=hub_repository(lineage_id),
        label=store_label(store) or "",
        license_id=load_settings().hub_license,
    )
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty. Name a new folder: what is in it stays there.")
    found.write(folder)
    return found


def _server(token: str, label: str, endpoint: str | None) -> HubServer | None:
    try:
        from pipeline_mirror.hub_server import HubServer
    except ImportError as error:
        raise ImportError(
            f"{error}. The mirror needs huggingface_hub: install requirements-hub.txt where it "
            "runs."
        ) from error
    return HubServer(token, label, endpoint) if token else None


class _Line:
    """One lineage, in the store and on the Hub."""

    def __init__(
        self, store: StoreLayout, report: HubReport, lineage_id: str, name: str, label: str
    ) -> None:
        self._report = report
        self._lineage = store.lineage(lineage_id)
        self._name, self._label = name, label
        self._license = load_settings().hub_license

    def mirror(self, server: HubServer | None) -> None:
        """Put the version in use on ``main``, and add versions that have no tag."""
        stored = {one.uri.split("/")[-2] for one in versions.list_commits(self._lineage)}
        pointer = ProductionPointer.load_or_none(self._lineage.production)
        if not stored:
            return
        if server is None:
            self._look(pointer, stored)
            return
        repository = server.open(self._name)
        if pointer is not None and pointer.version_id != repository.in_use:
            # First; if it fails, the others are added all the same.
            with self._report.collected(f"version {pointer.version_id} of {self._name}"):
                self._put_in_use(server, repository, pointer)
        for model in self._models(stored - repository.tags):
            with self._report.collected(f"version {model.version_id} of {self._name}"):
                self._add(server, repository, model)

    def _models(self, wanted: set[str]) -> list[ModelVersion]:
        """Return versions that can be repositories, oldest first."""
        found = readable_versions(self._lineage, wanted, self._report, self._name)
        return [model for model in found if is_exported(model)]

    def _put_in_use(
        self, server: HubServer, repository: HubRepository, pointer: ProductionPointer
    ) -> None:
        version_id = pointer.version_id
        model = versions.load_version(self._lineage, version_id)
        again = " again" if pointer.rolled_back and version_id in repository.tags else ""
        with tempfile.TemporaryDirectory() as scratch:
            paths = self._folder(model).write(Path(scratch))
            title = f"{version_id} is in use{again}"
            server.put_in_use(repository, Path(scratch), paths, title=title, reason=pointer.reason)
            self._report.moved[self._name] = version_id
            if version_id not in repository.tags:
                server.add_version(repository, Path(scratch), paths, version_id)
                self._report.versions.append(version_id)

    def _add(self, server: HubServer, repository: HubRepository, model: ModelVersion) -> None:
        if model.version_id in repository.tags:
            return
        with tempfile.TemporaryDirectory() as scratch:
            paths = self._folder(model).write(Path(scratch))
            server.add_version(repository, Path(scratch), paths, model.version_id)
        self._report.versions.append(model.version_id)

    def _look(self, pointer: ProductionPointer | None, stored: set[str]) -> None:
        """Render the repository of the version in use, and report what it would contain."""
        if pointer is None:
            return
        model = versions.load_version(self._lineage, pointer.version_id)
        folder = self._folder(model)
        files = len(folder.copied) + len(folder.written)
        self._report.tried.append(
            f"dry run, as there is no token: {self._name} would hold {pointer.version_id} on main, "
            f"{files} files of {folder.bytes:,} bytes, and {len(stored)} version(s) as tags"
        )

    def _folder(self, model: ModelVersion) -> HubFolder:
        return read_folder(
            self._lineage,
            model,
            repository=self._name,
            label=self._label,
            license_id=self._license,
        )
