"""Pictures of the main DAG's pages: two days of text, the second model approved by a person."""

from __future__ import annotations

from local.demo import browser, tiny
from local.demo.screenshots.studio import Studio, until

DAG_ID, ROLLBACK_DAG = "bert_repretraining", "model_rollback"
LINEAGE = "statutes"
PARTITIONS = ("2026-01-01", "2026-01-02")
APPROVE_TASK = "promotion.approve"
UPDATE = {
    "promotion.require_approval": True,
    "training.replay_fraction": 0.5,
    # Long enough for a log with several lines of progress.
    "training.train_steps": 1000,
    "training.checkpoint_interval": 200,
    # So small a model forgets; the pictures are of one that is promoted.
    "promotion.max_forgetting": 10.0,
}


def make(studio: Studio) -> None:
    """Make two runs and all pictures of them; the second version is in use then."""
    for number, partition in enumerate(PARTITIONS):
        # Another dialect each day: the second model has something to learn.
        tiny.write_partition(studio.store, partition, seed=number, dialect=number)
    studio.switch_on(DAG_ID)
    first, second = PARTITIONS
    studio.finish(DAG_ID, _trigger(studio, first))
    run_id = _trigger(studio, second, **UPDATE)
    _wait_for_question(studio, run_id)
    _forms(studio)
    browser.open_question(studio.page, studio.url, DAG_ID, run_id, APPROVE_TASK)
    studio.take("approval")
    browser.respond(studio.page, "Approve")
    studio.finish(DAG_ID, run_id)
    _results(studio, run_id)


def _results(studio: Studio, run_id: str) -> None:
    page = studio.page
    studio.open_run(DAG_ID, run_id, "/tasks/tpu.train", height=1000)
    ended = page.get_by_text("010-train succeeded")
    ended.wait_for()
    # Airflow's own key for whole lines; they are folded after a moment.
    page.keyboard.press("w")
    page.wait_for_timeout(1000)
    # Not by the line: Airflow draws only those that are seen, and has moved them.
    page.mouse.move(800, 700)
    page.mouse.wheel(0, 10_000)
    ended.wait_for()
    studio.take("training-in-airflow")
    studio.open_run(DAG_ID, run_id, "/plugin/model", height=1540)
    browser.plugin_frame(page, "Model").get_by_text("Outcome: promoted").wait_for()
    studio.take("run-page")
    studio.open("/plugin/models", height=1000)
    browser.plugin_frame(page, "Models").get_by_text("in use", exact=True).wait_for()
    studio.take("models-page")
    form = browser.open_trigger_form(page, studio.url, ROLLBACK_DAG)
    browser.fill_in(page, form, "lineage", LINEAGE)
    browser.fill_in(page, form, "reason", "answers on contracts got worse")
    studio.take("rollback")


def _forms(studio: Studio) -> None:
    page = studio.page
    form = browser.open_trigger_form(page, studio.url, DAG_ID)
    browser.open_section(form, "usual")
    studio.take("trigger-form")
    form = browser.open_trigger_form(page, studio.url, DAG_ID)
    browser.choose_backfill(page, form, "2026-01-01", "2026-01-07")
    form.get_by_text("runs will be triggered", exact=False).wait_for()
    studio.take("backfill")


def _trigger(studio: Studio, partition: str, **settings: object) -> str:
    chosen = {"corpus.partition": partition, "model.lineage_id": LINEAGE}
    return studio.api.trigger(DAG_ID, tiny.SETTINGS | chosen | settings)


def _wait_for_question(studio: Studio, run_id: str) -> None:
    def states() -> dict[str, str | None]:
        return {t.task_id: t.state for t in studio.api.task_instances(DAG_ID, run_id)}

    until(lambda: states().get(APPROVE_TASK) == "awaiting_input", f"the question of {run_id}")
