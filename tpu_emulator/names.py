"""Resource names: `projects/P/locations/Z` and what lives below it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import grpc

from tpu_emulator import catalog
from tpu_emulator.errors import ApiError, invalid_argument

_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)(?:/([A-Za-z]+)/([^/]+))?")

_ZONE = re.compile(r"/locations/([^/]+)")


@dataclass(frozen=True)
class Location:
    """A zone of the project, the parent of nodes, queued resources and operations."""

    project: str
    zone: str

    def __str__(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    def child(self, collection: str, resource_id: str) -> str:
        """The full name of a resource in this location."""
        return f"{self}/{collection}/{resource_id}"


def split(name: str) -> tuple[Location, str]:
    """The location and the last part of a name this emulator built itself."""
    _, project, _, zone, _, resource_id = name.split("/")
    return Location(project, zone), resource_id


def zone_of(name: str) -> str:
    """The zone in a name from a request; empty when it has none."""
    match = _ZONE.search(name)
    return match[1] if match else ""


class Names:
    """Parses the names in requests, for the one project that the emulator serves."""

    def __init__(self, project: str) -> None:
        self._project = project

    def location(self, value: str) -> Location:
        """Parses `projects/P/locations/Z`.

        Raises:
            ApiError: INVALID_ARGUMENT for another shape, PERMISSION_DENIED for a project that is
                not served or a zone that does not exist (the API does not tell which it is).
        """
        match = _NAME.fullmatch(value)
        if match is None or match[3]:
            raise invalid_argument(
                f"Invalid parent {value!r}: expected projects/<project>/locations/<zone>"
            )
        return self._checked(match)

    def resource(self, value: str, collection: str) -> str:
        """Checks `projects/P/locations/Z/<collection>/<id>` and returns it.

        Raises:
            ApiError: as `location`, and INVALID_ARGUMENT when the collection is another one.
        """
        match = _NAME.fullmatch(value)
        if match is None or match[3] != collection:
            raise invalid_argument(
                f"Invalid name {value!r}: expected "
                f"projects/<project>/locations/<zone>/{collection}/<id>"
            )
        self._checked(match)
        return value

    def project(self, value: str) -> str:
        """Checks `projects/P` and returns it.

        Raises:
            ApiError: INVALID_ARGUMENT or PERMISSION_DENIED, as `location`.
        """
        parts = value.split("/")
        if len(parts) != 2 or parts[0] != "projects":
            raise invalid_argument(f"Invalid name {value!r}: expected projects/<project>")
        self._check_project(parts[1])
        return value

    def _checked(self, match: re.Match[str]) -> Location:
        self._check_project(match[1])
        if match[2] not in catalog.ZONES:
            raise ApiError(
                grpc.StatusCode.PERMISSION_DENIED,
                f"Permission denied on 'locations/{match[2]}' (or it may not exist)",
            )
        return Location(match[1], match[2])

    def _check_project(self, project: str) -> None:
        if project != self._project:
            raise ApiError(
                grpc.StatusCode.PERMISSION_DENIED,
                f"Permission denied on resource project {project} "
                f"(this emulator serves the project {self._project!r}, see --project)",
            )
