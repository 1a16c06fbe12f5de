"""The steps of a first day, each a command that a person could type, and their outcomes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_config.accelerators import chips
from pipeline_store import uris

REPOSITORY = Path(__file__).resolve().parents[2]
PARTITION = "first-day"
LINEAGE = "first-day"
TRAINED = "bert_base_v5e_smoke"
SUITE_SECONDS = 3600.0
"""After this time the contract suite deletes everything that it created."""

TPUS_AT_ONCE = 2
"""The maximum number of TPUs that the contract suite has at the same time."""


def worst_cost(accelerator_type: str, price_per_chip_hour: float) -> float:
    """Return the maximum cost of the suite: all TPUs that it can have, until its deadline."""
    return TPUS_AT_ONCE * chips(accelerator_type) * price_per_chip_hour * SUITE_SECONDS / 3600


@dataclass(frozen=True)
class Account:
    """The cloud account and settings of the day.

    :ivar project: None: a rehearsal, with the emulator and a folder.
    :ivar store: root of the store; the day writes into a separate folder below it.
    :ivar preset: preset with network, account and image; a file, or a preset's name.
    """

    store: str
    preset: str
    project: str | None = None
    zone: str = "us-central1-a"
    accelerator_type: str = "v5litepod-1"
    price: float = 1.2
    max_cost: float = 0.0

    @property
    def is_rehearsal(self) -> bool:
        """Return whether no real cloud is used."""
        return self.project is None


@dataclass
class Outcome:
    """The outcome of a step.

    :ivar passed: None: it was left out, and `note` says why.
    :ivar tests: results by name, for a step that runs tests; None: skipped.
    """

    name: str
    passed: bool | None
    seconds: float = 0.0
    note: str = ""
    log: str = ""
    tests: dict[str, bool | None] = field(default_factory=dict)


@dataclass
class Day:
    """The steps, in order; each needs the earlier ones."""

    account: Account
    config: PipelineConfig
    folder: Path
    manifest: str = ""

    @property
    def store(self) -> str:
        """Return the day's own folder in the store."""
        return uris.join(self.account.store, "first-tpu-day")

    def run(self) -> Iterator[Outcome]:
        """Run each step and yield its outcome; the one that costs money is last.

        Nothing is rented if an earlier step failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        needed = []
        for step in (self._cloud, self._bucket, self._partition):
            needed.append(step())
            yield needed[-1]
        failed = [outcome.name for outcome in needed if outcome.passed is False]
        if failed:
            yield Outcome("contract", None, note=f"nothing was rented, as {failed[0]} failed")
            return
        yield self._contract()

    def _cloud(self) -> Outcome:
        account = self.account
        if account.is_rehearsal:
            return Outcome("cloud", None, note="there is no project to look at in a rehearsal")
        words = ["--preset", account.preset, "--store", account.store, "--project", account.project]
        return self._command("cloud", ["-m", "preflight", "cloud", *map(str, words)])

    def _bucket(self) -> Outcome:
        files = [f"tests/pipeline_store/test_store_{kind}.py" for kind in ("contract", "bucket")]
        words = [] if self.account.is_rehearsal else ["--bucket", uris.join(self.store, "bucket")]
        return self._tests("bucket", [*files, *words])

    def _partition(self) -> Outcome:
        began = time.monotonic()
        pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
        text = "\n\n".join(page.read_text() for page in pages)
        uris.write(uris.join(self.store, "corpus", PARTITION, "pages.txt"), text.encode())
        config = self.folder / "config.json"
        # The configuration of the contract suite's training, whatever the account's preset trains.
        trained = with_overrides(load_preset(TRAINED), {"model.lineage_id": LINEAGE})
        config.write_bytes(trained.to_bytes())
        words = ["--config", str(config), "--store", self.store, "--partition", PARTITION]
        first = self._command("vocabulary", ["-m", "beam_jobs.train_vocabulary", *words])
        if not first.passed:
            return Outcome("partition", False, log=first.log, note=first.note)
        made = self._command("partition", ["-m", "beam_jobs.prepare_corpus", *words])
        made.seconds = time.monotonic() - began
        if made.passed:
            last = Path(made.log).read_text().strip().splitlines()[-1]
            self.manifest = json.loads(last)["manifest"]
        return made

    def _contract(self) -> Outcome:
        account, tpu = self.account, self.config.tpu
        words = ["tests/contract", "--tpu-store", self.store, "--tpu-manifest", self.manifest]
        if not account.is_rehearsal:
            given = {
                "--tpu-project": account.project,
                "--tpu-zone": account.zone,
                "--tpu-type": account.accelerator_type,
                "--tpu-price": account.price,
                "--max-cost": account.max_cost,
                "--tpu-runtime": tpu.runtime_version,
                "--tpu-container-image": tpu.container_image,
                "--tpu-network": tpu.network,
                "--tpu-subnetwork": tpu.subnetwork,
                "--tpu-service-account": tpu.service_account,
            }
            words += [str(word) for pair in given.items() if pair[1] for word in pair]
        return self._tests("contract", words)

    def _tests(self, name: str, words: Sequence[str]) -> Outcome:
        report = self.folder / f"{name}.xml"
        report.unlink(missing_ok=True)
        outcome = self._command(name, ["-m", "pytest", "-q", f"--junitxml={report}", *words])
        if report.exists():
            outcome.tests = read_results(report)
        return outcome

    def _command(self, name: str, words: Sequence[str]) -> Outcome:
        # In separate files, as the last line of the data job's stdout is parsed.
        log, errors = self.folder / f"{name}.log", self.folder / f"{name}.err"
        began = time.monotonic()
        with log.open("w") as said, errors.open("w") as complained:
            done = subprocess.run(
                [sys.executable, *words],
                cwd=REPOSITORY,
                stdout=said,
                stderr=complained,
                check=False,
            )
        passed = done.returncode == 0
        note = "" if passed else f"exit code {done.returncode}: see {log} and {errors.name}"
        return Outcome(name, passed, time.monotonic() - began, note, str(log))


def read_results(report: Path) -> dict[str, bool | None]:
    """Return, from pytest's XML, whether each test passed, by ``file::test``; None: skipped.

    A parametrized test passed if all of its cases did, and counts as skipped if one was skipped.
    """
    found: dict[str, bool | None] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest has written it
        file = case.get("classname", "").rpartition(".")[2]
        name = f"{file}::{case.get('name', '').partition('[')[0]}"
        kinds = {child.tag for child in case}
        passed = False if kinds & {"failure", "error"} else None if "skipped" in kinds else True
        before = found.get(name, True)
        found[name] = False if False in (passed, before) else passed and before
    return found


def results_by_name(outcomes: Sequence[Outcome]) -> Mapping[str, bool | None]:
    """Return the results of steps and tests, by the names that beliefs use."""
    return {outcome.name: outcome.passed for outcome in outcomes} | {
        name: passed for outcome in outcomes for name, passed in outcome.tests.items()
    }
