"""Makes the complete repository of a model version for the Hugging Face Hub.

Its files are those of the version's export for ``transformers``, with a new card: the one in the
store names addresses that only the store's own users can reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline_mirror.errors import MirrorError
from pipeline_store import uris
from pipeline_store.formats import FileDigest, FormatError, ModelVersion
from pipeline_store.layout import LineageLayout, VersionLayout
from trained_models.artifacts import fetch_file

FORMAT = "hugging_face"
"""The export whose files a repository contains, by its name in ``promotion.export_formats``."""

CARD, MARK = "README.md", "repretraining.json"
"""Files in a repository besides the export; by the second one the mirror recognizes its own."""


@dataclass(frozen=True)
class HubFolder:
    """The content of a version's repository.

    :param source: folder of the export in the store.
    :param copied: files of the export, with paths relative to it.
    :param written: content, by path, of files that the store does not have in this form.
    """

    version_id: str
    source: str
    copied: list[FileDigest]
    written: dict[str, bytes]

    @property
    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.bytes for file in self.copied) + sum(map(len, self.written.values()))

    def write(self, folder: Path) -> list[str]:
        """Write the files into a local folder and verify each copy; return their paths.

        :raises FormatError: a file differs from the published one.
        """
        for file in self.copied:
            # Also refuses a path that would leave the folder.
            fetch_file(
                uris.join(self.source, file.path), file, Path(uris.join(str(folder), file.path))
            )
        for path, data in self.written.items():
            (folder / path).write_bytes(data)
        return sorted([*(file.path for file in self.copied), *self.written])


def is_exported(model: ModelVersion) -> bool:
    """Return whether a version can be a repository, that is, has the export for it."""
    return any(True for _ in _exported(model))


def read_folder(
    lineage: LineageLayout, model: ModelVersion, *, repository: str, label: str, license_id: str
) -> HubFolder:
    """Return the content of a version's repository; weights are read only when it is written.

    :param repository: its name on the Hub.
    :param label: identifies the store among others.
    :param license_id: the Hub's id of the license; empty: the card names none.
    :raises MirrorError: the version was not exported.
    :raises FormatError: one of its documents is damaged.
    :raises ImportError: ``huggingface_hub`` is not installed here.
    """
    from pipeline_mirror import hub_card

    place = VersionLayout(lineage.version(model.version_id))
    files = list(_exported(model))
    if not files:
        raise MirrorError(
            f"Version {model.version_id} has no files for transformers: {FORMAT!r} is not in the "
            "promotion.export_formats of its run, or that export was left out, as its model card "
            "says. Have the next version exported."
        )
    source = place.format(FORMAT)
    texts = {file.path: file for file in files if file.path == CARD}
    exported = _read(source, texts[CARD]) if CARD in texts else ""
    card = hub_card.render(place, model, exported, repository=repository, license_id=license_id)
    mark = {"store": label, "lineage": model.lineage_id, "version": model.version_id}
    return HubFolder(
        version_id=model.version_id,
        source=source,
        copied=[file for file in files if file.path not in (CARD, MARK)],
        written={CARD: card.encode(), MARK: (json.dumps(mark, indent=2) + "\n").encode()},
    )


def _exported(model: ModelVersion) -> Iterator[FileDigest]:
    for file in model.files:
        folder, _, path = file.path.partition("/")
        if folder == FORMAT and path:
            yield file.model_copy(update={"path": path})


def _read(folder: str, file: FileDigest) -> str:
    uri = uris.join(folder, file.path)
    data = uris.read(uri)
    if FileDigest.of(file.path, data) != file:
        raise FormatError(f"{uri} is damaged: it has other content than was published.")
    return data.decode()
