"""Builds and runs images with buildah and podman, in a separate storage folder.

All are built on one base image.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verification.container_images.catalogue import REPOSITORY
from verification.container_images.commands import ImageError, run, run_long

# The tools' default limits cannot be set without CAP_SYS_RESOURCE, which a container often lacks.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
NEVER_STORED = ("--network", "none", "--read-only", "--tmpfs", "/tmp:rw,mode=1777")  # noqa: S108
LOCAL_TAG = "localhost/debian-base"
RELEASE = "bookworm"
# Files that Debian's own slim images omit.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


@dataclass(frozen=True)
class Builder:
    """buildah and podman with one exclusive storage folder."""

    folder: Path
    driver: str
    """``overlay``, or ``vfs`` where the kernel does not allow mounting an overlay."""

    def _with(self, program: str, *options: str) -> list[str]:
        storage = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        return [program, *storage, "--storage-driver", self.driver, *options]

    def pull(self, image: str) -> None:
        """Fetch an image from its registry.

        :raises ImageError: it cannot be fetched.
        """
        run(self._with("buildah", "pull", "--quiet", image))

    def has(self, image: str) -> bool:
        """Return whether an image is stored."""
        try:
            self.describe(image)
        except ImageError:
            return False
        return True

    def make_base(self, archive: Path, tag: str) -> None:
        """Make an image from a root file system."""
        run(self._with("podman", "import", "--quiet", str(archive), tag))

    def build(
        self,
        dockerfile: Path,
        tag: str,
        *,
        arguments: Mapping[str, str],
        secrets: Mapping[str, Path],
        epoch: int,
        target: str | None,
        log: Path,
    ) -> None:
        """Build an image of the repository.

        :param epoch: time to set for the image and all of its files.
        :raises ImageError: a step fails.
        """
        # No user or network namespace: creating one may not be permitted here.
        options = ["build", "--isolation", "chroot", "--timestamp", str(epoch)]
        for name, value in arguments.items():
            options += ["--build-arg", f"{name}={value}"]
        for name, path in secrets.items():
            options += ["--secret", f"id={name},src={path}"]
        if target is not None:
            options += ["--target", target]
        options += ["--tag", tag, "--file", str(dockerfile), str(REPOSITORY)]
        run_long(self._with("buildah", *options), log)

    def describe(self, tag: str) -> dict[str, Any]:
        """Return an image's configuration and history in OCI format."""
        described = json.loads(run(self._with("buildah", "inspect", "--type", "image", tag)))
        return dict(described["OCIv1"])

    @contextlib.contextmanager
    def files(self, tag: str) -> Iterator[Path]:
        """Mount an image and yield the root of its files; changes are discarded."""
        container = run(self._with("buildah", "from", "--pull-never", tag)).strip()
        try:
            yield Path(run(self._with("buildah", "mount", container)).strip())
        finally:
            run(self._with("buildah", "rm", container))

    def start(
        self,
        tag: str,
        arguments: Sequence[str],
        *,
        folders: Mapping[Path, str] | None = None,
        environment: Mapping[str, str] | None = None,
        entry_point: Sequence[str] = (),
        workdir: str | None = None,
        log: Path,
    ) -> str:
        """Run a container without a network to its end; return its output.

        It may write only below /tmp and into the given folders.

        :param folders: folders of this machine, with their mount points: ``/code:ro``.
        :param entry_point: replaces the image's own.
        :raises ImageError: it ends with a status other than 0.
        """
        options = ["--runtime", "runc", "run", "--rm", "--pull", "never", *LIMITS, *NEVER_STORED]
        for folder, place in (folders or {}).items():
            options += ["--volume", f"{folder}:{place}"]
        for name, value in (environment or {}).items():
            options += ["--env", f"{name}={value}"]
        if entry_point:
            options += ["--entrypoint", json.dumps(list(entry_point))]
        if workdir is not None:
            options += ["--workdir", workdir]
        return run(self._with("podman", *options, tag, *arguments), log=log)

    def remove(self, tag: str) -> None:
        """Remove an image, with layers that no other image uses."""
        run(self._with("buildah", "rmi", "--force", tag))

    def remove_all(self) -> None:
        """Remove everything that is stored."""
        if not self.folder.exists():
            return
        run(self._with("podman", "rm", "--all", "--force"))
        run(self._with("buildah", "rmi", "--all", "--force"))
        shutil.rmtree(self.folder)


@dataclass(frozen=True)
class Base:
    """A base image, and whether it is the one that the Dockerfiles name."""

    tag: str
    from_registry: bool


def get_base(builder: Builder, named: str, folder: Path) -> Base:
    """Return the named image, or one of the same Debian release made from Debian's packages.

    :param folder: temporary folder for making the image.
    :raises ImageError: neither is available.
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
