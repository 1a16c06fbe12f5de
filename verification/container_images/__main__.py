"""Builds the images of docker/ one after the other, audits and tests them.

    python -m verification.container_images [--only bert-trainer] [--keep]

Needs buildah, podman, runc and mmdebstrap (scripts/need-buildah), and root. Each image leaves
NAME.cdx.json, its bill of materials, and logs in the folder. The last line is a summary in JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_config.command_line import command_parser
from verification.container_images.audit import audit
from verification.container_images.builder import Base, Builder, get_base
from verification.container_images.catalogue import IMAGES, REPOSITORY, Image, default_argument
from verification.container_images.commands import ImageError
from verification.container_images.contents import debian_packages, python_packages
from verification.container_images.registry_access import RegistryAccess, lend_access
from verification.container_images.revision import Revision, bill_of_materials, current_revision
from verification.container_images.smoke import Smoke

MB = 1_000_000


@dataclass
class Summary:
    """The content of the last line."""

    images_built: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    sizes_mb: dict[str, int] = field(default_factory=dict)
    """Sizes of the images' files, base included, in 10^6 bytes."""
    smoke: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, int] = field(default_factory=dict)
    base: str = ""
    base_from_registry: bool = False

    @property
    def smoke_ok(self) -> bool:
        """Whether every built image passed its smoke test."""
        return bool(self.images_built) and set(self.smoke) == set(self.images_built)

    def line(self) -> str:
        """Return the summary as JSON."""
        return json.dumps(vars(self) | {"smoke_ok": self.smoke_ok})


@dataclass(frozen=True)
class Workshop:
    """Everything that is shared by the images of a run."""

    builder: Builder
    base: Base
    access: RegistryAccess
    revision: Revision
    output: Path
    summary: Summary

    def build(self, image: Image) -> str:
        """Build an image, measure, list and audit its contents; return its tag."""
        tag = f"localhost/{image.name}"
        began = time.monotonic()
        self.builder.build(
            image.path,
            tag,
            arguments={"BASE": self.base.tag, **image.arguments, **self.revision.arguments},
            secrets=self.access.files,
            epoch=self.revision.epoch,
            target=None if self.base.from_registry else image.offline_target,
            log=self.output / f"{image.name}.log",
        )
        self.summary.images_built.append(image.name)
        self.summary.seconds[image.name] = round(time.monotonic() - began)
        with self.builder.files(tag) as root:
            self.summary.sizes_mb[image.name] = _bytes(root) // MB
            packages = [*python_packages(root), *debian_packages(root)]
            bill = bill_of_materials(image.name, self.revision, packages)
            (self.output / f"{image.name}.cdx.json").write_text(bill)
            self.summary.problems += audit(
                image,
                root,
                self.builder.describe(tag),
                revision=self.revision,
                private=self.access.private,
            )
        return tag


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    builder = Builder(options.output.resolve() / "storage", options.storage_driver)
    summary = Summary()
    try:
        with tempfile.TemporaryDirectory(prefix="images-") as name:
            _build_and_try(options, builder, Path(name), summary)
    except ImageError as error:
        summary.problems.append(str(error))
    except KeyboardInterrupt:
        summary.problems.append("interrupted")
    finally:
        if not options.keep:
            builder.remove_all()
    for problem in summary.problems:
        print(problem, file=sys.stderr)
    print(summary.line())
    return 1 if summary.problems or not summary.smoke_ok else 0


def _build_and_try(
    options: argparse.Namespace, builder: Builder, folder: Path, summary: Summary
) -> None:
    images = [image for image in IMAGES if not options.only or image.name in options.only]
    named = default_argument(images[0].path, "BASE")
    base = get_base(builder, named, folder)
    summary.base, summary.base_from_registry = base.tag, base.from_registry
    workshop = Workshop(
        builder, base, lend_access(folder), current_revision(), options.output, summary
    )
    smoke = Smoke.prepare(builder, folder)
    for image in images:
        try:
            tag = workshop.build(image)
            size, seconds = summary.sizes_mb[image.name], summary.seconds[image.name]
            print(f"{image.name}: {size} MB, built in {seconds} s", flush=True)
            summary.smoke[image.name] = smoke.run(image, tag)
            print(f"{image.name}: {summary.smoke[image.name]}", flush=True)
        except ImageError as error:
            summary.problems.append(str(error))


def _bytes(root: Path) -> int:
    """Return the total size of an image's files in bytes."""
    return sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "verification.container_images",
        __doc__,
        epilog="exit codes: 0 all built and tried, 1 anything else, with a line for each reason",
    )
    names = [image.name for image in IMAGES]
    parser.add_argument(
        "--only", action="append", choices=names, help="this image; give it again for more"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=REPOSITORY / ".local" / "images",
        help="folder for bills of materials, logs and what buildah stores (default: %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the images, in buildah's storage")
    parser.add_argument(
        "--storage-driver",
        default="overlay",
        choices=("overlay", "vfs"),
        help="vfs where no overlay can be mounted; it needs 40 GB (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
