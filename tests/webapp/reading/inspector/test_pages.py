"""The inspector's page and its API: the address is the view."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.growth import queries_of
from tests.markup import dense
from tests.webapp.reading.inspector.conftest import BEGAN, Played
from webapp.people.teams.models import User
from webapp.reading.inspector import page as page_module
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

ClientFor = Callable[..., Client]


def address(run: Run, query: str = "") -> str:
    return f"{reverse('run-rollouts', args=[run.project.slug, run.pk])}?{query}"


def text_of(client: Client, url: str, **headers: str) -> str:
    answer = client.get(url, headers=headers)
    assert answer.status_code == 200, answer.content[:500]
    return unescape(dense(answer.content.decode()))


def test_the_page_shows_groups_outcomes_and_bars_that_are_links(
    played: Played, rita: User, client_for: ClientFor
) -> None:
    page = text_of(client_for(rita), address(played.run))
    assert re.search(r"8 rollouts ?</strong>", page) and page.count('class="found-row"') == 8
    assert "Step 1, group 0" in page and "mean 0.400, spread 0.500" in page and "Step 2, group 1" in page
    assert page.count('data-state="failed">failed</span>') >= 3 and "completed" not in page
    assert '<span class="badge" data-state="truncated">truncated</span>' in page
    assert "Timed out waiting for the environment." in page
    bar = re.search(r'<a href="(\?turns_from=3&turns_to=3)" aria-label="3: 1 rollout"', page)
    assert bar is not None
    narrowed = text_of(client_for(rita), address(played.run) + bar[1][1:])
    assert narrowed.count('class="found-row"') == 1 and "Turns ≥ 3, ≤ 3" in narrowed


def head(page: str, group: str) -> str:
    """The head of a group in the list."""
    found = re.search(rf"<header[^>]*>(?:(?!</header>).)*{group}(?:(?!</header>).)*</header>", page)
    assert found is not None, group
    return found[0]


def test_the_head_of_a_group_counts_all_of_it_and_says_what_it_teaches(
    played: Played, rita: User, client_for: ClientFor
) -> None:
    shown = head(text_of(client_for(rita), address(played.run, "outcome=solved")), "Step 1, group 0")
    assert re.findall(r'data-state="(\w+)">(\d+ \w+)<', shown) == [
        ("failed", "2 failed"), ("solved", "1 solved"), ("excluded", "1 excluded"),
    ]  # fmt: skip
    assert "phantom" not in shown and "no learning signal" not in shown
    group = Rollout.objects.filter(run=played.run, step=1)
    group.exclude(outcome="excluded").update(outcome="failed", parts={"task_success": 0.0})
    assert "phantom: outcomes equal" in head(text_of(client_for(rita), address(played.run)), "Step 1, group 0")
    group.exclude(outcome="excluded").update(reward=0.2)
    flat = head(text_of(client_for(rita), address(played.run)), "Step 1, group 0")
    assert "all rewards equal: no learning signal" in flat and "phantom" not in flat
    played.run.kind = "evaluate"
    played.run.save(update_fields=["kind"])
    assert "no learning signal" not in text_of(client_for(rita), address(played.run)), "nothing is learned from it"


def crowd(run: Run, groups: int, of: int, *, step: int = 3, **over: Any) -> None:
    """So many groups of failures, all with a reward of 0."""
    fields: dict[str, Any] = {"run": run, "attempt": 1, "step": step, "started_at": BEGAN, "seq": 1, "reward": 0.0}
    fields |= {"status": "completed", "outcome": "failed", "parts": {"task_success": 0.0}} | over
    Rollout.objects.bulk_create(
        Rollout(group=group, index=index, **fields) for group in range(groups) for index in range(of)
    )


def test_each_kind_of_signal_is_explained_once_on_a_page(played: Played, rita: User, client_for: ClientFor) -> None:
    crowd(played.run, 2, 3)
    for group in (0, 1):  # phantom: outcomes equal, rewards not
        crowd(played.run, 1, 2, step=4 + group)
        Rollout.objects.filter(run=played.run, step=4 + group, index=0).update(reward=0.5)
    page = text_of(client_for(rita), address(played.run, "step_from=3"))
    assert page.count("all rewards equal: no learning signal") == 2 and page.count("phantom: outcomes equal") == 2
    assert (page.count('id="term-no_signal"'), page.count('id="term-phantom"')) == (1, 1), "an id is there once"
    assert page.index('id="term-phantom"') < page.index("Step 4, group 0"), "the first of the page, which is the newest"


@pytest.mark.parametrize("more", [0, 1])
def test_the_rollouts_of_two_groups_of_64_are_drawn_and_of_one_more_none(
    make_run: Callable[..., Run], rita: User, client_for: ClientFor, more: int
) -> None:
    run = make_run(name="م" * 80, state="succeeded", attempt=1, step=3)
    crowd(run, 2, 64, task="احسب \u202e" + "x" * 400)
    crowd(run, more, 1, step=2)
    Rollout.objects.filter(run=run, index=0).update(outcome="partly")
    page = text_of(client_for(rita), address(run, "outcome=partly"))
    assert page.count("63 failed") == 2 and re.search(rf"{2 + more} rollouts ?</strong>", page)
    assert page.count('class="found-members"') == (0 if more else 2), "all of them or none"
    assert "م" * 80 in page and "\u202e" not in page


@pytest.mark.parametrize(("step", "links"), [(1, {"step-back": 0}), (100_000, {"step-back": 99_999})])
def test_a_run_without_rewards_of_one_step_or_very_many(
    make_run: Callable[..., Run], rita: User, client_for: ClientFor, step: int, links: dict[str, int]
) -> None:
    run = make_run(name="n" * 80, state="succeeded", attempt=1, step=step)
    crowd(run, 1, 2, step=step, reward=None, parts={f"part_{number}": None for number in range(200)})
    page = text_of(client_for(rita), address(run, f"step_from={step}&step_to={step}"))
    assert {name: f"?step_from={to}&step_to={to}" for name, to in links.items()}.items() <= bar_of(page).items()
    assert "step-next" not in bar_of(page) and page.count('title="reward">–<') == 2
    assert "2 failed" in page and "no learning signal" not in page


def test_groups_too_large_for_a_page_are_not_counted(
    played: Played, rita: User, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "MOST_MEMBERS", 7)  # of the eight
    shown = head(text_of(client_for(rita), address(played.run)), "Step 1, group 0")
    assert "mean 0.400" in shown and "1 solved" not in shown
    monkeypatch.setattr(page_module, "MOST_MEMBERS", 8)
    assert "1 solved" in head(text_of(client_for(rita), address(played.run)), "Step 1, group 0")


def test_a_group_that_is_still_played_has_no_signal_yet(played: Played, rita: User, client_for: ClientFor) -> None:
    Rollout.objects.filter(run=played.run, step=1).update(reward=0.2, parts={"task_success": 0.0})
    Rollout.objects.filter(pk=played.rows["lost"].pk).update(status="running", outcome="in_flight", reward=None)
    shown = head(text_of(client_for(rita), address(played.run)), "Step 1, group 0")
    assert "1 in flight" in shown and "no learning signal" not in shown


def test_each_row_leads_to_its_page_and_takes_the_view_along(played: Played, rita: User, client_for: ClientFor) -> None:
    query = "outcome=failed&sort=-surprise"
    page = text_of(client_for(rita), address(played.run, query))
    link = reverse("rollout-detail", args=[played.run.project.slug, played.rows["cut"].pk])
    assert f'href="{link}?found=outcome%3Dfailed%26sort%3D-surprise"' in page
    project = reverse("project-rollouts", args=[played.run.project.slug])
    assert f'href="{link}?found=outcome%3Dfailed&in=project"' in text_of(client_for(rita), f"{project}?outcome=failed")


def test_several_tools_and_runs_stay_chosen(played: Played, rita: User, client_for: ClientFor, make_run: Any) -> None:
    other = make_run(name="other", state="succeeded", attempt=1)
    project = reverse("project-rollouts", args=[played.run.project.slug])
    query = f"run={played.run.pk}&run={other.pk}&tool=calculator&tool=python"
    page = text_of(client_for(rita), f"{project}?{query}")
    checked = re.findall(r'type="checkbox" name="(run|tool)" value="([^"]+)" checked', page)
    assert sorted(checked) == sorted(
        [("run", str(played.run.pk)), ("run", str(other.pk)), ("tool", "calculator"), ("tool", "python")]
    )


def test_the_slider_spans_the_steps_of_the_run(played: Played, rita: User, client_for: ClientFor) -> None:
    page = text_of(client_for(rita), address(played.run, "outcome=solved"))
    assert page.count('type="range" min="1" max="2"') == 2
    Run.objects.filter(pk=played.run.pk).update(step=7)  # its bars may be of a sample that lacks the last steps
    assert text_of(client_for(rita), address(played.run)).count('type="range" min="1" max="7"') == 2
    Rollout.objects.filter(run=played.run, step=2).delete()
    played.run.step = 1
    played.run.save(update_fields=["step"])
    assert "step-range" not in text_of(client_for(rita), address(played.run))


def test_what_was_looked_for_is_marked_in_its_turn(played: Played, rita: User, client_for: ClientFor) -> None:
    page = text_of(client_for(rita), address(played.run, "q=9+*+5&sort=-reward"))
    assert page.count("<mark>9 * 5</mark>") == 2 and "I ask the calculator:<mark>" in page
    assert page.index("I ask the calculator") < page.index("I think that")
    assert text_of(client_for(rita), address(played.run, "q=天气")).count("<mark>天气</mark>") == 1


def test_turns_that_are_not_indexed_yet_are_mentioned(played: Played, rita: User, client_for: ClientFor) -> None:
    note = "still being indexed"
    assert note not in text_of(client_for(rita), address(played.run, "q=9+*+5"))
    Turn.objects.filter(rollout=played.rows["right"]).update(words=None)
    page = text_of(client_for(rita), address(played.run, "q=9+*+5"))
    assert note in page and page.count("<mark>") == 1


def test_an_empty_view_says_which_filter_to_clear(played: Played, rita: User, client_for: ClientFor) -> None:
    page = text_of(client_for(rita), address(played.run, "outcome=failed&tool=python&reward_from=0.5"))
    assert "No rollout matches" in page
    assert re.findall(r'<a href="([^"]+)">[^<]+</a><span class="num">(\d+) without it', page) == [
        ("?tool=python&reward_from=0.5", "0"),
        ("?outcome=failed&reward_from=0.5", "0"),
        ("?outcome=failed&tool=python", "1"),
    ]


def test_what_cannot_be_read_is_reported(played: Played, rita: User, client_for: ClientFor) -> None:
    page = text_of(client_for(rita), address(played.run, "outcome=won&q=*"))
    assert "Outcome: there is no “won”." in page and "two Chinese characters" in page


def test_a_run_without_rollouts_says_so(make_run: Callable[..., Run], rita: User, client_for: ClientFor) -> None:
    assert "No rollouts yet" in text_of(client_for(rita), address(make_run()))


def test_the_form_asks_for_a_part_alone(played: Played, rita: User, client_for: ClientFor) -> None:
    part = text_of(client_for(rita), address(played.run, "outcome=solved"), HX_Request="true")
    assert part.strip().startswith('<div id="inspector-found">') and "<form" not in part


def test_the_next_page_begins_where_this_one_ends(
    played: Played, rita: User, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "PER_PAGE", 5)
    first = text_of(client_for(rita), address(played.run, "sort=reward"))
    following = re.search(r'rel="next" href="\?([^"]+)"', first)
    assert following is not None
    last = text_of(client_for(rita), address(played.run, following[1]))
    assert last.count('class="found-row"') == 3 and 'rel="next"' not in last and "First page" in last


def test_a_run_at_work_asks_what_has_come_since(played: Played, rita: User, client_for: ClientFor) -> None:
    assert "rollouts/fresh/" not in text_of(client_for(rita), address(played.run))
    Run.objects.filter(pk=played.run.pk).update(state="running", seq=8)
    page = text_of(client_for(rita), address(played.run, "outcome=failed"))
    asked = re.search(r'hx-get="([^"]+rollouts/fresh/[^"]+)"', page)
    assert asked is not None and "since=8" in asked[1]
    assert "has advanced" not in text_of(client_for(rita), asked[1])
    Rollout.objects.filter(pk=played.rows["wrong"].pk).update(seq=99)
    Rollout.objects.filter(pk=played.rows["right"].pk).update(seq=98)  # of another outcome
    fresh = text_of(client_for(rita), asked[1])
    assert "1 rollout is new or has advanced since" in fresh and "rollouts/fresh/" in fresh
    Run.objects.filter(pk=played.run.pk).update(state="succeeded")
    assert "rollouts/fresh/" not in text_of(client_for(rita), asked[1])


def test_a_project_shows_all_of_its_runs(
    played: Played, make_run: Callable[..., Run], rita: User, client_for: ClientFor
) -> None:
    make_run(name="silent")
    url = reverse("project-rollouts", args=[played.run.project.slug])
    page = text_of(client_for(rita), url)
    assert page.count('class="found-row"') == 8 and "night · Step 1, group 0" in page and ">silent<" not in page
    assert text_of(client_for(rita), f"{url}?run={played.run.pk}&outcome=solved").count('class="found-row"') == 1


def test_only_editors_may_save_and_only_what_was_found(
    played: Played, bob: User, rita: User, client_for: ClientFor
) -> None:
    form = reverse("run-rollouts-save", args=[played.run.project.slug, played.run.pk])
    for query, seen in (("outcome=failed", True), ("outcome=failed&reward_from=0.9", False)):
        assert (f'href="{form}' in text_of(client_for(bob), address(played.run, query))) is seen, query
        assert form not in text_of(client_for(rita), address(played.run, query)), query


def test_the_run_page_leads_here(played: Played, rita: User, client_for: ClientFor) -> None:
    page = text_of(client_for(rita), reverse("run-detail", args=[played.run.project.slug, played.run.pk]))
    assert page.count(f'href="{address(played.run)[:-1]}"') >= 1


def test_a_page_costs_few_queries_however_many_rows(played: Played, alice: User, client_for: ClientFor) -> None:
    client = client_for(alice)
    many, one = (queries_of(client, address(played.run, query)) for query in ("reward_to=9", "outcome=solved"))
    assert many == one <= 15 and queries_of(client, address(played.run)) < many


def test_the_api_finds_the_same(played: Played, rita: User, client_for: ClientFor) -> None:
    def ask(tail: str, status: int = 200) -> Any:
        answer = client_for(rita).get(f"/api/v1/runs/{played.run.pk}/rollouts{tail}")
        assert answer.status_code == status, answer.content
        return answer.json()

    found = ask("?q=9+*+5&sort=-reward&per_page=1")
    assert (found["total"], found["more"], found["query"]) == (2, False, "q=9+%2A+5&sort=-reward")
    item = found["items"][0]
    assert (item["id"], item["outcome"], item["tools"]) == (str(played.rows["right"].pk), "solved", ["calculator"])
    assert item["snippet"] == {"turn": 1, "before": "I ask the calculator: ", "said": "9 * 5", "after": " is 45."}
    second = ask(f"?q=9+*+5&sort=-reward&per_page=1&after={found['next']}")
    assert [row["id"] for row in second["items"]] == [str(played.rows["wrong"].pk)] and second["next"] is None
    spread = ask("/spread?outcome=failed")
    assert spread["rows"] == 3 and spread["outcomes"] == [{"value": "failed", "count": 3}]
    assert {item["name"] for item in spread["histograms"]} >= {"reward", "part_tool_call"}
    assert ask("?outcome=won", 422)["message"] == "Outcome: there is no “won”."
    assert "two Chinese characters" in ask("?q=*", 422)["message"]
    project = client_for(rita).get(f"/api/v1/projects/{played.run.project.slug}/rollouts?outcome=solved").json()
    assert [row["id"] for row in project["items"]] == [str(played.rows["right"].pk)]


def rows_of(page: str) -> dict[str, str]:
    """The words of each row, by its place in its group."""
    row = r'<li class="found-row"[^>]*>.*?>([^<>]+)</a>.*?class="found-said"[^>]*>(.*?)</span> ?'
    rows = re.findall(f'{row}<span class="muted small found-figures', page)
    return {place: " ".join(re.sub("<[^>]+>", " ", words).split()) for place, words in rows}


def test_a_row_shows_the_models_last_words(played: Played, rita: User, client_for: ClientFor) -> None:
    """The list of figures did not say why a rollout failed."""
    call = {"id": "1", "name": "calculator", "arguments": {"expression": "9 * 5"}}
    last = [
        {"role": "assistant", "content": " ", "tool_calls": [call]},
        {"role": "tool", "content": "not the model's", "tool_call_id": "1"},
    ]
    for name in ("right", "mute"):
        Turn.objects.create(rollout=played.rows[name], run=played.run, number=2, messages=last, seq=99)
    Turn.objects.filter(rollout=played.rows["mute"], number=1).delete()
    Rollout.objects.filter(pk=played.rows["mute"].pk).update(tools=["calculator"])
    long = "a first sentence\n\n" + "x " * 300 + "so it is 54."
    Turn.objects.filter(rollout=played.rows["wrong"], number=1).update(
        messages=[{"role": "assistant", "content": "earlier"}, {"role": "assistant", "content": long}]
    )
    Turn.objects.filter(rollout=played.rows["open"], number=1).delete()
    for name, said in (("cut", 2), ("half", 4)):  # of five turns; the last three are read
        for number in range(2, 6):
            words = [{"role": "assistant", "content": "later" if number == said else ""}]
            Turn.objects.create(rollout=played.rows[name], run=played.run, number=number, messages=words, seq=99)
    page = text_of(client_for(rita), address(played.run))
    newest, alone, _held, first = (rows_of(part) for part in page.split("<header")[-4:])
    assert first["0"] == "I ask the calculator: 9 * 5 is 45."
    assert first["1"].startswith("…x x x") and first["1"].endswith("so it is 54.") and len(first["1"]) == 241
    assert first["3"] == "Timed out waiting for the environment. Nothing to say."
    assert newest["1"] == "no words in its last turns; it called calculator"
    assert first["2"].startswith("Cut off before the end no words in its last turns") and newest["0"] == "later"
    assert alone == {"0": "no words in its last turns"}
    assert page.count("the model's last words") == 1


def test_a_group_shows_the_expected_answer(
    played: Played, rita: User, client_for: ClientFor, make_dataset: Callable[..., Any]
) -> None:
    asked = [{"messages": [{"role": "user", "content": f"task {n}"}], "answer": f"the answer {n}"} for n in range(7)]
    data = make_dataset([*asked, {"messages": [{"role": "user", "content": "task 7"}]}], name="asked")
    held = make_dataset([{**row, "answer": "held " + row["answer"]} for row in asked], name="held")
    config = played.run.config
    resolved = config | {"data": config["data"] | {"train": str(data.rows_path)}}
    resolved["evaluate"] = config["evaluate"] | {"data": str(held.rows_path)}
    Run.objects.filter(pk=played.run.pk).update(resolved=resolved)
    client = client_for(rita)
    page = text_of(client, address(played.run))
    assert "expected: the answer 0" in head(page, "Step 1, group 0")
    assert "expected: held the answer 6" in page and "expected: the answer 6" not in page
    assert "expected:" not in head(page, "Step 2, group 1"), "its row names none"
    by_reward = text_of(client, address(played.run, "sort=reward&outcome=failed"))
    assert "task of wrong · expected: the answer 1" in by_reward
    one, many = (queries_of(client, address(played.run, query)) for query in ("outcome=solved", "reward_to=9"))
    assert one == many
    data.delete()
    assert "expected: the answer" not in text_of(client, address(played.run))


def bar_of(page: str) -> dict[str, str]:
    """The links of the steps of a view, by what they are called."""
    links = re.findall(r'data-key="(step-\w+)"[^>]*href="([^"]*)"|id="(step-follow)" href="([^"]*)"', page)
    return {name or other: link or elsewhere for name, link, other, elsewhere in links}


def test_the_list_goes_step_by_step(played: Played, rita: User, client_for: ClientFor) -> None:
    client, run = client_for(rita), played.run
    assert bar_of(text_of(client, address(run))) == {"step-follow": "?newest=yes"}
    second = text_of(client, address(run, "outcome=failed&step_from=2&step_to=2"))
    assert bar_of(second) == {
        "step-back": "?outcome=failed&step_from=1&step_to=1",
        "step-follow": "?outcome=failed&newest=yes",
    }, "it is the last step of a run that has ended"
    first = text_of(client, address(run, "step_from=1&step_to=1"))
    assert bar_of(first)["step-next"] == "?step_from=2&step_to=2" and 'id="step-input"' in first
    assert bar_of(first)["step-back"] == "?step_from=0&step_to=0"
    assert "step-input" not in text_of(client, address(run, "step_from=1&step_to=2"))
    newest = text_of(client, address(run, "newest=yes"))
    assert newest.count('class="found-row"') == 3 and "Newest step: yes" in newest, "without the one that was held out"
    assert bar_of(newest) == {"step-back": "?step_from=1&step_to=1"} and 'hx-trigger="every 2s"' not in newest
    assert 'role="link" aria-disabled="true"' in dense(newest), "a link without an address has no role of its own"
    none = text_of(client, address(run, "newest=yes&outcome=excluded"))
    assert bar_of(none)["step-back"] == "?outcome=excluded&step_from=1&step_to=1", (
        "also where the step has none of these"
    )
    project = reverse("project-rollouts", args=[run.project.slug])
    assert text_of(client, f"{project}?newest=yes").count('class="found-row"') == 3
    assert "found-steps" not in text_of(client, project)


def test_the_newest_step_is_that_of_the_newest_attempt(played: Played, rita: User, client_for: ClientFor) -> None:
    place = {"run": played.run, "attempt": 2, "step": 1, "group": 0, "index": 0, "started_at": BEGAN, "seq": 50}
    Rollout.objects.create(**place, status="running", outcome="in_flight")
    found = client_for(rita).get(f"/api/v1/runs/{played.run.pk}/rollouts?newest=yes").json()
    assert [(row["attempt"], row["step"]) for row in found["items"]] == [(2, 1)]


def test_a_page_that_follows_is_drawn_again_when_something_changed(
    played: Played, rita: User, client_for: ClientFor
) -> None:
    client, run = client_for(rita), played.run
    Run.objects.filter(pk=run.pk).update(state="running", seq=40)
    page = text_of(client, address(run, "newest=yes"))
    assert 'hx-get="?newest=yes&since=40"' in page and 'id="step-following"' in page and "rollouts/fresh" not in page
    ask = {"HX-Request": "true", "HX-Target": "found-list"}

    def again(since: int) -> int:
        return client.get(address(run, f"newest=yes&since={since}"), headers=ask).status_code

    assert (again(40), again(8), again(6)) == (204, 204, 200), "8 is the last change of that step"
    part = text_of(client, address(run, "newest=yes&since=6"), **ask)
    assert part.startswith('<div class="found-list" id="found-list">') and "Why they failed" not in part
    Run.objects.filter(pk=run.pk).update(state="succeeded")
    assert again(40) == 200 and "every 2s" not in text_of(client, address(run, "newest=yes&since=40"), **ask)


def opened(page: str) -> str:
    """The rollout that the page opens next to the list."""
    found = re.search(r'id="found-pane"[^>]*data-rollout="([^"]*)"', page)
    assert found is not None
    return found[1]


def test_the_first_failure_is_opened(played: Played, rita: User, client_for: ClientFor) -> None:
    client, run, rows = client_for(rita), played.run, played.rows
    assert opened(text_of(client, address(run, "step_to=1"))) == str(rows["wrong"].pk)
    assert opened(text_of(client, address(run))) == str(rows["half"].pk), "partly is not solved"
    assert opened(text_of(client, address(run, "outcome=solved"))) == str(rows["right"].pk), "else the first"
    assert opened(text_of(client, address(run, "outcome=solved&reward_to=0"))) == ""
    asked = text_of(client, address(run, f"rollout={rows['right'].pk}"))
    assert opened(asked) == str(rows["right"].pk)
    assert f'data-rollout="{rows["right"].pk}" aria-current="true"' in asked
    assert opened(text_of(client, address(run, "rollout=x"))) == str(rows["half"].pk)


def test_a_row_says_why_and_a_group_shows_all_of_its_rollouts(
    played: Played, rita: User, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = text_of(client_for(rita), address(played.run, "outcome=failed&step_to=1"))
    assert rows_of(page)["2"] == "Cut off before the end 今天天气很好，我们需要先查询"
    assert rows_of(page)["1"] == "I think that 9 * 5 is 54.", "no expected answer is known, so no cause is"
    shown = head(page, "Step 1, group 0")
    assert re.findall(r'data-state="(\w+)" (?:data-reward="(\d)" )?tabindex', shown) == [
        ("solved", "5"), ("failed", "1"), ("failed", "0"), ("excluded", ""),
    ]  # fmt: skip
    monkeypatch.setattr(page_module, "MOST_DRAWN", 3)
    assert "found-members" not in text_of(client_for(rita), address(played.run, "outcome=failed&step_to=1"))
