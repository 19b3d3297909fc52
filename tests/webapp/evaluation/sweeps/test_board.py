"""Which change of a sweep brought which gain: the sentence, the rows, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from tests.evaluations import play
from tests.growth import MOST_QUERIES
from tests.markup import dense
from tests.webapp.evaluation.sweeps.conftest import Solved, hold_out, runs_of, train, try_of
from training.evaluation import ALPHA
from webapp.evaluation.sweeps.board import Board, board_of
from webapp.launch.models import Sweep
from webapp.people.teams.models import Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.removal.services import remove
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
RATE, SEED, RANK = "optim.learning_rate", "run.seed", "model.lora_rank"
MakeSweep = Callable[..., Sweep]


def solved(count: int, of: int = 40) -> Solved:
    """The first ``count`` tasks are solved."""
    return {task: [float(task < count)] for task in range(of)}


def held(sweep: Sweep, *counts: int | Solved) -> Board:
    """The board of a sweep whose runs solved so many of the tasks that they held out."""
    for run, count in zip(runs_of(sweep), counts, strict=True):
        hold_out(run, solved(count) if isinstance(count, int) else count)
    return board_of(sweep)


def words(board: Board) -> list[str]:
    return [row.setting.word for row in board.rows]


def test_the_change_that_helped_is_named_with_its_gain(make_sweep: MakeSweep) -> None:
    board = held(make_sweep([(RATE, [1e-5, 3e-5, 1e-4])], config={"optim": {"learning_rate": 1e-5}}), 16, 36, 16)
    assert board.answer.kind == "helped"
    assert board.answer.text == (
        "Learning rate 3e-5 helped: +50.0 points of success over 1e-5 (95% interval 31.8 to 63.4, 40 tasks)."
    )
    assert words(board) == ["base", "helped", "equal"] and not board.going_on
    base, better, same = board.rows
    assert (base.gain, base.p, base.compare) == ("–", "", "")
    assert (better.gain, better.ends, better.verdict) == ("+50.0", "31.8 to 63.4", "helped")
    assert (same.gain, same.p, same.verdict) == ("+0.0", "p = 1", "no difference shown")
    assert [row.success.text for row in board.rows] == ["40%", "90%", "40%"]
    assert [row.success.tasks for row in board.rows] == [40, 40, 40]
    assert board.answer.left_out == [
        "Success on held-out tasks with the weights after the last step, paired by task.",
        "The p-values are corrected for 2 comparisons having been made (Holm).",
        "No setting has results of two seeds: how far success moves by the seed alone is not known.",
    ]


def test_of_several_gains_the_largest_is_named(make_sweep: MakeSweep) -> None:
    board = held(make_sweep([(RATE, [1e-5, 3e-5, 1e-4])]), 10, 25, 38)
    assert board.answer.text.startswith("2 of 2 changes helped, most of all Learning rate 1e-4: +70.0 points")


def test_where_no_change_helps_the_one_that_hurts_is_named(make_sweep: MakeSweep) -> None:
    board = held(make_sweep([(RATE, [1e-5, 3e-5])]), 36, 16)
    assert board.answer.kind == "hurt" and words(board) == ["base", "hurt"]
    assert board.answer.text.startswith(
        "No change helped; Learning rate 3e-5 hurt: −50.0 points of success over 1e-5 ("
    )


def test_no_difference_shown_is_an_answer(make_sweep: MakeSweep) -> None:
    board = held(make_sweep([(RATE, [1e-5, 3e-5])]), 20, 22)
    assert board.answer.kind == "equal"
    assert board.answer.text.startswith(
        "No difference is shown; the largest: Learning rate 3e-5, +5.0 points of success"
    )
    assert not any("Holm" in sentence for sentence in board.answer.left_out), "one comparison needs no correction"


def test_p_values_are_corrected_for_all_settings(make_sweep: MakeSweep) -> None:
    """Six tasks won and none lost are p = 0.031 alone, 0.094 among three."""
    alone = held(make_sweep([(RATE, [1e-5, 3e-5])]), 20, 26)
    assert words(alone) == ["base", "helped"] and alone.rows[1].p == "p = 0.031"
    among = held(make_sweep([(RATE, [1e-5, 3e-5, 1e-4, 3e-4])], name="more"), 20, 26, 20, 20)
    assert words(among) == ["base", "equal", "equal", "equal"] and among.rows[1].p == "p = 0.094"
    assert among.figures.compared == 3 and ALPHA == 0.05


def test_seeds_are_pooled_by_task_and_their_spread_is_said(make_sweep: MakeSweep) -> None:
    board = held(make_sweep([(RATE, [1e-5, 3e-5]), (SEED, [1, 2])]), 10, 12, 36, 38)
    assert [row.values for row in board.rows] == [["1e-5"], ["3e-5"]], "a row for each setting, not for each run"
    assert [row.success.text for row in board.rows] == ["27.5%", "92.5%"]
    assert [row.success.tasks for row in board.rows] == [40, 40], "tasks, not tries"
    assert board.rows[1].setting.by_seed == [0.9, 0.95] and board.rows[1].setting.spread == pytest.approx(0.05)
    assert board.answer.kind == "helped" and "by up to 5.0 points" in " ".join(board.answer.left_out)


def test_a_gain_no_larger_than_the_spread_of_seeds_is_not_called_one(make_sweep: MakeSweep) -> None:
    board = held(make_sweep([(RATE, [1e-5, 3e-5]), (SEED, [1, 2])]), 0, 20, 10, 36)
    assert board.rows[1].setting.gain is not None and (board.rows[1].setting.gain.p_value or 1) <= ALPHA
    assert words(board) == ["base", "seeds"] and board.answer.kind == "seeds"
    assert board.answer.text.startswith("No difference beyond the spread between seeds is shown; the largest:")


@pytest.mark.parametrize(("second", "word"), [(24, "seeds"), (32, "seeds"), (33, "helped")])
def test_the_larger_spread_of_the_two_settings_counts(make_sweep: MakeSweep, second: int, word: str) -> None:
    """The base has one of 50 points, the other one of 10 points; a gain of 50 points is not larger."""
    board = held(make_sweep([(RATE, [1e-5, 3e-5]), (SEED, [1, 2])]), 0, 20, second - 4, second)
    assert [row.setting.spread for row in board.rows] == pytest.approx([0.5, 0.1])
    assert words(board) == ["base", word] and board.answer.kind == word


def test_seeds_alone_are_one_setting(make_sweep: MakeSweep) -> None:
    board = held(make_sweep([(SEED, [1, 2, 3])]), 20, 24, 28)
    assert board.answer.kind == "repeats"
    assert board.answer.text == (
        "One setting, 3 seeds: success 60% (95% interval 45.8% to 72.5%, 40 tasks), from 50% to 70% between seeds."
    )
    assert words(board) == ["base"] and board.rows[0].values == [] and board.plot is None


def test_one_change_at_a_time_compares_each_with_the_form(make_sweep: MakeSweep) -> None:
    config = {"optim": {"learning_rate": 1e-5}, "model": {"lora_rank": 8}}
    board = held(make_sweep([(RATE, [3e-5]), (RANK, [16])], config=config, mode="single"), 16, 17, 36)
    assert board.answer.text.startswith("LoRA rank 16 helped: +50.0 points of success over 8 (")
    assert words(board) == ["base", "equal", "helped"]
    assert not any(sentence.startswith("Alone") for sentence in board.answer.left_out)


def test_a_setting_of_two_changes_says_what_each_brought_alone(make_sweep: MakeSweep) -> None:
    """The order is that of the axes, which the database does not keep in objects."""
    board = held(make_sweep([(RATE, [1e-5, 3e-5]), (RANK, [8, 16])]), 10, 11, 12, 38)
    assert board.options == ["Learning rate", "LoRA rank"] and board.rows[3].values == ["3e-5", "16"]
    assert board.answer.text.startswith(
        "Learning rate 3e-5, LoRA rank 16 helped: +70.0 points of success over 1e-5, 8 ("
    )
    assert [sentence.partition(" points")[0] for sentence in board.answer.left_out[:2]] == [
        "Alone, Learning rate 3e-5 brought +5.0", "Alone, LoRA rank 16 brought +2.5",
    ]  # fmt: skip
    assert board.plot is not None and [row.contestant.title for row in board.plot.rows] == [
        "LoRA rank 16", "Learning rate 3e-5", "Learning rate 3e-5, LoRA rank 16",
    ]  # fmt: skip


def test_while_runs_are_at_work_it_says_how_many(make_sweep: MakeSweep) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5, 1e-4])])
    base, better, late = runs_of(sweep)
    hold_out(base, solved(10))
    hold_out(better, solved(38))
    Run.objects.filter(pk=late.pk).update(state=RunState.RUNNING)
    board = board_of(sweep)
    assert board.answer.kind == "running" and board.going_on
    assert board.answer.text.startswith(
        "Still running: 2 of 3 runs have ended. So far: Learning rate 3e-5 helped: +70.0"
    )
    assert board.rows[2].verdict == "not ended" and board.rows[2].success.text == "–"
    Run.objects.filter(pk=better.pk).update(state=RunState.QUEUED)
    assert board_of(sweep).answer.text == "Still running: 1 of 3 runs have ended."


def test_what_failed_or_is_gone_is_missing_and_never_0(make_sweep: MakeSweep) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5, 1e-4])])
    base, failed, gone = runs_of(sweep)
    hold_out(base, solved(10))
    hold_out(failed, solved(0))
    Run.objects.filter(pk=failed.pk).update(state=RunState.FAILED)
    gone.delete()
    board = board_of(sweep)
    assert [row.success.text for row in board.rows] == ["25%", "–", "–"]
    assert [row.verdict for row in board.rows] == ["base", "no result", "no result"] and board.rows[2].missing == 1
    assert board.answer.text == "No answer: no other setting has a figure of success to compare."
    assert "Left out, because they have not succeeded: rates-1 (failed)." in board.answer.left_out
    assert "1 run of the sweep was deleted." in board.answer.left_out


def test_without_the_base_nothing_is_compared(make_sweep: MakeSweep) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5])])
    base, other = runs_of(sweep)
    hold_out(other, solved(10))
    Run.objects.filter(pk=base.pk).update(state=RunState.CANCELLED)
    found = board_of(sweep)
    assert "Learning rate 1e-5, has no figure of success" in found.answer.text and words(found) == [
        "nothing",
        "nothing",
    ]
    Run.objects.filter(pk=other.pk).update(state=RunState.FAILED)
    assert board_of(sweep).answer.text == "No answer: no run has succeeded."


def test_methods_that_play_nothing_are_sent_to_an_evaluation(make_sweep: MakeSweep) -> None:
    board = board_of(make_sweep([(RATE, [1e-5, 3e-5])], config={"kind": "sft"}))
    assert board.answer.text.startswith("No answer: no setting has a figure of success. Evaluate their models")
    assert words(board) == ["nothing", "nothing"] and [row.verdict for row in board.rows] == ["no result"] * 2


def test_without_held_out_tasks_the_last_steps_are_compared_unpaired(make_sweep: MakeSweep) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5])])
    base, better = runs_of(sweep)
    better.step = 50
    better.save(update_fields=["step"])
    train(base, solved(10))
    train(better, solved(38))
    for run in (base, better):
        try_of(run, 99, 0, 1.0, step=run.step - 10)  # before the last tenth
    try_of(base, 99, 0, 1.0, step=50)  # in the last tenth of the other run
    board = board_of(sweep)
    assert [row.success.text for row in board.rows] == ["25%", "95%"]
    assert board.answer.text.startswith("Learning rate 3e-5 helped: +70.0 points of success over 1e-5 (95% interval 5")
    assert "so not paired" in board.answer.left_out[0] and "Hold tasks out" in board.answer.left_out[0]


def test_of_the_held_out_tasks_the_last_evaluation_of_each_run_counts(make_sweep: MakeSweep) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5])])
    base, better = runs_of(sweep)
    better.step = 50
    better.save(update_fields=["step"])
    for run, count in ((base, 10), (better, 38)):
        hold_out(run, solved(count))
        train(run, solved(20))
    for task in range(40):
        try_of(base, task, 0, 1.0, step=50, held_out=True)  # the last step of the other run
        try_of(better, task, 0, 0.0, step=25, held_out=True)
    board = board_of(sweep)
    assert board.figures.tries.kind == "held_out" and [row.success.text for row in board.rows] == ["25%", "95%"]


@pytest.mark.parametrize(("judge", "shown"), [("exact_match", ["25%", "95%"]), ("numeric_match", ["–", "–"])])
def test_settings_are_compared_by_a_judge_that_both_have(make_sweep: MakeSweep, judge: str, shown: list[str]) -> None:
    component = {"name": "right", "function": "exact_match", "weight": 1.0}
    sweep = make_sweep([(RATE, [1e-5, 3e-5])], config={"rewards": {"components": [component]}})
    base, better = runs_of(sweep)
    better.resolved["rewards"]["components"][0]["function"] = judge
    better.save(update_fields=["resolved"])
    for run, count in ((base, 10), (better, 38)):
        for task in range(40):
            try_of(run, task, 0, 0.0, env_parts={}, parts={"right": float(task < count)})
    assert [row.success.text for row in board_of(sweep).rows] == shown


@pytest.mark.parametrize(
    ("steps", "first"), [(1, 1), (9, 9), (10, 10), (11, 10), (100, 91), (101, 91), (100_000, 90_001)]
)
def test_the_last_tenth_is_rounded_up(make_sweep: MakeSweep, steps: int, first: int) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5])])
    Run.objects.update(step=steps)
    for run in runs_of(sweep):
        try_of(run, 0, 0, 1.0, step=first)
        try_of(run, 1, 0, 0.0, step=first - 1)
    assert [row.success.text for row in board_of(sweep).rows] == ["100%", "100%"]


def test_a_setting_without_held_out_tasks_sends_all_to_the_same_evidence(make_sweep: MakeSweep) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5])])
    base, other = runs_of(sweep)
    hold_out(base, solved(40))
    train(base, solved(10))
    train(other, solved(10))
    board = board_of(sweep)
    assert board.figures.tries.kind == "training" and [row.success.text for row in board.rows] == ["25%", "25%"]


def test_evaluations_of_the_models_on_the_same_tasks_are_paired(
    make_sweep: MakeSweep, evaluation: Callable[..., Run]
) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5])])
    runs = runs_of(sweep)
    played = [
        evaluation(f"exam-{number}", {task: [value] for task, value in enumerate(tries)})
        for number, tries in enumerate(([0, 0, 0, 1], [1, 1, 1, 1]))
    ]
    for run, exam in zip(runs, played, strict=True):
        exam.resolved["model"]["source"] = f"/data/runs/{run.pk}/1/model"
        exam.save()
        train(run, solved(20))
    board = board_of(sweep)
    assert board.figures.tries.kind == "evaluated" and [row.success.text for row in board.rows] == ["25%", "100%"]
    assert "Success of the models' evaluations on tasks@1, paired by task." in board.answer.left_out
    assert all(f"c={exam.pk}" in board.compare for exam in played), "what was played is compared, not the trainings"
    played[1].delete()
    assert board_of(sweep).figures.tries.kind == "training", "one of two is not enough"


def test_of_several_evaluations_the_newest_on_the_tasks_that_most_played_counts(
    make_sweep: MakeSweep, evaluation: Callable[..., Run], make_dataset: Any
) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5])])
    base, better = runs_of(sweep)
    other = make_dataset(name="other")

    def examined(name: str, run: Run, value: float, **over: Any) -> Run:
        exam = evaluation(name, {task: [value] for task in range(4)}, **over)
        exam.resolved["model"]["source"] = f"/data/runs/{run.pk}/1/model"
        exam.save()
        return exam

    examined("first", base, 1.0)
    exams = [examined("second", base, 0.0), examined("better", better, 1.0)]
    examined("alone", better, 0.0, dataset=other)
    board = board_of(sweep)
    assert board.figures.tries.kind == "evaluated" and [row.success.text for row in board.rows] == ["0%", "100%"]
    assert board.figures.tries.by == {base.pk: exams[0], better.pk: exams[1]}


def test_a_sweep_of_evaluations_is_compared_by_its_own_tries(
    make_sweep: MakeSweep, evaluation: Callable[..., Run], tasks: Any
) -> None:
    config = {"kind": "evaluate", "data": {"train": tasks.reference}}
    sweep = make_sweep([("rollout.temperature", [0.5, 1.0])], config=config)
    for run, value in zip(runs_of(sweep), (0.0, 1.0), strict=True):
        run.config["rewards"]["components"] = [{"name": "env_success", "weight": 1.0, "params": {}}]
        run.resolved["data"]["train"] = str(tasks.rows_path)
        run.save()
        for task in range(4):
            play(run, task, 0, value, lambda success: {"env_success": success})
    board = board_of(sweep)
    assert board.figures.tries.kind == "played"
    assert [row.success.text for row in board.rows] == ["0%", "100%"]
    assert board.answer.left_out[0] == "Success of the evaluations themselves, paired by task."


@pytest.mark.parametrize("option", ["data.train", "environment.name"])
def test_settings_that_trained_on_other_tasks_are_not_compared(make_sweep: MakeSweep, option: str) -> None:
    sweep = make_sweep([(option, ["a", "b"])])
    for run, count in zip(runs_of(sweep), (10, 38), strict=True):
        train(run, solved(count))
    board = board_of(sweep)
    assert words(board) == ["base", "apart"] and board.rows[1].verdict == "other tasks" and board.plot is None
    assert board.answer.text.startswith("No answer: the settings played different tasks.")
    assert [row.success.text for row in board.rows] == ["25%", "95%"], "each has its own figure"


def test_of_other_held_out_data_no_task_is_shared(make_sweep: MakeSweep) -> None:
    board = held(make_sweep([("data.train", ["a", "b"])]), 10, 38)
    assert board.figures.tries.kind == "held_out" and words(board) == ["base", "apart"]
    same = held(make_sweep([("data.train", ["a", "b"])], config={"evaluate": {"data": "c"}}, name="same"), 10, 38)
    assert words(same) == ["base", "helped"] and same.answer.kind == "helped"


def test_excluded_tries_are_no_failures(make_sweep: MakeSweep) -> None:
    lost: Solved = {task: [None] if task < 20 else [1.0] for task in range(40)}
    board = held(make_sweep([(RATE, [1e-5, 3e-5])]), lost, 40)
    assert board.rows[0].success.text == "100%" and board.rows[0].success.tasks == 20


def test_the_page_answers_first(
    make_sweep: MakeSweep, client_for: Callable[..., Client], rita: User, project: Project
) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5]), (SEED, [1, 2])], name="速率 sweep")
    held(sweep, 10, 12, 36, 38)
    runs_of(sweep)[3].delete()
    page = client_for(rita).get(reverse("sweep-detail", args=[project.slug, sweep.pk])).content.decode()
    text = dense(page)
    assert text.index("Which change helped?") < text.index("Learning rate 3e-5 helped") < text.index('id="settings"')
    assert "seed 1" in text and "deleted" in text and "Side by side with the base" in text
    assert f'href="{reverse("run-list", args=[project.slug])}?sweep={sweep.pk}"' in page
    listed = dense(client_for(rita).get(reverse("sweep-list", args=[project.slug])).content.decode())
    assert "速率 sweep" in listed and "1e-5, 3e-5" in listed and "3 of 3 ended" in listed


@pytest.mark.parametrize("there", [False, True])
def test_only_editors_are_led_to_the_form_of_a_new_sweep(
    make_sweep: MakeSweep, client_for: Callable[..., Client], rita: User, bob: User, project: Project, there: bool
) -> None:
    if there:
        make_sweep([(SEED, [1, 2])])
    address, form = (
        reverse("sweep-list", args=[project.slug]),
        f'href="{reverse("run-new", args=[project.slug])}#sweep"',
    )
    buttons = {user.email: client_for(user).get(address).content.decode().count(form) for user in (bob, rita)}
    assert buttons == {bob.email: 1 if there else 2, rita.email: 0}


def test_strangers_and_other_projects_do_not_see_it(
    make_sweep: MakeSweep, client_for: Callable[..., Client], charlie: User, bob: User, project: Project
) -> None:
    sweep = make_sweep([(SEED, [1, 2])])
    assert client_for(charlie).get(reverse("sweep-detail", args=[project.slug, sweep.pk])).status_code == 404
    assert client_for(charlie).get(reverse("sweep-detail", args=["elsewhere", sweep.pk])).status_code == 404
    make_sweep([(SEED, [1, 2, 3])], name="theirs", project=Project.objects.get(slug="elsewhere"))
    other = make_sweep([(SEED, [1, 2, 3, 4, 5])], name="other")
    states = [RunState.RUNNING, RunState.FAILED, RunState.CANCELLED, RunState.SUCCEEDED]
    *ended, gone = runs_of(other)
    for run, state in zip(ended, states, strict=True):
        Run.objects.filter(pk=run.pk).update(state=state)
    remove(gone)
    lines = client_for(bob).get(reverse("sweep-list", args=[project.slug])).context["lines"]
    assert [(line.sweep, line.runs, line.ended, line.lost) for line in lines] == [(other, 4, 3, 2), (sweep, 2, 2, 0)]


def test_a_large_sweep_asks_as_often_as_a_small_one(
    make_sweep: MakeSweep,
    client_for: Callable[..., Client],
    rita: User,
    project: Project,
    django_assert_max_num_queries: Any,
) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5, 1e-4, 3e-4]), (SEED, range(8))])
    for run in runs_of(sweep):
        hold_out(run, solved(2, of=4))
    client, address = client_for(rita), reverse("sweep-detail", args=[project.slug, sweep.pk])
    with django_assert_max_num_queries(MOST_QUERIES):
        assert client.get(address).status_code == 200


@pytest.mark.parametrize(("rates", "drawn"), [([1e-5, 2e-5], True), ([1e-5, 2e-5, 3e-5], False)])
def test_there_are_curves_of_eight_settings_and_none_of_more(
    make_sweep: MakeSweep, rates: list[float], drawn: bool
) -> None:
    sweep = make_sweep([(RATE, rates), (RANK, [4, 8, 16] if not drawn else [4, 8, 16, 32])])
    for run in runs_of(sweep):
        for step in (1, 2):
            MetricPoint.objects.create(run=run, attempt=1, seq=step, step=step, name="rollouts/task_success", value=0.5)
    curves = board_of(sweep).curves
    assert len(runs_of(sweep)) == (8 if drawn else 9) and (curves is not None) is drawn
    assert curves is None or [line["setting"] for line in curves["runs"]] == list(range(8))


def test_the_answer_is_in_the_readers_language(make_sweep: MakeSweep) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5])])
    held(sweep, 10, 38)
    with translation.override("zh-hans"):
        assert "3e-5" in board_of(sweep).answer.text


def test_the_page_of_a_run_links_its_sweep(make_sweep: Any, make_run: Any, bob: User, client_for: Any) -> None:
    sweep = make_sweep([("run.seed", [1, 2])])
    run = runs_of(sweep)[0]
    page = client_for(bob).get(reverse("run-detail", args=[sweep.project.slug, run.pk])).content.decode()
    assert reverse("sweep-detail", args=[sweep.project.slug, sweep.pk]) in page
    other = make_run(name="alone")
    page = client_for(bob).get(reverse("run-detail", args=[sweep.project.slug, other.pk])).content.decode()
    assert "of the sweep" not in page
