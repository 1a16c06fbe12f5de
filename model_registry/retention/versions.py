"""Decides which model versions stay: the one in production, its ancestors, and the newest."""

from __future__ import annotations

from model_registry.retention.keeping import Keeper
from model_registry.retention.policy import Kind
from model_registry.versions import manifests
from pipeline_config import PipelineConfig
from pipeline_store.formats import ModelVersion, ProductionPointer


class VersionNeeds:
    """Keeps versions in addition to those that runs and pins name."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._survey = keeper.survey
        self._needs = keeper.needs
        self._models: dict[tuple[str, str], ModelVersion] = {}

    def keep(self) -> None:
        """Keep the versions that are needed, and the manifests that they name."""
        paths = [
            path
            for lineage, version in self._survey.versions
            if (path := f"lineages/{lineage}/versions/{version}/model.json") in self._survey.files
        ]
        found = self._keeper.read_all(ModelVersion, paths, {Kind.VERSION})
        for path, model in found.items():
            _, lineage, _, version, _ = path.split("/")
            self._models[lineage, version] = model
            folder = path.removesuffix("model.json")
            known = {path, *(folder + file.path for file in model.files)}
            if others := sorted({*self._survey.versions[lineage, version]} - known):
                self._needs.unlisted[lineage, version] = others
        for lineage in sorted(self._survey.lineages):
            self._lineage(lineage)
        for (lineage, version), files in self._survey.versions.items():
            if not self._keeper.is_old(files.values()):
                self._needs.versions[lineage, version].append("it is young")
        for (lineage, version), reasons in self._needs.versions.items():
            if reasons and (lineage, version) in self._models:
                folder = f"lineages/{lineage}/versions/{version}"
                config = self._keeper.config(f"{folder}/config.json", {Kind.MANIFEST})
                if isinstance(config, PipelineConfig):
                    self._keeper.settings_in_use.add(config.data_sha256)
                place = self._keeper.store.lineage(lineage)
                for uri in manifests(place, self._models[lineage, version]).values():
                    self._keeper.need_manifest(uri, f"version {version}")

    def _lineage(self, lineage: str) -> None:
        models = {v: model for (known, v), model in self._models.items() if known == lineage}
        path = f"lineages/{lineage}/production.json"
        if path not in self._survey.files:
            for version in models:
                self._needs.versions[lineage, version].append("its lineage has no model in use yet")
            return
        pointer = self._keeper.read(ProductionPointer, path, {Kind.VERSION})
        if pointer is None:
            return
        if pointer.version_id not in models:
            text = f"{path} names {pointer.version_id}, which does not exist"
            self._needs.block({Kind.VERSION}, text)
            return
        self._needs.versions[lineage, pointer.version_id].append("in use")
        line, model = [], models.get(models[pointer.version_id].parent or "")
        while model is not None and model.version_id not in line:
            line.append(model.version_id)
            model = models.get(model.parent or "")
        for version in line[: self._keeper.policy.keep_versions]:
            self._needs.versions[lineage, version].append("an ancestor of the one in use")
        order = sorted(models.values(), key=lambda m: (m.created, m.version_id), reverse=True)
        for model in order[: self._keeper.policy.keep_versions]:
            self._needs.versions[lineage, model.version_id].append("one of the newest")
