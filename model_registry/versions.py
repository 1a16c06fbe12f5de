"""Reads and verifies published model versions."""

from __future__ import annotations

from collections.abc import Callable

from model_registry.errors import DamagedVersionError, RegistryError
from pipeline_store import uris
from pipeline_store.details import Listing
from pipeline_store.formats import FileDigest, ModelVersion
from pipeline_store.layout import LineageLayout, StoreLayout, VersionLayout


def load_version(lineage: LineageLayout, version_id: str) -> ModelVersion:
    """Return a version's record.

    :raises RegistryError: there is no such version in the lineage.
    :raises FormatError: its record is damaged.
    """
    uri = lineage.model(version_id)
    model = ModelVersion.load_or_none(uri)
    if model is None and uris.exists(lineage.pruned_version(version_id)):
        raise RegistryError(
            f"Model version {version_id!r} was removed by retention, see "
            f"{lineage.pruned_version(version_id)}. `python -m model_registry list` shows those "
            "that are left."
        )
    if model is None:
        raise RegistryError(
            f"Model version {version_id!r} does not exist: there is no {uri}. "
            "`python -m model_registry list` shows those that do."
        )
    if model.version_id != version_id or not lineage.root.endswith(f"/{model.lineage_id}"):
        raise RegistryError(
            f"{uri} describes version {model.version_id} of lineage {model.lineage_id}: the folder "
            "was copied or renamed. Restore it; versions are never moved."
        )
    return model


def lineage_ids(store: StoreLayout) -> list[str]:
    """Return the lineages that have a vocabulary, which each has before its first model."""
    pattern = uris.join(store.lineages, "*")
    path = LineageLayout(pattern).vocabulary_info.removeprefix(f"{pattern}/")
    folder, _, name = path.rpartition("/")
    found = uris.list_named(store.lineages, name, below=folder)
    return sorted(one.uri.split("/")[-3] for one in found)


def list_commits(lineage: LineageLayout) -> Listing:
    """Return a listing of every version's ``model.json`` in a lineage, and of no other file."""
    return uris.list_named(lineage.versions, "model.json")


def list_versions(lineage: LineageLayout) -> list[ModelVersion]:
    """Return every version of a lineage, oldest first; unfinished ones do not count."""
    found = [load_version(lineage, details.uri.split("/")[-2]) for details in list_commits(lineage)]
    return sorted(found, key=lambda model: (model.created, model.version_id))


def manifests(lineage: LineageLayout, model: ModelVersion) -> dict[str, str]:
    """Return the URI of the PartitionManifest of every partition that a version has seen."""
    copies = VersionLayout(lineage.version(model.version_id))
    return {
        partition: uris.join(lineage.root, model.manifests[partition].path)
        if partition in model.manifests
        else copies.manifest(partition)
        for partition in model.partitions_seen
    }


def verified_manifests(lineage: LineageLayout, model: ModelVersion) -> dict[str, str]:
    """Return the result of :func:`manifests`, after comparing the files with the version's record.

    :raises DamagedVersionError: manifests are missing or changed; all of them are named.
    """
    folder = lineage.version(model.version_id)
    found = manifests(lineage, model)
    wanted = {uris.join(folder, file.path): file for file in model.files}
    problems = [
        f"manifests/{partition}.json is not in its record"
        for partition, uri in found.items()
        if partition not in model.manifests and uri not in wanted
    ]
    copies = [wanted[uri] for uri in found.values() if uri in wanted]
    problems += _problems(lineage, model, copies, _damage)
    if problems:
        raise DamagedVersionError(folder, problems)
    return found


def verify(lineage: LineageLayout, version_id: str) -> ModelVersion:
    """Read every byte of a version and compare it with the version's record.

    :raises RegistryError: there is no such version.
    :raises DamagedVersionError: files are missing or changed; all of them are named.
    """
    model = load_version(lineage, version_id)
    if problems := _problems(lineage, model, model.files, _damage):
        raise DamagedVersionError(lineage.version(version_id), problems)
    return model


def require_files(lineage: LineageLayout, model: ModelVersion) -> None:
    """Check that every file of a version exists in its full size, without reading it.

    :raises DamagedVersionError: files are missing or have another size.
    """
    if problems := _problems(lineage, model, model.files, _misfit):
        raise DamagedVersionError(lineage.version(model.version_id), problems)


def _problems(
    lineage: LineageLayout,
    model: ModelVersion,
    files: list[FileDigest],
    find: Callable[[str, FileDigest], str | None],
) -> list[str]:
    """Return what is wrong with some files of a version and with the manifests that it names."""
    places = [(lineage.version(model.version_id), file) for file in files]
    places += [(lineage.root, file) for file in model.manifests.values()]
    return [line for folder, file in places if (line := find(folder, file)) is not None]


def _misfit(folder: str, file: FileDigest) -> str | None:
    uri = uris.join(folder, file.path)
    if not uris.exists(uri):
        return f"{file.path} is missing"
    if (size := uris.size(uri)) != file.bytes:
        return f"{file.path} has {size} bytes instead of {file.bytes}"
    return None


def _damage(folder: str, file: FileDigest) -> str | None:
    if (line := _misfit(folder, file)) is not None:
        return line
    if uris.sha256(uris.join(folder, file.path)) != file.sha256:
        return f"{file.path} has other content than was published"
    return None
