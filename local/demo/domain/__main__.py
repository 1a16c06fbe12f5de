"""Measures whether re-pretraining improves a published encoder: one update, from text to verdict.

    python -m local.demo.domain --encoder FOLDER [--state-dir .local]

The encoder becomes a lineage's first version. The DAG trains a masked-LM head for it and continues
it on the docstrings of the installed numerical packages, compares both, also by classifiers on a
labeled task, and judges. Then the original encoder, frozen, gets a head with as many steps on the
same rows: the baseline for the continued one. At the end the continued encoder is exported as a
Hugging Face folder, which sentence-transformers also reads, and is compared in transformers. All
figures go to demo-domain.json in the state folder.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from local.commands import run_module, run_watched
from local.demo import follow
from local.demo.domain import leaving, settings, text
from local.demo.domain.figures import figures
from local.demo.tasks import examples
from local.demo.tasks.modules import harvest
from local.stack.airflow_api import AirflowApiError
from local.stack.paths import StackError
from local.stack.settings import PRESET
from local.stack.stack import Stack
from pipeline_config import PipelineConfig, load_preset, parse_config, with_overrides
from pipeline_config.command_line import command_parser
from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, ProbeReport, RunPlan, Verdict
from pipeline_store.layout import RunLayout, StoreLayout

Say = Callable[[str], None]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status, which does not depend on the verdict."""
    options = _parser().parse_args(argv)
    console = Console(soft_wrap=True, highlight=False)
    try:
        _run(options, console)
    except (follow.DemoError, StackError, AirflowApiError, FileNotFoundError) as error:
        print(f"demo-domain: {error}\n`make down` stops what is running.", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        words = " ".join(error.cmd[1:3])
        print(f"demo-domain: {words} ended with code {error.returncode}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("local.demo.domain", __doc__)
    parser.add_argument(
        "--encoder", type=Path, required=True, metavar="FOLDER", help="a Hugging Face folder"
    )
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    return parser


def _run(options: argparse.Namespace, console: Console) -> None:
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[{time.monotonic() - began:5.0f} s] {line}", markup=False)

    stack = Stack(options.state_dir, say=say)
    store = StoreLayout(str(stack.paths.store))
    lineage_id = follow.unused_lineage(store, "domain")
    say("reading the docstrings of the installed packages")
    found = harvest(max_characters=text.HARVESTED)
    corpus = Path(store.root) / "corpora" / lineage_id
    for partition in (text.DOMAIN, text.GENERAL):
        count = text.write_partition(found, partition, corpus)
        say(f"  {partition}: {count:,} documents of {', '.join(text.PACKAGES[partition])}")
    task = text.labelled_task(found)._replace(name=lineage_id)
    examples.write(task, Path(store.task(task.name).root))
    sizes = ", ".join(f"{len(part):,} {split}" for split, part in task.splits.items())
    say(f"  labelled: {sizes} examples, of other modules")
    asked = settings.request(store, settings.put_encoder(options.encoder, store))
    asked |= {
        "corpus.input_pattern": f"corpora/{lineage_id}/{{partition}}/*",
        "model.lineage_id": lineage_id,
        "promotion.probe_tasks": [task.name],
    }
    _prepare_general(store, asked, say)
    stack.up()
    api = stack.api()
    api.wait_for_dag(follow.DAG_ID)
    api.unpause(follow.DAG_ID)
    day = follow.run_day(api, store, text.DOMAIN, asked, say)
    control = _control(store, day.run, say)
    report = _scores(store, day.run, control, say)
    baseline = RunPlan.load(day.run.plan).parent_version
    content = figures(
        report,
        _config(day.run).promotion,
        general=text.GENERAL,
        verdict=Verdict.load(day.run.verdict(baseline)),
        probe=ProbeReport.load(day.run.probe(baseline)),
    )
    content["export"] = leaving.export(store, day.run, say)
    left = follow.tpus_left(stack)
    content |= {"tpu_nodes_left": len(left), "seconds": round(time.monotonic() - began)}
    _show(content, console)
    path = (options.state_dir / "demo-domain.json").resolve()
    path.write_text(json.dumps(content, indent=2) + "\n")
    if left:
        raise follow.DemoError(f"TPUs are left: {', '.join(left)}")
    console.print(f"summary: {path}")


def _prepare_general(store: StoreLayout, asked: dict[str, Any], say: Say) -> None:
    """Prepare the text that must not be forgotten, by hand, as docs/operate/promotion.md says."""
    say("preparing the text that must not be forgotten")
    config = with_overrides(load_preset(PRESET), asked)
    file = str(Path(store.root) / "corpora" / config.model.lineage_id / "config.json")
    uris.write(file, config.to_bytes())
    words = ("--config", file, "--store", store.root, "--partition", text.GENERAL)
    run_module("beam_jobs.train_vocabulary", *words)
    run_module("beam_jobs.prepare_corpus", *words)


def _config(run: RunLayout) -> PipelineConfig:
    return parse_config(uris.read(run.config), run.config)


def _control(store: StoreLayout, run: RunLayout, say: Say) -> RunLayout:
    """Train the head further on the frozen, imported encoder: as many steps on the same rows.

    It keeps the head's own learning rate, which is the better one for it.
    """
    config, plan = _config(run), RunPlan.load(run.plan)
    say(f"the encoder held still: {config.training.steps} more steps of its head alone")
    control = store.run(f"{config.model.lineage_id}-held-still")
    held = {"training.frozen_layers": config.model.num_hidden_layers}
    uris.write(control.config, with_overrides(config, held).to_bytes())
    words = ["--run", control.root, "--store", store.root]
    words += ["--init-model", run.head(plan.parent_version).root]
    for manifest in plan.trained.values():
        words += ["--manifest", manifest]
    run_watched("training.train", *words)
    return control


def _scores(store: StoreLayout, run: RunLayout, control: RunLayout, say: Say) -> EvaluationReport:
    """Score the continued and the frozen encoder on all held-out documents of the run."""
    say("scoring both")
    plan = RunPlan.load(run.plan)
    output = control.evaluation(None)
    words = ["--store", store.root, "--config", run.config, "--output", output]
    words += ["--current-set", plan.partition]
    for name, manifest in plan.evaluated.items():
        words += ["--set", f"{name}={manifest}"]
    words += ["--model", f"candidate={run.training.root}"]
    words += ["--model", f"baseline={control.training.root}"]
    run_watched("training.evaluate", *words)
    return EvaluationReport.load(output)


def _show(content: dict[str, Any], console: Console) -> None:
    console.print("\nMasked-LM loss on held-out documents of the domain (nats)")
    console.print(f"  frequencies of tokens              {content['unigram_loss']:.3f}")
    console.print(f"  encoder as published, new head     {content['imported_loss']:.3f}")
    console.print(f"  encoder continued                  {content['continued_loss']:.3f}")
    rows = {"loss on other text": content["old_text_loss"], "recall@1": content["retrieval"]}
    rows |= {f"{one['task']}, {one['metric']}": one for one in content["downstream"]}
    console.print("\nbefore, after, difference with its interval")
    for name, row in rows.items():
        if row is not None:
            mean, low, high = row["difference"]
            console.print(
                f"  {name:<34} {row['before']:.3f}  {row['after']:.3f}  {mean:+.3f} "
                f"({low:+.3f} to {high:+.3f})",
                markup=False,
            )
    console.print(f"\nverdict: {content['verdict']}", markup=False)
    console.print(content["reason"], markup=False)
    left = content["export"]
    console.print(
        f"\nexported to {left['folder']}\n  compared in {left['compared_in']}: on {left['masks']} "
        f"masked tokens logits differ by {left['max_logit_difference']:.1e} at most",
        markup=False,
    )


if __name__ == "__main__":
    sys.exit(main())
