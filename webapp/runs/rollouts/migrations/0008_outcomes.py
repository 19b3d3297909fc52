"""Give the rollouts that are there their outcome, a hundred steps of a run at a time.

The rule is copied here as it was when this was written: a migration says the same in all years.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations

STEPS = 100
JUDGES = (
    "task_success",
    "bfcl_task_success",
    "webshop_success",
    "toolbench_pass",
    "helloagents_accuracy",
    "numeric_match",
    "exact_match",
    "webshop_score",
)
SET = """
UPDATE rollouts_rollout AS rollout SET outcome = found.outcome, judged_by = found.judged_by
FROM (
    SELECT id, CASE
        WHEN status = 'excluded' THEN 'excluded'
        WHEN value IS NULL THEN 'no_verdict' WHEN value >= 1 THEN 'solved' WHEN value > 0 THEN 'partly' ELSE 'failed'
    END AS outcome,
    CASE WHEN status = 'excluded' OR value IS NULL THEN '' ELSE judge END AS judged_by
    FROM (
        SELECT id, status,
            COALESCE({values}) AS value,
            CASE {judges} ELSE '' END AS judge
        FROM rollouts_rollout
        WHERE run_id = %(run)s AND step >= %(first)s AND step < %(first)s + %(steps)s AND status <> 'running'
    ) AS judged
) AS found
WHERE rollout.id = found.id
"""
NUMBER = "CASE WHEN jsonb_typeof({column}->{key}) = 'number' THEN ({column}->>{key})::float8 END"


def judges_of(config: dict[str, Any]) -> list[str]:
    """The components of a run that judge its task, the first that has a value counts."""
    stages = (config.get("curriculum") or {}).get("stages") or []
    parts = [
        part for each in (config, *stages) for part in ((each or {}).get("rewards") or {}).get("components") or []
    ]
    functions = {part["name"]: part.get("function") or part["name"] for part in parts if "name" in part}
    found = []
    for judge in JUDGES:
        names = [name for name, function in functions.items() if function == judge]
        found += [*names, *([judge] if judge not in functions else [])]
    return found


def fill(apps: Any, schema_editor: Any) -> None:
    """Run by run."""
    run_model, rollout_model = apps.get_model("runs", "Run"), apps.get_model("rollouts", "Rollout")
    for run in run_model.objects.only("pk", "config", "resolved").iterator(chunk_size=200):
        rows = rollout_model.objects.filter(run_id=run.pk)
        last = rows.order_by("-step").values_list("step", flat=True).first()
        if last is not None:
            _fill_run(schema_editor, run.pk, judges_of(run.resolved or run.config or {}), last)


def _fill_run(schema_editor: Any, run: Any, judges: list[str], last: int) -> None:
    keys = {f"judge{place}": name for place, name in enumerate(judges)}
    numbers = {f"%({key})s": NUMBER.format(column="parts", key=f"%({key})s") for key in keys}
    env = NUMBER.format(column="env_parts", key="'task_success'")
    sql = SET.format(
        values=", ".join([env, *numbers.values()]),
        judges=" ".join(
            [f"WHEN {env} IS NOT NULL THEN ''", *(f"WHEN {value} IS NOT NULL THEN {key}" for key, value in numbers.items())]
        ),
    )
    with schema_editor.connection.cursor() as cursor:
        for first in range(0, last + 1, STEPS):
            cursor.execute(sql, {**keys, "run": run, "first": first, "steps": STEPS})


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("rollouts", "0007_outcome"), ("runs", "0001_initial")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
