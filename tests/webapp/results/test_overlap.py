"""Held-out is decided by rows: whatever a dataset is called, and whichever run on the way to the model read it."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.urls import reverse

from tests.webapp.results.conftest import Past
from training.config import JobConfig
from training.data.identity import IDENTITIES_NAME, place_bits, plain_text
from webapp.datasets import rows
from webapp.datasets.models import Dataset
from webapp.datasets.tasks import identify
from webapp.evaluation.comparison.boards import boards
from webapp.evaluation.comparison.verdicts import _learned_sentence
from webapp.evaluation.suites.services import board_of, suite_create
from webapp.launch.held_out import held_out_check
from webapp.launch.learned import Overlap, overlap_of, overlap_of_held_out, overlap_of_plan, overlaps_of
from webapp.people.teams.models import User
from webapp.results.card import card_of
from webapp.results.lineage import origins_of, scores
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
LEARNED = "{seen} of {tasks} tasks are in {where}, which it learned from"


def task(number: int, **over: Any) -> dict[str, Any]:
    """A row that asks what row ``number`` of arithmetic@3 asks."""
    return {"messages": [{"role": "user", "content": f"Add 3 to {number}."}], "answer": str(number + 3)} | over


def played(past: Past, evaluation: Callable[..., Run], dataset: Dataset, name: str = "exam", **options: Any) -> Run:
    """An evaluation of the fixture's model on a dataset."""
    run = evaluation(name, {0: [1.0], 1: [1.0, 0.0]}, dataset=dataset, **options)
    run.resolved["model"]["source"] = str(past.model.folder)
    run.save(update_fields=["resolved"])
    return run


def test_a_copy_of_what_the_run_or_its_warm_up_learned_from_is_known(
    past: Past, evaluation: Callable[..., Run], make_dataset: Callable[..., Dataset]
) -> None:
    copies = make_dataset([task(n, id=f"x{n}") for n in (5, 2, 90, 91)], name="exam")
    asked = make_dataset([{"messages": [{"role": "user", "content": "say hello to guest 2."}]}], name="greetings")
    fresh = make_dataset([task(n) for n in (90, 91)], name="fresh")
    runs = [played(past, evaluation, data, data.name) for data in (copies, asked, fresh)]
    found = overlaps_of(runs)
    assert [found[run.pk] for run in runs] == [
        Overlap(2, 4, ("arithmetic@3",)), Overlap(1, 1, ("chats@1",)), Overlap(0, 2),
    ]  # fmt: skip
    assert [found[run.pk].words for run in runs] == [
        LEARNED.format(seen=2, tasks=4, where="arithmetic@3"), LEARNED.format(seen=1, tasks=1, where="chats@1"), "",
    ]  # fmt: skip


def test_only_the_tasks_that_are_played_count(
    past: Past, evaluation: Callable[..., Run], make_dataset: Callable[..., Dataset]
) -> None:
    mixed = make_dataset([task(n) for n in (0, 1, 90, 91, 92)], name="mixed")
    first = played(past, evaluation, mixed, "first", data={"max_rows": 3})
    assert overlaps_of([first])[first.pk] == Overlap(2, 3, ("arithmetic@3",))
    drawn = played(past, evaluation, mixed, "drawn", evaluate={"tasks": 2})
    assert overlaps_of([drawn])[drawn.pk].tasks == 2


def test_what_the_run_held_out_or_never_read_it_did_not_learn_from(
    past: Past, evaluation: Callable[..., Run], make_dataset: Callable[..., Dataset]
) -> None:
    copy = make_dataset([task(n) for n in range(12)], name="copy")
    run = played(past, evaluation, copy)
    assert overlaps_of([run])[run.pk].seen == 12
    past.grpo.resolved["data"]["max_rows"] = 5
    past.grpo.save(update_fields=["resolved"])
    assert overlaps_of([run])[run.pk].seen == 5
    past.grpo.resolved["data"]["max_rows"] = 0
    past.grpo.resolved["evaluate"] |= {"every": 5, "share": 0.4}
    past.grpo.save(update_fields=["resolved"])
    whole = overlaps_of([run])[run.pk].seen
    assert whole is not None and 0 < whole < 12
    part = played(past, evaluation, copy, "part", evaluate={"share": 0.4})
    assert overlaps_of([part])[part.pk] == Overlap(0, 12 - whole)


def test_held_out_tasks_that_the_warm_up_learned_from_are_no_news(
    past: Past, make_dataset: Callable[..., Dataset]
) -> None:
    greetings = make_dataset([{"messages": [{"role": "user", "content": f"Say hello to guest {n}."}]} for n in (2, 7)])
    past.grpo.resolved["evaluate"] |= {"every": 5, "data": str(greetings.rows_path)}
    assert overlap_of_held_out(past.grpo) == Overlap(1, 2, ("chats@1",))
    own = make_dataset([task(n) for n in (3, 90)])  # what it learned from itself, its trainer leaves out
    past.grpo.resolved["evaluate"]["data"] = str(own.rows_path)
    assert overlap_of_held_out(past.grpo) == Overlap(0, 1)
    past.grpo.resolved["evaluate"]["every"] = 0
    assert overlap_of_held_out(past.grpo) == Overlap()


def test_every_page_that_shows_the_figure_says_so(
    past: Past, evaluation: Callable[..., Run], make_dataset: Callable[..., Dataset], client_for: Any, bob: User
) -> None:
    copy = make_dataset([task(n) for n in range(12)], name="exam")
    played(past, evaluation, copy)
    message = LEARNED.format(seen=12, tasks=12, where="arithmetic@3")
    client = client_for(bob)
    page = html.unescape(client.get(reverse("run-detail", args=["joust", past.grpo.pk])).content.decode())
    tile = page[page.index('id="ended-held-out"') :]
    assert "Success on 12 of 12 tasks that it learned from" in tile and message in tile
    assert "Held-out success" not in tile[: tile.index("</dt>")]
    assert message in client.get(f"/p/joust/models/{past.model.pk}/").content.decode()
    assert f"exam: {message}. That says little about other tasks." in card_of(past.model)
    (score,) = client.get(f"/api/v1/models/{past.model.pk}").json()["scores"]
    assert (score["trained_on"], score["learned"], score["learned_words"]) == (True, 12, message)
    held = client.get(f"/api/v1/runs/{past.grpo.pk}/summary").json()["held_out"]
    assert (held["trained_on"], held["learned"], held["learned_words"]) == (True, 12, message)
    assert [line.learned for board in boards(past.model.project) for line in board.lines] == [message]
    assert message in client.get(reverse("compare", args=["joust"])).content.decode()


def test_a_comparison_and_its_report_mark_who_learned_from_the_tasks(
    past: Past, evaluation: Callable[..., Run], make_dataset: Callable[..., Dataset], client_for: Any, bob: User
) -> None:
    copy = make_dataset([task(n) for n in range(12)], name="exam")
    mine, base = played(past, evaluation, copy, "mine"), evaluation("base", {0: [0.0], 1: [0.0]}, dataset=copy)
    message = "mine: " + LEARNED.format(seen=12, tasks=12, where="arithmetic@3") + "."
    found = client_for(bob).get(f"/api/v1/projects/joust/compare?c={mine.pk}&c={base.pk}").json()
    assert (found["notes"], found["answer"]["left_out"][-1]) == ([], message)
    assert [each["text"].endswith("mine learned from 12 of these 12 tasks.") for each in found["verdicts"]] == [True]
    page = client_for(bob).get(f"/p/joust/compare/?c={mine.pk}&c={base.pk}").content.decode()
    assert message in page and "mine learned from 12 of these 12 tasks." in page
    assert _learned_sentence("mine", Overlap(None, None, ("a@1",))) == "mine learned from these tasks."


def _contestants(*runs: Run) -> list[Any]:
    from webapp.evaluation.comparison.contestants import Contestant

    return [Contestant(number, run, None) for number, run in enumerate(runs)]


def test_the_leaderboard_of_a_suite_marks_it(
    past: Past, evaluation: Callable[..., Run], make_dataset: Callable[..., Dataset], make_environment: Any, alice: Any
) -> None:
    copy, place = make_dataset([task(n) for n in range(12)], name="exam"), make_environment(name="arena")
    config = {"kind": "evaluate", "data": {"train": copy.reference}, "environment": {"name": place.reference}}
    version = suite_create(
        project=past.model.project, user=alice, name="s", parts=[{"title": "sums", "weight": 1.0, "config": config}]
    )
    made = version.evaluations.create(contestant="run:first-grpo", created_by=alice)
    made.runs.create(part=0, run=played(past, evaluation, copy))
    (line,) = board_of(version).lines
    assert line.notes[1:] == ["sums: " + LEARNED.format(seen=12, tasks=12, where="arithmetic@3") + "."]


def test_rows_that_are_gone_are_not_taken_for_others(
    past: Past, evaluation: Callable[..., Run], make_dataset: Callable[..., Dataset]
) -> None:
    copy = make_dataset([task(1)], name="exam")
    run = played(past, evaluation, copy)
    same = played(past, evaluation, past.tasks, "same")  # the very data, of which nothing is left to compare
    past.tasks.rows_path.unlink()
    Dataset.objects.filter(pk=past.tasks.pk).delete()
    found = overlaps_of([run])[run.pk]
    assert found == Overlap(0, 1, (), ("data that was deleted",)) and not found.learned
    assert found.words.startswith("whether it learned from these tasks is not known: the rows of data that was deleted")
    assert overlaps_of([same])[same.pk] == Overlap(None, None, ("data that was deleted",))
    past.grpo.resolved["evaluate"] |= {"every": 5, "share": 0.4}
    past.grpo.save(update_fields=["resolved"])
    part = played(past, evaluation, past.tasks, "part", evaluate={"share": 0.4})
    assert not overlaps_of([part])[part.pk].learned  # the share that the run held out
    past.grpo.resolved["evaluate"]["share"] = 0.0
    past.grpo.save(update_fields=["resolved"])
    part.delete()
    (score, _other) = scores(past.model, origins_of(past.model))
    assert score.trained_on and score.overlap.words.startswith("these tasks are in data that was deleted")


def test_a_large_file_is_read_by_a_worker_and_not_where_a_page_asks(
    past: Past, evaluation: Callable[..., Run], make_dataset: Callable[..., Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    cache.clear()
    monkeypatch.setattr(rows.current_app, "send_task", lambda name, **over: sent.append((name, over["args"])))
    copy = make_dataset([task(1)], name="exam")
    run = played(past, evaluation, copy)
    monkeypatch.setattr(rows, "AT_ONCE_BYTES", copy.rows_path.stat().st_size - 1)
    assert overlaps_of([run])[run.pk].unknown == ("arithmetic@3", "chats@1")
    assert overlaps_of([run])[run.pk].unknown and sent == [("datasets.identify", [str(copy.pk)])]  # asked for once
    for dataset in (copy, past.tasks, past.chats):
        identify(str(dataset.pk))
    assert overlaps_of([run])[run.pk] == Overlap(1, 1, ("arithmetic@3",))
    assert (copy.rows_path.parent / IDENTITIES_NAME).is_file()


def test_a_file_of_just_the_size_is_read_at_once(
    make_dataset: Callable[..., Dataset], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = make_dataset([task(1), task(2)], name="exam")
    monkeypatch.setattr(rows, "AT_ONCE_BYTES", copy.rows_path.stat().st_size)
    found = rows.identities_of(copy.rows_path)
    assert found is not None and found.shape == (2, 4)
    assert rows.identities_of(tmp_path / "none.jsonl") is None


def test_what_no_trained_model_plays_was_learned_by_no_model(past: Past) -> None:
    data = {"data": {"train": str(past.tasks.rows_path)}, "environment": {"url": "http://127.0.0.1:1"}}
    for options in ({"model": {"source": "starter"}}, {"evaluate": {"policy": "empty"}}):
        config = JobConfig.model_validate({"kind": "evaluate"} | data | options)
        assert overlap_of(past.model.project, config) == Overlap()


def test_the_check_before_a_launch_names_held_out_tasks_that_the_model_learned_from(
    past: Past, make_dataset: Callable[..., Dataset]
) -> None:
    greetings = make_dataset([{"messages": [{"role": "user", "content": f"Say hello to guest {n}."}]} for n in (2, 7)])
    plan = JobConfig.model_validate(past.grpo.resolved)
    plan.evaluate.every, plan.evaluate.data = 5, str(greetings.rows_path)
    assert overlap_of_plan(past.grpo.project, plan) == Overlap(1, 2, ("chats@1",))
    found = held_out_check(past.grpo.project, plan)
    assert not found.ok and found.remark and found.path == "evaluate.data"
    sentence = "1 of 2 tasks are in chats@1, which it learned from: success on these tasks says little about others."
    assert found.message == sentence
    plan.model.source = "starter"
    assert overlap_of_plan(past.grpo.project, plan) == Overlap()


def test_conversations_that_the_warm_up_held_out_are_new_to_the_model(
    past: Past, make_dataset: Callable[..., Dataset]
) -> None:
    """A share of the demonstrations holds the same tasks out as that share of a GRPO run's data."""
    asked = [f"Say hello to guest {n}." for n in range(3)]
    first, second, _third = sorted(place_bits(plain_text(text)) / 2**64 for text in asked)
    past.warm.resolved["sft"]["held_out_share"] = (first + second) / 2
    past.warm.save(update_fields=["resolved"])
    greetings = make_dataset([{"messages": [{"role": "user", "content": text}]} for text in asked])
    plan = JobConfig.model_validate(past.grpo.resolved)
    plan.evaluate.every, plan.evaluate.data = 5, str(greetings.rows_path)
    assert overlap_of_plan(past.grpo.project, plan) == Overlap(2, 3, ("chats@1",))
