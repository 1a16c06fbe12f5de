"""Maintains a tree of links by which TensorBoard names runs by lineage, partition and date.

TensorBoard names a run after its folder, and the store's folders are named by hashes. The links are
``<lineage>/<partition>/<date>_<run key>``; a trial of a fine-tuning run has its own name below.
Next to the links is a file with the run's settings, which TensorBoard shows as hyperparameters.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pipeline_store.formats import FormatError, RunRecord
from pipeline_store.layout import RunLayout

SECONDS_BETWEEN_LOOKS = 5.0
FINETUNING = "finetuning"
"""Replaces the partition for runs that have none."""
SETTINGS_FILE = "events.out.tfevents.0.settings"
"""Sorts before all files of a training; TensorBoard reads files in order of their names."""
SHOWN_SECTIONS = ("model", "masking", "training", "finetuning")
"""Sections of a run's settings that its curves depend on; TensorBoard has a column for each
setting."""


def run_name(record: RunRecord) -> str:
    """Return a run's name in TensorBoard; for a fine-tuning run, the prefix of its trials."""
    partition = record.partition or FINETUNING
    return f"{record.lineage_id}/{partition}/{record.created:%Y-%m-%d}_{record.run_key}"


def link_runs(runs: Path, tree: Path) -> None:
    """Update the tree of links to match the store's folder of runs."""
    wanted = dict(_wanted(runs))
    for link in [path for path in tree.rglob("*") if path.is_symlink()]:
        if str(link.relative_to(tree).parent) not in wanted:
            shutil.rmtree(link.parent, ignore_errors=True)
    for name, (run, events) in wanted.items():
        folder = tree / name
        if not folder.is_dir():
            folder.mkdir(parents=True)
            _write_settings(run, folder / SETTINGS_FILE)
        for path in events.iterdir():
            if not (folder / path.name).is_symlink():
                (folder / path.name).symlink_to(path)


def keep_linked(runs: Path, tree: Path) -> None:
    """Recreate the tree, and keep it up to date in a thread until the process ends."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    link_runs(runs, tree)
    pause = threading.Event()

    def look() -> None:
        while not pause.wait(SECONDS_BETWEEN_LOOKS):
            # A folder may be removed while it is read; the next pass finds it gone.
            with suppress(OSError):
                link_runs(runs, tree)

    threading.Thread(target=look, name="named-runs", daemon=True).start()


def _wanted(runs: Path) -> Iterator[tuple[str, tuple[RunLayout, Path]]]:
    """Yield name, run and events folder of every training that has events."""
    for folder in sorted(runs.iterdir()):
        run = RunLayout(str(folder))
        try:
            record = RunRecord.load_or_none(run.record)
        except (FormatError, OSError):
            continue  # A damaged run must not prevent the others from being shown.
        if record is None or record.rental_of is not None:
            continue
        trainings = {run_name(record): run.training}
        trials = Path(run.trials)
        if trials.is_dir():
            for trial in sorted(trials.iterdir()):
                place = run.trial(trial.name).training
                trainings[f"{run_name(record)}/{trial.name}"] = place
        for name, training in trainings.items():
            if (events := Path(training.events)).is_dir():
                yield name, (run, events)


def _write_settings(run: RunLayout, path: Path) -> None:
    """Write a run's settings as TensorBoard's hyperparameters, if it has any."""
    config = Path(run.config)
    if not config.is_file():
        return
    # Imported lazily: it takes a second, which other importers of this module do not need.
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb  # type: ignore[import-untyped]
    from tensorboard.summary.writer.record_writer import (  # type: ignore[import-untyped]
        RecordWriter,
    )

    settings = {
        f"{section}.{name}": value
        for section, part in json.loads(config.read_text()).items()
        if section in SHOWN_SECTIONS
        for name, value in part.items()
        if isinstance(value, bool | int | float | str)
    }
    with path.open("wb") as file:
        writer = RecordWriter(file)
        event = Event(wall_time=config.stat().st_mtime, summary=hparams_pb(settings))
        writer.write(event.SerializeToString())
        writer.flush()
