"""Wraps the Hugging Face Hub for the mirror.

Every method checks what exists and adds what is missing, so that an interrupted pass can be
repeated.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    set_client_factory,
)
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import disable_progress_bars

from pipeline_mirror.errors import MirrorError, ServerAwayError
from pipeline_mirror.hub_folder import CARD, MARK

MAIN = "main"
"""Branch of the version in use."""

VERSIONS = "versions"
"""Branch on which each version is committed, for its tag; so ``main`` never has a version that was
not in use."""

_OF_THE_HUB = {".gitattributes"}
"""Files that the Hub creates itself and that every commit leaves unchanged."""

_TIMEOUT = 120.0
"""Seconds to wait for an answer; the library would wait forever."""

_OWN_FAULT = {400, 403, 404, 409, 412, 413, 422}
"""HTTP codes that mean a problem of one repository, and not of the Hub or the token."""

_MOST_TEXT = 400


@dataclass(frozen=True)
class HubRepository:
    """A repository with its state when it was opened.

    :ivar tags: names of its tags.
    :ivar heads: the newest commit of each branch.
    :ivar in_use: version on ``main``; None: none yet.
    """

    name: str
    tags: set[str]
    heads: dict[str, str]
    in_use: str | None


class HubServer:
    """A client of the Hub with a token.

    :param token: access token that may write to the repositories, and create missing ones.
    :param store_label: identifies this store among others that are mirrored there.
    :param endpoint: the Hub's address; None: that of ``HF_ENDPOINT``, or the Hub's default.
    """

    def __init__(self, token: str, store_label: str, endpoint: str | None = None) -> None:
        set_client_factory(lambda: httpx2.Client(follow_redirects=True, timeout=_TIMEOUT))
        disable_progress_bars()
        self._api = HfApi(endpoint=endpoint, token=token)
        self._token, self._label = token, store_label

    def open(self, name: str) -> HubRepository:
        """Return a repository; if it is missing, it is created as a private one.

        :raises MirrorError: it was not made by the mirror of this store, or cannot be created.
        :raises ServerAwayError: the Hub is unavailable.
        """
        with self._asking(name):
            try:
                refs = self._api.list_repo_refs(name)
            except RepositoryNotFoundError:
                # A person may make it public, if the license and the text allow it.
                self._api.create_repo(name, private=True, exist_ok=True)
                refs = self._api.list_repo_refs(name)
            mark = self._mark(name)
            if mark is None:
                self._require_empty(name)
            elif mark.get("store") != self._label:
                raise MirrorError(
                    f"The Hub's repository {name} was not made by the mirror of this store, "
                    f"{self._label}, but of {mark.get('store')}: two would change each other's. "
                    "Set REPRETRAIN_HUB_REPOSITORY to other names."
                )
        return HubRepository(
            name=name,
            tags={tag.name for tag in refs.tags},
            heads={branch.name: branch.target_commit for branch in refs.branches},
            in_use=mark.get("version") if mark else None,
        )

    def put_in_use(
        self, repository: HubRepository, folder: Path, paths: list[str], *, title: str, reason: str
    ) -> None:
        """Replace the content of ``main`` with that of a folder, in one commit."""
        with self._asking(repository.name):
            self._commit(repository, MAIN, folder, paths, title=title, text=reason)

    def add_version(
        self, repository: HubRepository, folder: Path, paths: list[str], version_id: str
    ) -> None:
        """Commit the content of a folder to the branch :data:`VERSIONS`, and tag the commit."""
        name = repository.name
        with self._asking(name):
            if VERSIONS not in repository.heads:
                self._api.create_branch(name, branch=VERSIONS, exist_ok=True)
                refs = self._api.list_repo_refs(name)
                repository.heads.update({one.name: one.target_commit for one in refs.branches})
            title = f"Version {version_id}"
            commit = self._commit(repository, VERSIONS, folder, paths, title=title, text="")
            # If the pass dies here, the next one finds no tag, and nothing to commit.
            self._api.create_tag(name, tag=version_id, revision=commit, exist_ok=True)
        repository.tags.add(version_id)

    def _commit(
        self,
        repository: HubRepository,
        branch: str,
        folder: Path,
        paths: list[str],
        *,
        title: str,
        text: str,
    ) -> str:
        there = set(self._api.list_repo_files(repository.name, revision=branch)) - _OF_THE_HUB
        done = self._api.create_commit(
            repository.name,
            [
                *(CommitOperationAdd(path, str(folder / path)) for path in paths),
                *(CommitOperationDelete(path) for path in sorted(there - set(paths))),
            ],
            commit_message=title,
            commit_description=text,
            revision=branch,
            # If another pass was faster, this commit is refused instead of undoing the other.
            parent_commit=repository.heads.get(branch),
        )
        repository.heads[branch] = done.oid
        return str(done.oid)

    def _mark(self, name: str) -> dict[str, str] | None:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                # Not from a cache: the current state of `main` is needed.
                path = self._api.hf_hub_download(name, MARK, revision=MAIN, local_dir=scratch)
            except RemoteEntryNotFoundError:
                return None
            found = json.loads(Path(path).read_text())
        if not isinstance(found, dict):
            raise MirrorError(f"{MARK} in the Hub's repository {name} is no JSON object.")
        return found

    def _require_empty(self, name: str) -> None:
        others = set(self._api.list_repo_files(name)) - _OF_THE_HUB - {CARD}
        if others:
            raise MirrorError(
                f"The Hub's repository {name} has files, such as {min(others)}, and no {MARK}, so "
                "that it was not made by a mirror, which would delete them. Set "
                "REPRETRAIN_HUB_REPOSITORY to other names, or empty it there."
            )

    @contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """Convert the library's errors to those of the mirror.

        :raises MirrorError: the request cannot be fulfilled.
        :raises ServerAwayError: the Hub is unavailable, denies access, or is broken.
        """
        try:
            yield
        except HFValidationError as error:
            raise MirrorError(f"The Hub takes no such name: {self._said(error)}") from None
        except HfHubHTTPError as error:
            # Not as its cause: the library's error may quote signed addresses.
            if error.response is not None and error.response.status_code in _OWN_FAULT:
                raise MirrorError(f"The Hub refuses {name}: {self._said(error)}") from None
            raise ServerAwayError(f"The Hub cannot be asked: {self._said(error)}") from None
        except (httpx2.HTTPError, LocalEntryNotFoundError, RuntimeError) as error:
            raise ServerAwayError(
                f"The Hub cannot be asked: {self._said(error.__cause__ or error)}"
            ) from None

    def _said(self, error: BaseException) -> str:
        """Return an error's text as one line, without the token and addresses' query strings."""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        text = re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]*", r"\1", text)
        return text.replace(self._token, "***")[:_MOST_TEXT]
