"""Making rollout sets: from a run, from pasted text, from test cases; lost and deleted ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.working import claimed, perform
from training.rewards.lab import writing
from training.rewards.lab.table import episode_at, table_load
from webapp.people.teams.models import Project
from webapp.rewards.lab.sets import rollout_set_create, rollout_set_delete
from webapp.rewards.models import RewardCase, RolloutSet

pytestmark = pytest.mark.django_db
TALK = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def test_a_run_becomes_a_set_that_outlives_it(recorded_run: Any, more_rollouts: Any, built: Any) -> None:
    run = recorded_run(steps=3)
    for index in range(2):  # a newer attempt played step 2 again, and has not ended
        more_rollouts(run, 2, 0, index, attempt=2)
    made: RolloutSet = built(kind="run", run=run, first_step=2)
    assert (made.state, made.rollouts, made.groups, made.progress, made.error) == ("ready", 10, 3, {}, None)
    assert (made.run, made.run_name) == (run, run.name)
    table = table_load(made.folder)
    assert table.step.tolist() == [2] * 2 + [3] * 8 and table.starts.tolist() == [0, 2, 6, 10]
    assert table.excluded.tolist() == [False] * 2 + [False, False, True, False] * 2
    assert table.reason_of(4) == "The server died." and table.task_of(1) == "What is 6 + 1?"
    assert table.parts["task_success"].tolist()[:4] == [1.0, 0.0, 1.0, 0.0]
    assert table.length.tolist()[:2] == [10.0, 11.0]
    episode = episode_at(table, 2)
    assert (episode.row["answer"], episode.final_answer, episode.env_reward) == ("7", "7", 1.0)
    run.delete()
    made.refresh_from_db()
    assert made.run is None and made.run_name and table_load(made.folder).size == 10
    assert {path.name for path in made.folder.iterdir()} == {"columns.npz", "meta.json", "episodes.jsonl", "rows.jsonl"}


def test_the_rows_of_another_projects_dataset_are_not_read(recorded_run: Any, built: Any, charlie: Any) -> None:
    run = recorded_run(steps=1)
    other = Project.objects.get(slug="elsewhere")
    run.project.datasets.update(project=other)
    table = table_load(built(kind="run", run=run).folder)
    assert (table.row == -1).all() and episode_at(table, 0).row == {}


def test_pasted_conversations_of_one_prompt_are_a_group(built: Any) -> None:
    talks = [
        TALK,
        {"messages": TALK, "env_reward": 1, "reward": 0.5, "policy": "beg"},
        {"messages": [{"role": "user", "content": "other"}, *TALK[1:]], "row": {"answer": "a"}},
    ]
    as_list = built(kind="pasted", text=json.dumps(talks))
    as_lines = built(kind="pasted", text="\n\n".join(json.dumps(talk) for talk in talks))
    for made in (as_list, as_lines):
        table = table_load(made.folder)
        assert table.starts.tolist() == [0, 2, 3] and table.reward.tolist()[1] == 0.5
        assert table.meta["policies"][table.policy[1]] == "beg" and episode_at(table, 2).row == {"answer": "a"}
    assert built(kind="pasted", text=json.dumps(TALK)).rollouts == 1


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"kind": "pasted", "text": ""}, "text", "not valid JSON"),
        ({"kind": "pasted", "text": "[]"}, "text", "Paste a list"),
        ({"kind": "pasted", "text": '{"messages": [}\n{"a"'}, "text", "Line 1 is not valid"),
        ({"kind": "pasted", "text": f"{json.dumps(TALK)}\n7"}, "text", "Conversation 2: Paste a list"),
        ({"kind": "pasted", "text": "[" * 100_000}, "text", "nested too deeply"),
        ({"kind": "pasted", "text": " " * (1 << 20) + "x"}, "text", "at most 1 MB"),
        ({"kind": "pasted", "text": json.dumps([{"messages": TALK, "row": 3}])}, "text", "`row` must be"),
        ({"kind": "pasted", "text": json.dumps([{"messages": TALK, "env_parts": {"a": "b"}}])}, "text", "env_parts"),
        ({"kind": "cases"}, "kind", "no reward test cases"),
        ({"kind": "other"}, "kind", "where the episodes come from"),
        ({"kind": "run"}, "run", "Choose a run"),
        ({"kind": "pasted", "text": json.dumps(TALK), "name": "a/b"}, "name", "Use letters"),
    ],
)
def test_what_is_wrong_is_reported_at_its_field(
    fields: dict[str, Any], field: str, words: str, project: Project, alice: Any
) -> None:
    with pytest.raises(ValidationError) as caught:
        rollout_set_create(**({"project": project, "user": alice, "name": "set"} | fields))
    assert words in " ".join(caught.value.message_dict[field]) and not RolloutSet.objects.exists()


def test_steps_without_rollouts_are_refused(recorded_run: Any, project: Project) -> None:
    run = recorded_run(steps=1)
    for first, last, field in ((7, None, "run"), (3, 2, "last_step")):
        with pytest.raises(ValidationError) as caught:
            rollout_set_create(
                project=project, user=None, name="x", kind="run", run=run, first_step=first, last_step=last
            )
        assert list(caught.value.message_dict) == [field]


def test_test_cases_become_a_set(project: Project, built: Any) -> None:
    for name, messages in (("one", TALK), ("two", [{"role": "nobody"}])):
        RewardCase.objects.create(project=project, name=name, messages=messages, prompt_length=1, row={"answer": "a"})
    table = table_load(built(kind="cases").folder)
    assert (table.size, table.task_of(0), table.reason_of(1)) == (2, "one", "The stored conversation cannot be read.")


def test_a_late_worker_gives_up(project: Project, alice: Any) -> None:
    made = rollout_set_create(project=project, user=alice, name="set", kind="pasted", text=json.dumps(TALK))
    late = claimed(made)
    RolloutSet.objects.update(token="")  # as ``look`` leaves one whose worker fell silent
    fresh = claimed(made)
    perform(late)
    made.refresh_from_db()
    assert made.state == "building"
    perform(fresh)
    made.refresh_from_db()
    assert (made.state, made.tries) == ("ready", 0)


def test_a_set_that_is_deleted_or_too_large_ends(
    project: Project,
    recorded_run: Any,
    built: Any,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    run = recorded_run(steps=1)
    made = rollout_set_create(project=project, user=None, name="set", kind="run", run=run)
    taken = claimed(made)
    folder = made.folder
    with django_capture_on_commit_callbacks(execute=True):
        rollout_set_delete(rollout_set=made)
    perform(taken)
    assert not (folder / "columns.npz").exists() and not list(folder.glob("*"))
    monkeypatch.setattr(writing, "MAX_ROLLOUTS", 5)
    failed = built(kind="run", run=run)
    assert failed.state == "failed" and "at most 5 rollouts" in failed.error["message"]
