"""Requests for files that no request may read: of each setting that names files, in each way.

Which settings these are, the marks of the schema say; one that is not attacked fails the tests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotated_types import MaxLen

from pipeline_config import FinetuningConfig, PipelineConfig, TaskConfig
from pipeline_config.loading import Schema, fields
from pipeline_config.requests import marked
from pipeline_config.sections import Mark

MARK = "zq7secret"
"""In each line of the file that is attacked."""
REFUSED = re.compile(
    "lies below none of the folders that requests may read|would leave|a pattern may not have"
)
_TABLE = f"text,label,{MARK}column\n{MARK}text,{MARK}label,1\n" * 2
_ONE_OF_TWO = "second of two patterns"
TASK_PATHS = [n for n, field in TaskConfig.model_fields.items() if Mark.TEXT_PATH in field.metadata]
"""Settings of a ``task.toml`` that name files."""

INSTALLATIONS: dict[str, Any] = {
    "promotion.approvers": ["me"],
    "beam.temp_location": "gs://other/temp",
    "beam.sdk_container_image": f"registry/image@sha256:{'0' * 64}",
    "beam.service_account_email": "other@project.iam.gserviceaccount.com",
    "beam.subnetwork": "regions/us-central1/subnetworks/other",
    "tpu.container_image": f"registry/image@sha256:{'0' * 64}",
    "tpu.reservation_name": "other",
    "tpu.network": "other",
    "tpu.subnetwork": "other",
    "tpu.enable_external_ips": True,
    "tpu.service_account": "other@project.iam.gserviceaccount.com",
    "tpu.network_tags": ["open"],
    "tpu.data_disks": ["projects/p/zones/us-central1-a/disks/other"],
    "tpu.disk_gigabytes": 100_000,
    "budget.on_demand_price_per_chip_hour": 9.0,
    "budget.price_per_chip_hour": 0.0,
    "budget.price_per_egress_gb": 0.0,
    "budget.currency": "XXX",
    "budget.price_date": "1999-01",
}
"""Values that no preset has, of the settings that only the installation sets."""


def installation_settings(schema: Schema) -> dict[str, Any]:
    """Return a request for another value of each setting that only the installation sets."""
    return {name: INSTALLATIONS[name] for name in marked(schema, Mark.BY_INSTALLATION)}


@dataclass(frozen=True)
class Outside:
    """A file that no request may read, and links to it in a store.

    :ivar store: root of the store.
    :ivar file: outside of it.
    """

    store: Path
    file: Path

    @classmethod
    def plant(cls, store: Path, folder: Path) -> Outside:
        """Write the file into a new folder, and lay the links."""
        folder.mkdir()
        outside = cls(store, folder / "secret.csv")
        outside.file.write_text(_TABLE)
        (folder / "task.toml").write_text(f'{MARK} = "{MARK}"\n')
        for link, target in outside.links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        return outside

    @property
    def links(self) -> dict[Path, Path]:
        """Links in the store, and where they lead."""
        return {
            self.store / "corpus" / "linked" / "a.csv": self.file,
            self.store / "corpus" / "linked-folder": self.file.parent,
        }

    def ways(self, base: Path) -> dict[str, str]:
        """Return paths that lead to the file.

        :param base: what a relative path starts from.
        """
        return {
            "absolute": str(self.file),
            "dots": f"{self.store}/corpus/../{os.path.relpath(self.file, self.store)}",
            "relative dots": os.path.relpath(self.file, base),
            "link": f"{self.store}/corpus/linked/a.csv",
            "folder that is a link": f"{self.store}/corpus/linked-folder/secret.csv",
            "pattern": f"{self.file.parent.parent}/*/secret.csv",
            _ONE_OF_TWO: f"{self.store}/corpus/x/*,{self.file}",
            "process": "/proc/self/environ",
            "another run": f"{self.store}/runs/0123456789ab/training",
        }

    def requests(self, schema: Schema, *files: Path) -> Iterator[dict[str, str]]:
        """Yield a request for each way: all settings at once that name files, each on its own.

        :param files: that no request may read either.
        """
        more = {str(file): str(file) for file in files}
        for way, path in (self.ways(self.store) | more).items():
            marks = [Mark.TEXT_PATH] if way == _ONE_OF_TWO else [Mark.TEXT_PATH, Mark.MODEL_PATH]
            if conf := dict.fromkeys(marked(schema, *marks), path):
                yield conf

    def write_tasks(self, tasks: Path) -> dict[str, str]:
        """Write a labelled task for each setting and each way.

        :param tasks: folder of the store's tasks.
        :returns: what of a task is to be refused, by its name: a setting, or nothing where its
            description itself lies elsewhere.
        """
        written = {}
        for setting in TASK_PATHS:
            for number, (way, path) in enumerate(self.ways(tasks / "any").items()):
                folder = tasks / f"attack-{setting}-{number}"
                folder.mkdir(parents=True)
                (folder / "train.csv").write_text("text,label\na,b\nc,d\n")
                (folder / "task.toml").write_text(f"# {way}\n{setting} = '{path}'\n")
                written[folder.name] = f"{setting}: "
        (tasks / "attack-folder").symlink_to(self.file.parent)
        (tasks / "attack-file").mkdir()
        (tasks / "attack-file" / "task.toml").symlink_to(self.file.with_name("task.toml"))
        return written | {"attack-folder": "", "attack-file": ""}


def task_requests(schema: Schema, tasks: list[str]) -> Iterator[dict[str, list[str]]]:
    """Yield requests for all tasks, as many at once as each setting takes."""
    for setting, field in fields(schema):
        if Mark.TASKS in field.metadata:
            [most] = [limit.max_length for limit in field.metadata if isinstance(limit, MaxLen)]
            for first in range(0, len(tasks), most):
                yield {setting: tasks[first : first + most]}


def unattacked() -> set[str]:
    """Return the settings with a mark that no request here attacks."""
    attacked = {*marked(PipelineConfig, Mark.TEXT_PATH, Mark.MODEL_PATH, Mark.TASKS)}
    attacked |= {*marked(FinetuningConfig, Mark.TEXT_PATH, Mark.MODEL_PATH, Mark.TASKS)}
    found = {
        name
        for schema in (PipelineConfig, FinetuningConfig)
        for name, field in fields(schema)
        if any(isinstance(mark, Mark) for mark in field.metadata)
    }
    return found - attacked - set(INSTALLATIONS)
