"""Scores the demo's saved models again and checks that the reported losses agree.

python -m local.demo.recompute [--state-dir .local]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pipeline_config.command_line import command_parser
from pipeline_store import identity, uris
from pipeline_store.formats import EvaluationReport, ExitKind, RunRecord
from pipeline_store.layout import StoreLayout


def main(argv: list[str] | None = None) -> int:
    """Recompute every loss of the last demo; return 1 if one differs or cannot be computed."""
    parser = command_parser("local.demo.recompute", __doc__)
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    options = parser.parse_args(argv)
    path = options.state_dir / "demo-summary.json"
    if not path.exists():
        print(f"{path} is missing; run `make demo` first.", file=sys.stderr)
        return 1
    store = StoreLayout(str(options.state_dir.resolve() / "store"))
    statuses = {
        subprocess.run(
            [
                sys.executable,
                "-m",
                "training.evaluate",
                "--print-only",
                *_arguments(store, run_key),
            ],
            check=False,
        ).returncode
        for run_key in json.loads(path.read_text())["run_keys"].values()
    }
    if ExitKind.BAD_DATA.exit_code in statuses:
        print("Losses differ; see above.")
    else:
        print("All losses agree." if statuses == {0} else "Not all could be computed; see above.")
    return int(statuses != {0})


def _arguments(store: StoreLayout, run_key: str) -> list[str]:
    """Return the command line that scores a run's models from their version folders."""
    run = store.run(run_key)
    lineage = store.lineage(RunRecord.load(run.record).lineage_id)
    report_uri = uris.list_files(run.evaluations)[-1]
    report = EvaluationReport.load(report_uri)
    arguments = ["--store", store.root, "--config", run.config, "--output", report_uri]
    arguments += ["--current-set", report.current_set]
    for name in report.unigram_losses:
        files = uris.list_files(lineage.manifests(name))
        [manifest] = [uri for uri in files if uri.endswith(".json")]
        arguments += ["--set", f"{name}={manifest}"]
    published = lineage.version(identity.version_id(run_key))
    saved = uris.exists(lineage.model(identity.version_id(run_key)))
    for model in report.models:
        # A rejected candidate has no version; its checkpoint is still in the run's folder.
        uri = published if model.name == "candidate" and saved else model.model_uri
        arguments += ["--model", f"{model.name}={uri}"]
    return arguments


if __name__ == "__main__":
    sys.exit(main())
