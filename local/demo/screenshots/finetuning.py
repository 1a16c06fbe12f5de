"""Pictures of the fine-tuning DAG: a run on two TPUs, of the model in use and its parent."""

from __future__ import annotations

import random
from urllib.parse import urlencode

from local.demo import browser
from local.demo.screenshots.repretraining import LINEAGE, PARTITIONS
from local.demo.screenshots.studio import Studio
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

DAG_ID = "bert_finetuning"
TASK = "clauses"
LABELS = ("definition", "duty", "exception", "right")
EXAMPLES = 600
SETTINGS = {
    "encoder.lineage_id": LINEAGE,
    "encoder.compare_with": ["previous"],
    "finetuning.tasks": [TASK],
    "finetuning.max_seq_length": 32,
    "finetuning.learning_rates": [1e-3, 3e-3],
    "finetuning.random_seeds": [1, 2, 3],
    "finetuning.num_train_epochs": 8.0,
    "finetuning.global_batch_size": 16,
    "finetuning.parallel_tpus": 2,
    "tpu.delete_grace_seconds": 3.0,
}


def make(studio: Studio) -> None:
    """Make one run of the lineage's model in use and all pictures of it."""
    write_task(studio.store)
    studio.switch_on(DAG_ID)
    run_id = studio.api.trigger(DAG_ID, SETTINGS)
    _form(studio)
    studio.finish(DAG_ID, run_id)
    _results(studio, run_id)


def write_task(store: StoreLayout) -> None:
    """Label sentences of the newest partition by their first noun: a part of the alphabet each."""
    text = uris.read(uris.join(store.root, "corpus", PARTITIONS[-1], "a.txt")).decode()
    # Every sentence once: a copy in another split would be a leak.
    sentences = sorted({" ".join(one.split()) for one in text.split(".") if one.strip()})
    nouns = sorted({one.split()[1] for one in sentences})
    draw = random.Random(1)  # noqa: S311 - no secret
    rows = ["text\tlabel"]
    for sentence in draw.sample(sentences, EXAMPLES):
        place = nouns.index(sentence.split()[1])
        rows.append(f"{sentence}.\t{LABELS[place * len(LABELS) // len(nouns)]}")
    task = store.task(TASK)
    uris.write(uris.join(task.root, "train.tsv"), "\n".join(rows).encode())
    uris.write(task.description, b"test_fraction = 0.2\n")


def _form(studio: Studio) -> None:
    page = studio.page
    form = browser.open_trigger_form(page, studio.url, DAG_ID)
    browser.open_section(form, "usual")
    browser.fill_in(page, form, "finetuning.tasks", TASK)
    studio.take("finetuning-form")


def _results(studio: Studio, run_id: str) -> None:
    page = studio.page
    studio.open_run(DAG_ID, run_id, "/tasks/group/tpu", height=860)
    page.get_by_text("8 Task Instances").wait_for()
    page.get_by_role("button", name="Expand all task groups").click()
    studio.take("finetuning-tpus")
    studio.open_run(DAG_ID, run_id, "/plugin/model", height=2080)
    browser.plugin_frame(page, "Model").get_by_text("Outcome: completed").wait_for()
    studio.take("finetuning-run-page")
    # The report alone, as the tab's link opens it in a tab of the browser.
    query = urlencode({"dag_id": DAG_ID, "run_id": run_id})
    studio.open(f"/repretraining/training-summary?{query}", height=1000, width=1000)
    report = page.frame_locator("iframe")
    report.get_by_role("img", name="Confusion matrix of model").wait_for()
    studio.take("finetuning-report")
