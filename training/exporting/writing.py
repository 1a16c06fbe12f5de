"""Writes a model in several formats and commits them together by one file that names them."""

from __future__ import annotations

import logging
import tempfile
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pipeline_store import uris
from pipeline_store.formats import (
    ClassifierCheck,
    ExportCheck,
    ExportedFormat,
    FileDigest,
    ModelExports,
    TextCheck,
)
from pipeline_store.layout import ExportsLayout
from trained_models import artifacts
from trained_models.commit import CommitGuard
from trained_models.errors import UserError

log = logging.getLogger("training")

HUGGING_FACE, SAVED_MODEL = "hugging_face", "saved_model"


class FormatWriter(Protocol):
    """A writer of one model in several formats."""

    @property
    def files_sha256(self) -> str:
        """Return the hash of its files, as :attr:`trained_models.artifacts.ModelFiles.sha256`."""
        ...

    def reason_against(self, name: str) -> str | None:
        """Return why a format cannot hold this model, or None."""
        ...

    def write(self, name: str, folder: Path) -> ExportCheck | ClassifierCheck | TextCheck:
        """Write one format into a new folder and check it.

        :raises BadDataError: the written files do not reproduce the model.
        """
        ...


def committed(
    layout: ExportsLayout, files_sha256: str, formats: Sequence[str]
) -> ModelExports | None:
    """Return the existing exports, verified; None: there are none.

    :param files_sha256: required hash of their model.
    :param formats: required formats.
    :raises UserError: they are of another model, or in other formats.
    :raises FormatError: one of their files does not verify.
    """
    exports = ModelExports.load_or_none(layout.record)
    if exports is None:
        return None
    _require_same(exports, layout, files_sha256, formats)
    for exported in exports.formats.values():
        artifacts.verify_files(uris.join(layout.root, exported.folder), exported.files)
    log.info("%s exists, and the files it names are as they were written.", layout.record)
    return exports


def _require_same(
    exports: ModelExports, layout: ExportsLayout, files_sha256: str, formats: Sequence[str]
) -> None:
    found = sorted(exports.formats | exports.left_out)
    problems = []
    if exports.files_sha256 != files_sha256:
        problems.append(f"the model is {exports.files_sha256} there and {files_sha256} here")
    if found != sorted(formats):
        problems.append(f"formats are {found} there and {sorted(formats)} here")
    if problems:
        raise UserError(
            f"{layout.record} exists and is of something else: {'; '.join(problems)}. Give what it "
            "was made of, or another --output."
        )


def export(
    writer: FormatWriter,
    formats: Sequence[str],
    layout: ExportsLayout,
    guard: CommitGuard,
    *,
    dry_run: bool,
) -> ModelExports:
    """Write and upload formats, then commit them by one file; return the committed exports.

    :param layout: target folder.
    :param dry_run: write and check on this machine only.
    :raises BadDataError: a written format does not reproduce the model; nothing is committed.
    """
    reasons = {name: writer.reason_against(name) for name in formats}
    left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    for name, reason in left_out.items():
        log.warning("%s is left out: %s.", name, reason)
    with tempfile.TemporaryDirectory() as scratch:
        # All are checked before the first byte is uploaded.
        checks = {
            name: writer.write(name, Path(scratch, name))
            for name in formats
            if name not in left_out
        }
        unique, written = uuid.uuid4().hex[:12], {}
        for name, check in checks.items():
            target = layout.format_files(unique, name)
            files = upload(Path(scratch, name), None if dry_run else target)
            folder = target.removeprefix(f"{layout.root}/")
            written[name] = ExportedFormat(folder=folder, files=files, check=check)
    exports = ModelExports(
        files_sha256=writer.files_sha256,
        formats=written,
        left_out=left_out,
        created=datetime.now(UTC),
    )
    if dry_run:
        return exports
    guard.check()
    if not exports.create(layout.record):
        exports = ModelExports.load(layout.record)
    _sweep(layout, exports)
    log.info("Committed: %s.", layout.record)
    return exports


def upload(folder: Path, target: str | None) -> list[FileDigest]:
    """Return the digests of a folder's files; upload them if there is a target."""
    digests = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        sha256 = uris.sha256(str(path))
        digests.append(FileDigest(path=name, bytes=path.stat().st_size, sha256=sha256))
        if target is not None:
            uris.upload(str(path), uris.join(target, name))
    return digests


def _sweep(layout: ExportsLayout, exports: ModelExports) -> None:
    """Delete the files of other attempts: nothing will ever refer to them."""
    kept = [uris.join(layout.root, format_.folder, "") for format_ in exports.formats.values()]
    for uri in uris.list_files(layout.root):
        if uri != layout.record and not uri.startswith(tuple(kept)):
            uris.delete(uri)


def summary(exports: ModelExports, layout: ExportsLayout) -> dict[str, Any]:
    """Return the summary of exports that a command prints."""
    written = {
        name: {
            "folder": uris.join(layout.root, exported.folder),
            "bytes": sum(file.bytes for file in exported.files),
            **exported.check.model_dump(),
        }
        for name, exported in exports.formats.items()
    }
    return {"exports": layout.record, **written, "left_out": exports.left_out}
