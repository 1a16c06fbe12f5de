"""Runs each image on a small workload: as its own user, without a network, its files read-only."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.demo.tiny import SETTINGS, write_partition
from pipeline_config import load_preset
from pipeline_config.loading import with_overrides
from pipeline_store import uris
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.boot.bundle import build_bundle
from trained_models.artifacts import result_checkpoint
from verification.container_images.builder import Builder
from verification.container_images.catalogue import AIRFLOW, DATA, TPU_TRAINER, TRAINER, Image
from verification.container_images.commands import ImageError

PARTITION = "2026-01-01"
DATA_MODULES = ("beam_jobs.train_vocabulary", "beam_jobs.prepare_corpus")
STEPS = 20
# Off Google Cloud, libtpu would wait for a metadata server.
NO_METADATA_SERVER = {"TPU_SKIP_MDS_QUERY": "1"}
# TensorFlow loads the plugin when it is imported, or fails.
LOAD_TPU_PLUGIN = """
import os
from training.runtime import slices
slices.use_chips("v5litepod-8")
import tensorflow
print(tensorflow.__version__, os.getuid(), os.environ["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"])
"""
HEAVY = ("tensorflow", "apache_beam")

# Runs in the Airflow image. Airflow writes its settings at the first import.
PARSE_DAGS = f"""
import json, os, subprocess, sys
os.environ["AIRFLOW_HOME"] = "/tmp/airflow"
from airflow.configuration import conf
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(conf.get("core", "dags_folder"))
heavy = [name for name in {HEAVY!r} if name in sys.modules]
# What tasks start as processes of their own, TensorFlow and Beam included.
for module in ("beam_jobs.prepare_corpus", "training.export_model", "preflight"):
    subprocess.run([sys.executable, "-m", module, "--help"], check=True, stdout=subprocess.DEVNULL)
import apache_beam, tensorflow
subprocess.run(["airflow", "version"], check=True, stdout=sys.stderr)
owners = {{os.stat(f"/proc/{{name}}").st_uid for name in os.listdir("/proc") if name.isdigit()}}
print(json.dumps({{
    "dags": sorted(bag.dags), "errors": bag.import_errors, "heavy": heavy, "owners": sorted(owners),
}}))
"""


@dataclass(frozen=True)
class Smoke:
    """The smoke tests, and their input: a store with a corpus and its records, and the code."""

    builder: Builder
    folder: Path
    """Folder for stores, code and logs of this run only."""

    @classmethod
    def prepare(cls, builder: Builder, folder: Path) -> Smoke:
        """Create the store and prepare its records with this machine's packages."""
        smoke = cls(builder, folder)
        smoke._new_store(smoke.folder / "here")
        for module in DATA_MODULES:
            command = [sys.executable, "-m", module, *smoke._data_arguments(folder / "here")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        bundle = build_bundle(StoreLayout(str(folder / "here")))
        zipfile.ZipFile(io.BytesIO(uris.read(bundle.uri))).extractall(folder / "code")
        return smoke

    def run(self, image: Image, tag: str) -> dict[str, Any]:
        """Run an image's smoke test; return its results.

        :raises ImageError: the test fails.
        """
        checks: dict[str, Callable[[str], dict[str, Any]]] = {
            TRAINER.name: self._train,
            TPU_TRAINER.name: self._check_for_tpu,
            DATA.name: self._prepare,
            AIRFLOW.name: self._parse,
        }
        return checks[image.name](tag)

    def _train(self, tag: str) -> dict[str, Any]:
        """Train a tiny model for some steps, with the code of a TPU VM's bundle."""
        run = self._start_training(tag)
        checkpoint = result_checkpoint(run.training.root)
        owners = {path.stat().st_uid for path in Path(run.training.root).rglob("*")}
        if checkpoint.step != STEPS or 0 in owners:
            raise ImageError(
                f"{tag}: the training ended at step {checkpoint.step} of {STEPS}, and its files "
                f"belong to {sorted(owners)}; root must not be among them."
            )
        return {"steps": checkpoint.step, "files": len(checkpoint.files), "user": sorted(owners)}

    def _check_for_tpu(self, tag: str) -> dict[str, Any]:
        """Import the TensorFlow for TPUs, build the model and score a batch with it on the CPU.

        It cannot train there: its compiler supports only TPUs. But it loads ``libtpu`` as a trainer
        on a TPU VM does, which shows that the two versions match.
        """
        version = self.builder.start(
            tag,
            ["-c", LOAD_TPU_PLUGIN],
            folders={self.folder / "code": "/code:ro"},
            environment=NO_METADATA_SERVER,
            workdir="/code",
            log=self.folder / "tensorflow-tpu.log",
        )
        tensorflow, user, plugin = version.splitlines()[-1].split()
        if user == "0":
            raise ImageError(f"{tag}: its process is root.")
        self._start_training(tag, "--dry-run")
        return {"tensorflow": tensorflow, "user": [int(user)], "tpu_plugin": plugin}

    def _start_training(self, tag: str, *options: str) -> RunLayout:
        """Run the trainer in a container to its end; return the run."""
        folder, name = self.folder / "here", tag.rpartition("/")[2]
        store = StoreLayout(str(folder))
        run = store.run(name)
        uris.write(run.config, uris.read(store.run("smoke").config))
        _open_to_all(folder)
        partitions = store.lineage("default").manifests(PARTITION)
        [manifest] = [uri for uri in uris.list_files(partitions) if uri.endswith(".json")]
        arguments = ["--run", run.root, "--store", store.root, "--manifest", manifest]
        self.builder.start(
            tag,
            ["-m", "training.train", *arguments, *options],
            folders={folder: f"{folder}:rw", self.folder / "code": "/code:ro"},
            environment=NO_METADATA_SERVER,
            workdir="/code",
            log=self.folder / f"{name}.log",
        )
        return run

    def _prepare(self, tag: str) -> dict[str, Any]:
        """Prepare the same corpus as on this machine; the records must be equal, bit for bit."""
        folder = self.folder / "in-the-image"
        self._new_store(folder)
        commands = [
            ["python", "-m", module, *self._data_arguments(folder)] for module in DATA_MODULES
        ]
        for number, command in enumerate(commands):
            self.builder.start(
                tag,
                command[1:],
                entry_point=command[:1],
                folders={folder: f"{folder}:rw"},
                log=self.folder / f"bert-data-{number}.log",
            )
        self.builder.start(
            tag,
            ["-c", "import apache_beam.runners.worker.sdk_worker_main"],
            entry_point=["python"],
            log=self.folder / "bert-data-worker.log",
        )
        here, there = _records(self.folder / "here"), _records(folder)
        if not here or here != there:
            raise ImageError(
                f"{tag}: the image made {len(there)} files of records that are not the {len(here)} "
                "made here; compare docker/requirements-beam.txt with requirements.txt."
            )
        return {"record_files": len(there), "equal_to_this_machine": True}

    def _parse(self, tag: str) -> dict[str, Any]:
        """Parse the DAGs, import the tasks' modules, and start the command line."""
        printed = self.builder.start(
            tag,
            ["--", "python", "-c", PARSE_DAGS],
            entry_point=["tini"],
            log=self.folder / "airflow.log",
        )
        found = json.loads(printed.splitlines()[-1])
        if found["errors"] or found["heavy"] or not found["dags"] or 0 in found["owners"]:
            raise ImageError(
                f"{tag}: the DAGs do not parse, parsing imports a heavy library, or a process is "
                f"root: {found}"
            )
        return {"dags": found["dags"], "user": found["owners"]}

    def _new_store(self, folder: Path) -> None:
        store = StoreLayout(str(folder))
        write_partition(store, PARTITION, seed=1)
        settings = SETTINGS | {"training.train_steps": STEPS}
        config = with_overrides(load_preset("smoke"), settings)
        uris.write(store.run("smoke").config, config.to_bytes())

    def _data_arguments(self, folder: Path) -> list[str]:
        store = StoreLayout(str(folder))
        config = store.run("smoke").config
        return [f"--config={config}", f"--store={folder}", f"--partition={PARTITION}"]


def _records(folder: Path) -> list[str]:
    """Return the hashes of the record files below a store."""
    files = folder.rglob("*.tfrecord")
    return sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)


def _open_to_all(folder: Path) -> None:
    """Let the image's user write a folder that belongs to the current user."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
