"""The image that all others begin with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verification.container_images.builder import Builder
from verification.container_images.commands import ImageError, run

LOCAL_TAG = "localhost/debian-base"
RELEASE = "bookworm"
# What Debian's own slim images leave out.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


@dataclass(frozen=True)
class Base:
    """An image to begin with, and whether it is the one that the Dockerfiles name."""

    tag: str
    from_registry: bool


def get_base(builder: Builder, named: str, folder: Path) -> Base:
    """Return the named image, or one of the same Debian release made from Debian's packages.

    :param folder: for the made image's files, while it is made.
    :raises ImageError: neither can be had.
    """
    if builder.has(LOCAL_TAG):  # of an earlier run with --keep
        return Base(LOCAL_TAG, from_registry=False)
    try:
        builder.pull(named)
    except ImageError as error:
        reason = str(error).splitlines()[-1]
        print(f"{named} cannot be had; the base is made of Debian's packages. {reason}", flush=True)
    else:
        return Base(named, from_registry=True)
    archive = folder / "base.tar"
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    run(["mmdebstrap", "--variant=minbase", *options, RELEASE, archive])
    builder.make_base(archive, LOCAL_TAG)
    archive.unlink()
    return Base(LOCAL_TAG, from_registry=False)
