"""Manages the checkpoints of a run: commits, finds the newest valid one, and deletes old ones.

The bytes are below the attempt's own prefix and mean nothing by themselves. The commit is
``checkpoints/<step>.json``, which is created if absent after a check of the run's holder. Only
files that it lists are ever read.
"""

from __future__ import annotations

import logging
import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import CheckpointManifest, FileDigest, FormatError, TrainingInputs
from pipeline_store.layout import TrainingLayout
from trained_models import artifacts
from trained_models.commit import CommitGuard
from trained_models.errors import UserError
from trained_models.state import TrainingState

log = logging.getLogger("training")

WEIGHTS_NAME = "weights"
_MANIFEST_NAME = re.compile(r"/\d+\.json$")


class Commit(NamedTuple):
    """The checkpoint that counts after a commit: ours, or one that was there before."""

    manifest: CheckpointManifest
    is_ours: bool


class CheckpointStore:
    """The checkpoints of one training folder, as one trainer sees them."""

    def __init__(
        self,
        layout: TrainingLayout,
        guard: CommitGuard,
        config: PipelineConfig,
        *,
        inputs: TrainingInputs,
        data_sha256: str,
        accept_changes: bool = False,
    ) -> None:
        """Open a training folder.

        :param inputs: the inputs of this training in readable form, to report what has changed.
        :param data_sha256: fingerprint of its records.
        :param accept_changes: continue from checkpoints of other settings or data, with a warning.
        """
        self._layout = layout
        self._guard = guard
        self._config = config
        self._inputs = inputs
        self._data_sha256 = data_sha256
        self._accept_changes = accept_changes
        self._rejected: dict[str, bytes] = {}

    def newest(self, at_most: int | None = None) -> CheckpointManifest | None:
        """Return the newest checkpoint that verifies, or None if there is none.

        :param at_most: the last step to consider; None: all.
        :raises UserError: a checkpoint belongs to other settings or other data.
        """
        for uri in self._manifest_uris():
            if at_most is not None and _step_of(uri) > at_most:
                continue
            data = uris.read(uri)
            try:
                manifest = CheckpointManifest.parse(data, uri)
                self._verify(manifest, uri)
            except FormatError as error:
                log.warning("Checkpoint %s is not used: %s Trying the one before.", uri, error)
                self._rejected[uri] = data
                continue
            self._admit(manifest)
            return manifest
        return None

    def _verify(self, manifest: CheckpointManifest, uri: str) -> None:
        if manifest.step != _step_of(uri):
            raise FormatError(f"{uri} is the manifest of checkpoint {manifest.step}.")
        artifacts.verify_files(self._layout.root, manifest.files)
        best = manifest.best
        # The best one becomes the result if none is better. Without it, training continues from a
        # checkpoint before it.
        if self._config.training.keep_best and best is not None and best.step != manifest.step:
            artifacts.verify_files(self._layout.root, self.committed(best.step).files)

    def committed(self, step: int) -> CheckpointManifest:
        """Return the manifest of a checkpoint.

        :raises FormatError: there is none, or it is damaged.
        """
        uri = self._layout.checkpoint(step)
        manifest = CheckpointManifest.load_or_none(uri)
        if manifest is None:
            raise FormatError(f"{uri} is missing.")
        return manifest

    def _admit(self, manifest: CheckpointManifest) -> None:
        """Refuse a checkpoint of another training, unless changes are accepted."""
        changes = self.changes(manifest)
        if changes is None:
            return
        if not self._accept_changes:
            raise UserError(
                f"{changes} Restore the settings and partitions to go on with it, go on with the "
                "new ones by --accept-changes, or start a new run."
            )
        log.warning("Going on all the same, as --accept-changes says. %s", changes)

    def changes(self, manifest: CheckpointManifest) -> str | None:
        """Return what differs from the settings and data of a checkpoint; None: nothing."""
        if (manifest.config_sha256, manifest.data_sha256) == (
            self._config.training_sha256,
            self._data_sha256,
        ):
            return None
        return (
            f"Checkpoint {manifest.step} in {self._layout.root} was trained differently: "
            f"{'; '.join(self._differences(manifest))}."
        )

    def _differences(self, manifest: CheckpointManifest) -> list[str]:
        prefix = uris.join(self._layout.root, manifest.prefix)
        before = TrainingInputs.load_or_none(f"{prefix.rpartition('/')[0]}/{artifacts.INPUTS_FILE}")
        if before is None:
            return ["the hashes of settings or records differ"]
        return setting_differences(before, self._inputs) + _record_differences(before, self._inputs)

    def commit(self, files: list[Path], state: TrainingState) -> Commit:
        """Upload a checkpoint's files and make it count.

        :param files: ``weights.*`` as written by tf.train.Checkpoint.
        :param state: the state of the training in the checkpoint.
        :returns: the manifest that counts; there is only ever one per step, and if it is not ours,
            the caller has to continue from it.
        :raises UserError: the manifest that counts belongs to other settings or other data.
        :raises LostHolderError: another attempt holds the run; the bytes stay unnamed.
        """
        # A folder of its own for every save: bytes that a manifest may name are never overwritten.
        folder = f"{state.step:010d}-{uuid.uuid4().hex[:8]}"
        target = uris.join(self._layout.attempt_files(self._guard.token), folder)
        base = target.removeprefix(self._layout.root.rstrip("/") + "/")
        manifest = CheckpointManifest(
            holder_token=self._guard.token,
            prefix=f"{base}/{WEIGHTS_NAME}",
            files=[self._upload(path, target, base) for path in files],
            config_sha256=self._config.training_sha256,
            data_sha256=self._data_sha256,
            random_seed=self._config.training.random_seed,
            created=datetime.now(UTC),
            **vars(replace(state, seconds=round(state.seconds, 3))),
        )
        self._guard.check()
        committed = self._create(manifest)
        self._remove_old()
        return committed

    def _upload(self, path: Path, target: str, base: str) -> FileDigest:
        digest = FileDigest(
            path=f"{base}/{path.name}", bytes=path.stat().st_size, sha256=uris.sha256(str(path))
        )
        uris.upload(str(path), uris.join(target, path.name))
        return digest

    def _create(self, manifest: CheckpointManifest) -> Commit:
        # Manifests that did not verify would block a commit of the same step, and count among the
        # ones to keep. Only the holder gets here, but another process may have been holder since
        # they were read: a manifest that replaced one of them has not been verified and stays.
        for uri, data in self._rejected.items():
            if uris.read_or_none(uri) == data:
                uris.delete(uri)
        self._rejected.clear()
        uri = self._layout.checkpoint(manifest.step)
        if manifest.create(uri):
            return Commit(manifest, is_ours=True)
        counts = CheckpointManifest.load(uri)
        self._admit(counts)
        # An attempt of this very call may have created it: no other call names the same folder.
        return Commit(counts, is_ours=counts.prefix == manifest.prefix)

    def abandon(self, after: int) -> None:
        """Delete the checkpoints of later steps, because training was rolled back.

        :raises LostHolderError: another attempt holds the run.
        """
        self._guard.check()
        for uri in self._manifest_uris():
            if _step_of(uri) > after:
                self._remove(uri)

    def _remove_old(self) -> None:
        """Keep the newest, the one that training may roll back to, and the best."""
        manifest_uris = self._manifest_uris()
        settings = self._config.training
        kept = set(manifest_uris[: settings.max_to_keep])
        targets = (u for u in manifest_uris if _step_of(u) % settings.checkpoint_interval == 0)
        kept.update([*targets][:1])
        if settings.keep_best:
            kept |= {self._layout.checkpoint(step) for step in map(_best_step, kept) if step}
        names = {_name(uri) for uri in kept}
        for uri in manifest_uris:
            if _name(uri) not in names:
                self._remove(uri)

    def _remove(self, manifest_uri: str) -> None:
        """Delete the manifest before the bytes, so that no manifest names missing files."""
        paths = _named_paths(manifest_uri)
        uris.delete(manifest_uri)
        for path in paths:
            uris.delete(uris.join(self._layout.root, path))

    def sweep(self) -> None:
        """Delete bytes that no manifest names: lost races, attempts that died before their commit.

        Only for a finished training, when no process may be about to name them.
        """
        named = {path for uri in self._manifest_uris() for path in _named_paths(uri)}
        for uri in uris.list_files(uris.join(self._layout.root, "attempts")):
            # attempts/<token>/<folder>/<file>: a listing may spell the folder above differently.
            if "/".join(uri.split("/")[-4:]) not in named:
                uris.delete(uri)

    def _manifest_uris(self) -> list[str]:
        """Return the manifests, newest first: steps are zero-padded, so names sort as numbers."""
        found = uris.list_files(self._layout.checkpoints)
        return sorted(filter(_MANIFEST_NAME.search, found), reverse=True)


def _named_paths(manifest_uri: str) -> list[str]:
    """Return the files that a manifest names, relative to the training; a damaged one has none."""
    try:
        return [file.path for file in CheckpointManifest.load(manifest_uri).files]
    except FormatError:
        return []


def _name(manifest_uri: str) -> str:
    # A listing may spell the folder above differently.
    return manifest_uri.rpartition("/")[2]


def _step_of(manifest_uri: str) -> int:
    return int(_name(manifest_uri).removesuffix(".json"))


def _best_step(manifest_uri: str) -> int | None:
    """Return the best step that a manifest names; a damaged one names none."""
    try:
        best = CheckpointManifest.load(manifest_uri).best
    except FormatError:
        return None
    return None if best is None else best.step


def setting_differences(before: TrainingInputs, now: TrainingInputs) -> list[str]:
    """Return one phrase for each setting or vocabulary that changed."""
    names = sorted(before.settings.keys() | now.settings.keys())
    changed = [
        f"{name} was {before.settings.get(name)!r} and is {now.settings.get(name)!r}"
        for name in names
        if before.settings.get(name) != now.settings.get(name)
    ]
    if before.vocabulary_sha256 != now.vocabulary_sha256:
        changed.append(
            f"the vocabulary was {before.vocabulary_sha256} and is {now.vocabulary_sha256}"
        )
    return changed


def _record_differences(before: TrainingInputs, now: TrainingInputs) -> list[str]:
    """Return a phrase for each pool of records that changed."""
    changed = []
    for name, records in now.pools.items():
        earlier, kind = before.pools[name], name.replace("_", " ")
        old, new = set(earlier.items()), set(records.items())
        if old != new:
            changed.append(
                f"{len(old - new)} shards of {kind} are gone and {len(new - old)} are new"
            )
        elif list(earlier) != list(records):
            changed.append(f"the same shards of {kind} are given in another order")
    return changed
