"""The repository's revision that an image is built from, and bills of materials of images.

The latter list an image's contents in CycloneDX format.
"""

from __future__ import annotations

import os
import tomllib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from verification.container_images.catalogue import REPOSITORY
from verification.container_images.commands import run
from verification.container_images.contents import Package

_NAMESPACES = {"pypi": None, "deb": "debian"}


@dataclass(frozen=True)
class Revision:
    """A state of the repository, in terms of OCI's image labels."""

    version: str
    revision: str
    """The commit, with ``-dirty`` if files differ from it."""
    epoch: int
    """Time of the commit, or ``SOURCE_DATE_EPOCH``, in seconds since 1970."""

    @property
    def created(self) -> datetime:
        """The same time, in UTC."""
        return datetime.fromtimestamp(self.epoch, UTC)

    @property
    def arguments(self) -> dict[str, str]:
        """The build arguments that every Dockerfile writes into its labels."""
        return {
            "VERSION": self.version,
            "REVISION": self.revision,
            "CREATED": self.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


def current_revision() -> Revision:
    """Return the state of this repository.

    :raises ImageError: this is no git repository.
    """
    commit, seconds = run(["git", "log", "-1", "--format=%H %ct"], cwd=REPOSITORY).split()
    changed = run(["git", "status", "--porcelain"], cwd=REPOSITORY)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return Revision(
        version=project["version"],
        revision=f"{commit}-dirty" if changed else commit,
        epoch=int(os.environ.get("SOURCE_DATE_EPOCH", seconds)),
    )


def bill_of_materials(name: str, revision: Revision, packages: Iterable[Package]) -> str:
    """Return an image's bill of materials as CycloneDX 1.6 JSON, reproducibly."""
    packages = sorted(packages)
    image = Component(
        name=name,
        version=revision.version,
        type=ComponentType.CONTAINER,
        bom_ref=name,
        purl=PackageURL("oci", None, name, revision.revision),
    )
    components = [_component(package) for package in packages]
    identity = f"{name} {revision} {packages}"
    bill = Bom(components=components, serial_number=uuid.uuid5(uuid.NAMESPACE_OID, identity))
    bill.metadata.component = image
    bill.metadata.timestamp = revision.created
    bill.register_dependency(image, components)
    return str(JsonV1Dot6(bill).output_as_string(indent=2))


def _component(package: Package) -> Component:
    url = PackageURL(package.kind, _NAMESPACES[package.kind], package.name, package.version)
    licenses = [LicenseFactory().make_from_string(package.license)] if package.license else []
    return Component(
        name=package.name,
        version=package.version,
        purl=url,
        bom_ref=url.to_string(),
        licenses=licenses,
    )
