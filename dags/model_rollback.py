"""Puts another version of a model into use, when the one in use turns out to be bad.

Press *Trigger*, name the lineage and say why. `previous` is the version that the one in use at this
moment was trained from, also if the run has to wait: pressed twice, it goes one step back. Any
other published version can be named by its id (page *Models*). Every file of the version is
verified first, which takes a while for a large model.

The version that was in use is remembered: no run puts it back by itself, only another rollback
does. A run of the lineage that is under way was started from it and ends without promoting;
trigger a new one. The same from a shell: `python -m model_registry rollback --help`.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from alerting.wiring import dag_defaults, task_alerting
from operators.rollback import PREVIOUS, RollbackOperator
from pipeline_config import load_preset
from pipeline_config.settings import load_settings
from trigger_form import whole

settings = load_settings()

with DAG(
    dag_id="model_rollback",
    doc_md=__doc__,
    schedule=None,
    max_active_runs=1,
    # Nothing runs by itself here, and in an emergency nobody looks for a switch first.
    is_paused_upon_creation=False,
    tags=["bert", "maintenance"],
    params={
        "lineage": Param(
            load_preset(settings.preset).model.lineage_id,
            type="string",
            pattern=whole(r"^[a-z][a-z0-9-]{0,39}$"),
            title="lineage",
            description="Line of models.",
        ),
        "version": Param(
            PREVIOUS,
            type="string",
            pattern=whole(r"^(previous|v-[0-9a-f]{12})$"),
            title="version",
            description="A version id such as v-0a1b2c3d4e5f; previous: the one that the model in "
            "use was trained from.",
        ),
        "reason": Param(
            type="string",
            minLength=3,
            maxLength=500,
            title="reason",
            description="Why; kept with the model in use.",
        ),
    },
    **dag_defaults(settings.owner, **task_alerting()),
) as dag:
    RollbackOperator(
        task_id="rollback",
        store_uri=settings.store_uri,
        lineage="{{ params.lineage }}",
        version="{{ params.version }}",
        reason="{{ params.reason }}",
    )
