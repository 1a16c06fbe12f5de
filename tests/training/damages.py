"""Ways in which a checkpoint can be damaged after it was committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline_store.formats import CheckpointManifest
from pipeline_store.layout import RunLayout


def weights_file(run: RunLayout, step: int, suffix: str) -> Path:
    """Return a checkpoint's file of tensors (``.data``) or of their places (``.index``)."""
    manifest = CheckpointManifest.load(run.training.checkpoint(step))
    (file,) = [file for file in manifest.files if suffix in file.path]
    return Path(run.training.root, file.path)


def flip(path: Path) -> None:
    """Change one bit in the middle; do it again to repair it."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def flip_a_byte(run: RunLayout, step: int) -> None:
    """Keep the size of the tensors, not the content."""
    flip(weights_file(run, step, ".data"))


def truncate(run: RunLayout, step: int) -> None:
    """Leave half of the tensors."""
    path = weights_file(run, step, ".data")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove_a_file(run: RunLayout, step: int) -> None:
    """Leave a manifest that names a file which is not there."""
    weights_file(run, step, ".index").unlink()


def garble_the_manifest(run: RunLayout, step: int) -> None:
    """Leave the beginning of some JSON."""
    Path(run.training.checkpoint(step)).write_bytes(b'{"format"')


def date_the_manifest_later(run: RunLayout, step: int) -> None:
    """Have a program of the future write it."""
    path = Path(run.training.checkpoint(step))
    path.write_bytes(path.read_bytes().replace(b'_version": 1', b'_version": 9'))


def exchange_the_manifest(run: RunLayout, step: int) -> None:
    """Put the manifest of another run in its place: other settings, and files that are not here."""
    uri = run.training.checkpoint(step)
    manifest = CheckpointManifest.load(uri)
    name = f"{step:010d}-0a1b2c3d"
    files = [
        file.model_copy(update={"path": f"attempts/other/{name}/{Path(file.path).name}"})
        for file in manifest.files
    ]
    other = {"prefix": f"attempts/other/{name}/weights", "files": files, "config_sha256": "1" * 64}
    manifest.model_copy(update=other).write(uri)


DAMAGES: dict[str, Callable[[RunLayout, int], None]] = {
    "a byte of the tensors": flip_a_byte,
    "tensors cut short": truncate,
    "no index": remove_a_file,
    "manifest cut short": garble_the_manifest,
    "manifest of the future": date_the_manifest_later,
    "manifest of another run": exchange_the_manifest,
}
