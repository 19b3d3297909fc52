"""Rows of a large installation, made by PostgreSQL itself: what ``benchmarks/database.py`` measures on.

``fill(share)`` writes 10,000 runs in 20 projects, a quarter of them in one, with five million rollouts and their turns,
times ``share``. Most runs have some 400 rollouts, one in a hundred has 10,000.
"""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.hashers import make_password
from django.db import connection
from django.db.models import AutoField, BigAutoField, Field, Model
from django.utils import timezone

from benchmarks.comparison import evaluation
from training.config import JobConfig
from webapp.common.workers.models import Worker
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment, EnvironmentSample
from webapp.people.teams.models import AuditEntry, Membership, Project, Team, User
from webapp.rewards.models import RewardSpec, RolloutSet
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run, RunEvent, RunStar
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn

RUNS, PROJECTS, PEOPLE, SPECS, DATASETS, ENVIRONMENTS = 10_000, 20, 60, 60, 60, 8
EACH_STEP, GROUP, AUDITED, COMPARED = 32, 8, 100_000, 8
KEPT = "rollout_of_group"  # the index by which turns look rollouts up while all rows are written
METRICS = (
    "reward", "reward_std", "rollouts/task_success", "rewards/task_success/mean", "rewards/tool_call/mean",
    "rewards/length_penalty/mean", "loss", "kl", "grad_norm", "learning_rate", "entropy", "completions/mean_length",
    "completions/max_length", "rollouts/excluded_share", "rollouts/truncated_share", "rollouts/turns_mean",
    "groups/zero_variance_share", "env/latency_p50", "time/generation", "time/training",
)  # fmt: skip
COMPONENTS = [{"name": "task_success", "weight": 0.7}, {"name": "tool_call", "weight": 0.3}]
PARTS = (
    "jsonb_build_object('task_success', (hashint4(i) & 1)::float, 'tool_call', 0.5, 'length_penalty', -0.01 * (i % 9))"
)
PLAN = """
CREATE UNLOGGED TABLE bench_plan AS
SELECT n, gen_random_uuid() AS id, project.id AS project_id, kind,
       CASE WHEN kind = 'sft' THEN 0 WHEN n %% 100 = 1 THEN 10000 ELSE 320 + n * 37 %% 210 END AS rollouts,
       CASE WHEN n %% 200 = 4 THEN 'running' WHEN n %% 200 = 5 THEN 'queued' WHEN n %% 200 = 6 THEN 'paused'
            WHEN n %% 10 = 7 THEN 'failed' WHEN n %% 20 = 8 THEN 'cancelled' ELSE 'succeeded' END AS state,
       now() - n * interval '17 minutes' AS at
FROM (SELECT n, CASE WHEN n %% 20 = 2 THEN 'evaluate' WHEN n %% 20 = 3 THEN 'sft' ELSE 'grpo' END AS kind,
             CASE WHEN n %% 4 = 0 THEN 0 ELSE 1 + n %% (%s - 1) END AS place
      FROM generate_series(1, %s) AS n) AS runs
JOIN (SELECT id, row_number() OVER (ORDER BY slug) - 1 AS place FROM teams_project) AS project USING (place)
"""


def execute(sql: str, params: list[Any] | None = None) -> None:
    """One statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def insert(model: type[Model], source: str, **columns: str) -> None:
    """``INSERT … SELECT``: the columns given as SQL, all others as Django would fill them."""
    names: list[str] = []
    values: list[str] = []
    params: list[Any] = []
    for field in model._meta.concrete_fields:
        if field.column in columns:
            values.append(columns[field.column].replace("%", "%%"))
        elif isinstance(field, AutoField | BigAutoField) or field.has_db_default():
            continue
        else:
            values.append(f"%s::{field.db_type(connection)}")
            params.append(_usual(field))
        names.append(f'"{field.column}"')
    source = source.replace("%", "%%")
    listed = f'"{model._meta.db_table}" ({", ".join(names)})'
    execute(f"INSERT INTO {listed} SELECT {', '.join(values)} {source}", params)


def _usual(field: Field[Any, Any]) -> Any:
    if getattr(field, "auto_now_add", False) or getattr(field, "auto_now", False):
        return timezone.now()
    return field.get_db_prep_save(field.get_default(), connection)


def fill(share: float) -> None:
    """Write all rows."""
    execute("SET session_replication_role = replica")  # no foreign key is looked up for each row
    execute("SET statement_timeout = 0")
    runs = max(400, int(RUNS * share))
    users = _people()
    execute(PLAN, [PROJECTS, runs])
    _shelves()
    _runs()
    with _without_indexes(Rollout, Turn, MetricPoint):
        for first in range(0, runs + 1, 500):
            _played(f"FROM bench_plan WHERE n > {first} AND n <= {first + 500}")
    _around()
    _audit(int(AUDITED * share))
    _evaluations()
    insert(RunStar, "FROM bench_plan WHERE n % 250 = 8", run_id="id", user_id=f"'{users[0].pk}'::uuid")
    execute("SET session_replication_role = DEFAULT")
    execute("VACUUM ANALYZE")


def _people() -> list[User]:
    """Teams, projects, and sixty people of whom the first reads everything."""
    password = make_password("x")
    users = [User(username=f"person-{n:02}", password=password, is_superuser=n == 0) for n in range(PEOPLE)]
    User.objects.bulk_create(users)
    teams = Team.objects.bulk_create(Team(name=f"Team {n}") for n in range(4))
    Project.objects.bulk_create(
        Project(team=teams[n % 4], name=f"Project {n:02}", slug=f"project-{n:02}") for n in range(PROJECTS)
    )
    Membership.objects.bulk_create(
        Membership(team=team, user=user, role="owner" if user is users[0] else "editor")
        for team in teams
        for place, user in enumerate(users)
        if place == 0 or place % 4 == teams.index(team)
    )
    return users


def _shelves() -> None:
    """Datasets, reward specs, environments and models of the hub, with versions."""
    per_project = "FROM teams_project AS project, generate_series(0, {} - 1) AS i"
    who = "(SELECT id FROM teams_user ORDER BY md5(i::text || username) LIMIT 1)"
    named = {"id": "gen_random_uuid()", "project_id": "project.id", "created_by_id": who}
    report = json.dumps({"rows": 5000, "columns": {"messages": 5000}, "preview": [{"messages": []}] * 20})
    insert(
        Dataset, per_project.format(DATASETS), **named, name="'data-' || i / 4", version="1 + i % 4", state="'ready'",
        file_name="'rows.jsonl'", rows="5000", bytes="4000000", report=f"'{report}'::jsonb",
        created_at="now() - i * interval '1 day'",
    )  # fmt: skip
    insert(
        RewardSpec, per_project.format(SPECS), **named, name="'spec-' || i / 5", version="1 + i % 5",
        components=f"'{json.dumps(COMPONENTS)}'::jsonb", created_at="now() - i * interval '1 day'",
    )  # fmt: skip
    insert(
        Environment, per_project.format(ENVIRONMENTS), **named, name="'env-' || i", kind="'url'",
        url="'http://10.0.0.' || i || ':8000'", server_name="'tools'", healthy="true",
    )  # fmt: skip
    insert(
        EnvironmentSample, "FROM environments_environment AS place, generate_series(1, 720) AS i",
        environment_id="place.id", at="now() - i * interval '1 minute'", sessions="i % 128", slots="128",
        steps_per_s="i % 400", p50_ms="10", p95_ms="40",
    )  # fmt: skip


def _runs() -> None:
    """The runs, their attempts, logs and checkpoints."""
    config = JobConfig().model_dump(mode="json")
    config["rewards"]["components"] = []
    text = json.dumps(config).replace("'", "''")
    resolved = f"jsonb_set('{text}'::jsonb, '{{kind}}', to_jsonb(kind))"
    written = f"jsonb_set({resolved}, '{{rewards,spec}}', to_jsonb('reward:spec-' || n % 12 || '@' || 1 + n % 5))"
    written = f"jsonb_set({written}, '{{data,train}}', to_jsonb('dataset:data-' || n % 15 || '@' || 1 + n % 4))"
    written = f"jsonb_set({written}, '{{environment,name}}', to_jsonb('environment:env-' || n % 8))"
    figure = "jsonb_build_object('value', {0}, 'low', {0} - 0.05, 'high', {0} + 0.05, 'tasks', 100)"
    solved = "0.2 + 0.6 * (n * 31 % 100) / 100.0"
    report = (
        "jsonb_build_object('tasks', 100, 'missing_tasks', 0, 'rollouts', rollouts, 'excluded', 0, 'most', 4,"
        f" 'figures', jsonb_build_object('success', {figure.format(solved)}, 'pass_1', {figure.format(solved)}))"
    )
    steps = f"(CASE WHEN rollouts = 0 THEN 200 ELSE ceil(rollouts / {EACH_STEP}.0) END)::int"
    insert(
        Run, "FROM bench_plan", id="id", project_id="project_id", name="'run-' || n", kind="kind", state="state",
        config=written, resolved=resolved,
        evaluation=f"CASE WHEN kind = 'evaluate' AND state = 'succeeded' THEN {report} END",
        step=steps, total_steps=steps, last_reward="0.3 + (n % 70) / 100.0", success=solved, seq="100000",
        heldout_success="CASE WHEN n % 5 = 0 THEN 0.5 END",
        tags="CASE WHEN n % 6 = 0 THEN ARRAY['tag-' || n % 40, 'best'] ELSE ARRAY[]::varchar[] END",
        notes="CASE WHEN n % 9 = 0 THEN repeat('A note about what was tried here. ', 5) ELSE '' END",
        archived_at="CASE WHEN n % 8 = 1 AND state IN ('succeeded', 'failed') THEN now() END", attempt="1",
        created_by_id="(SELECT id FROM teams_user ORDER BY md5(n::text || username) LIMIT 1)", created_at="at",
        queued_at="at", started_at="at + interval '1 minute'",
        finished_at="CASE WHEN state IN ('succeeded', 'failed', 'cancelled') THEN at + interval '1 hour' END",
        lease_owner="CASE WHEN state = 'running' THEN 'train@host' ELSE '' END",
        lease_beat_at="CASE WHEN state = 'running' THEN now() END", last_event_at="at + interval '1 hour'",
        error="CASE WHEN state IN ('failed', 'paused') THEN jsonb_build_object('code', 'trainer_died', 'boundary',"
        " 'trainer', 'message', 'It died.', 'hint', 'Look at the log.') END",
    )  # fmt: skip
    insert(
        Attempt, "FROM bench_plan, generate_series(1, 1 + (n % 7 = 0)::int) AS i", run_id="id", number="i",
        owner="'train@host'", started_at="at", ended_at="CASE WHEN state <> 'running' THEN at + interval '1 hour' END",
    )  # fmt: skip
    insert(
        RunEvent, "FROM bench_plan, generate_series(1, 60) AS i", run_id="id", seq="i", attempt="1",
        kind="CASE WHEN i < 4 THEN 'state' WHEN i % 10 = 0 THEN 'warning' ELSE 'log' END",
        payload="CASE WHEN i < 4 THEN jsonb_build_object('from', 'queued', 'to', 'running', 'reason', null,"
        " 'error', null)"
        " WHEN i % 10 = 0 THEN jsonb_build_object('code', 'journal_line', 'line', i, 'message', 'A line was left out.')"
        " ELSE jsonb_build_object('level', 'info', 'message', 'Step ' || i || ' of the run was saved') END",
        at="at + i * interval '1 minute'",
    )  # fmt: skip
    insert(
        Checkpoint, "FROM bench_plan, generate_series(1, 4) AS i WHERE kind <> 'evaluate'", id="gen_random_uuid()",
        project_id="project_id", run_id="id", attempt="1", step="i * 10", path="'1/checkpoints/checkpoint-' || i * 10",
        bytes="2000000000", final="i = 4 AND state = 'succeeded'", seq="60 + i", created_at="at + i * interval '9 min'",
    )  # fmt: skip


def _played(rows: str) -> None:
    """Rollouts, their turns, groups and curves of some runs, in the order in which a trainer writes them."""
    plan = f"(SELECT * {rows}) AS plan"
    when = "at + i * interval '1 second'"
    insert(
        Rollout, f"FROM {plan}, generate_series(0, rollouts - 1) AS i ORDER BY n, i", id="gen_random_uuid()",
        run_id="plan.id", attempt="1", step=f"1 + i / {EACH_STEP}", group=f"i % {EACH_STEP} / {GROUP}",
        index=f"i % {GROUP}", row=f"i / {GROUP} % 500", task=f"'What is ' || i / {GROUP} % 500 ||"
        " ' * 7? Show each step and use the calculator wherever a product is larger than ten.'",
        status="CASE WHEN i % 40 = 39 THEN 'excluded' WHEN i % 25 = 24 THEN 'truncated' ELSE 'completed' END",
        reward="CASE WHEN i % 40 < 39 THEN (hashint4(i) & 127) / 127.0 END", parts=PARTS,
        env_parts="jsonb_build_object('task_success', (hashint4(i) & 1)::float)",
        advantage="(hashint4(i + 7) & 255) / 128.0 - 1", turns="1 + (i % 5 > 2)::int", tokens="60 + i % 400",
        calls="i % 3", failed_calls="0", seconds="1.5", started_at=when, finished_at=when, seq="1000 + i * 5",
    )  # fmt: skip
    text = "repeat('Then the second factor is looked at, and the product is carried on. ', 2 + i % 3)"
    insert(
        Turn, f"FROM {plan} JOIN rollouts_rollout AS played ON played.run_id = plan.id,"
        " LATERAL generate_series(0, 2 * played.turns - 1) AS i",
        rollout_id="played.id", run_id="plan.id", number="i", seq="played.seq + i", tokens="played.tokens / 2",
        seconds="0.7", messages="jsonb_build_array(jsonb_build_object("
        "'role', (ARRAY['user', 'assistant', 'tool', 'assistant'])[i + 1], 'content',"
        f" CASE WHEN i = 0 THEN played.task ELSE {text} END))",
    )  # fmt: skip
    insert(
        RolloutGroup, f"FROM {plan}, generate_series(0, rollouts / {GROUP} - 1) AS i", run_id="plan.id", attempt="1",
        step=f"1 + i / {EACH_STEP // GROUP}", group=f"i % {EACH_STEP // GROUP}", reward_mean="0.5", reward_std="0.2",
        zero_variance="i % 6 = 0", seq="1004 + i * 40",
    )  # fmt: skip
    names = ", ".join(f"('{name}', {place})" for place, name in enumerate(METRICS))
    insert(
        MetricPoint, f"FROM {plan} JOIN runs_run AS run ON run.id = plan.id, LATERAL generate_series(1, run.step) AS i,"
        f" (VALUES {names}) AS metric(name, place)",
        run_id="plan.id", attempt="1", step="i", name="metric.name", value="0.2 + (hashint4(i) & 1023) / 2048.0",
        seq="1003 + i * 160 + metric.place",
    )  # fmt: skip


def _around() -> None:
    """Models of what succeeded, rollout sets, workers."""
    insert(
        RegisteredModel, "FROM registry_checkpoint AS point JOIN runs_run AS run ON run.id = point.run_id WHERE final",
        id="gen_random_uuid()", project_id="point.project_id", name="run.name", kind="'run'", checkpoint_id="point.id",
        created_by_id="run.created_by_id", created_at="point.created_at",
    )  # fmt: skip
    insert(
        RolloutSet, "FROM bench_plan WHERE n % 25 = 1", id="gen_random_uuid()", project_id="project_id",
        name="'set-' || n", kind="'run'", run_id="id", run_name="'run-' || n", state="'failed'", rollouts="rollouts",
        groups=f"rollouts / {GROUP}", created_at="at",
    )  # fmt: skip
    insert(
        Worker, "FROM generate_series(1, 20) AS i", name="'train-' || i || '@host'", started_at="now()", beat_at="now()"
    )


def _audit(entries: int) -> None:
    insert(
        AuditEntry, f"FROM generate_series(1, {entries}) AS i JOIN teams_project AS project"
        f" ON project.slug = 'project-' || lpad((i % {PROJECTS})::text, 2, '0')",
        at="now() - i * interval '1 minute'", user_id="(SELECT id FROM teams_user ORDER BY username LIMIT 1)",
        username="'person-' || lpad((i % 60)::text, 2, '0')", action="'run_launched'", subject="'run-' || i",
        object_kind="'runs.run'", object_id="gen_random_uuid()::text", project_id="project.id",
        project_name="project.name",
    )  # fmt: skip


def _evaluations() -> None:
    """Eight evaluations of the same 500 tasks, four tries each, for a comparison."""
    project = Project.objects.get(slug="project-00")
    dataset = Dataset.objects.create(
        project=project,
        name="compared",
        file_name="t",
        rows=500,
        state="ready",
    )
    dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
    lines = ({"messages": [{"role": "user", "content": f"What is {n} * 7?"}]} for n in range(500))
    dataset.rows_path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for number in range(COMPARED):
        evaluation(project, dataset, number)


class _without_indexes:
    """Indexes and constraints of these tables are built once all rows are there."""

    def __init__(self, *models: type[Model]) -> None:
        self.models = models

    def __enter__(self) -> None:
        with connection.schema_editor() as editor:
            for model in self.models:
                for constraint in model._meta.constraints:
                    editor.remove_constraint(model, constraint)
                for index in model._meta.indexes:
                    if index.name != KEPT:
                        editor.remove_index(model, index)

    def __exit__(self, *_exc: object) -> None:
        with connection.schema_editor() as editor:
            for model in self.models:
                for constraint in model._meta.constraints:
                    editor.add_constraint(model, constraint)
                for index in model._meta.indexes:
                    if index.name != KEPT:
                        editor.add_index(model, index)
