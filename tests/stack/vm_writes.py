"""What the stack's TPU VMs write in the store, held against what their account may in the cloud."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.infrastructure.conditions import allows
from tests.infrastructure.tree import Tree, files

_GRANT = "google_storage_bucket_iam_member.tpu_vm_reports_of_runs"


@dataclass(frozen=True)
class VmWrites:
    """A Python environment as this one, for VMs: each of its processes notes its writes."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, store: Path) -> VmWrites:
        """Make the environment; ``tests/stack/noted_writes.py`` is in it."""
        packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
        packages.mkdir(parents=True)
        (folder / "bin").mkdir()
        for name in ("python", "python3"):
            (folder / "bin" / name).symlink_to(sys.executable)
        shutil.copy(Path(sys.prefix, "pyvenv.cfg"), folder)
        shutil.copy(Path(__file__).with_name("noted_writes.py"), packages)
        (packages / "store").write_text(f"{store}/")
        (packages / "as_here.pth").write_text(
            f"{sysconfig.get_path('purelib')}\nimport noted_writes\n"
        )
        return cls(packages)

    @property
    def search_path(self) -> str:
        """Return the PATH by which VMs find this environment first."""
        own = self.folder.parents[2] / "bin"
        return os.pathsep.join([str(own), os.environ.get("PATH", os.defpath)])

    def written(self) -> list[str]:
        """Return every object that a VM has written, replaced or deleted, by path in the store."""
        log = self.folder / "writes"
        return sorted({*log.read_text().splitlines()}) if log.exists() else []

    def forbidden(self) -> list[str]:
        """Return those of them that the VMs' account may not write."""
        tree = Tree.parse(files())
        may_write = allows(tree, tree.resource(_GRANT))
        return [path for path in self.written() if not may_write(path)]
