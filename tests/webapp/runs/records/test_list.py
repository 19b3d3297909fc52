"""The list of runs as a team's list: what it shows, filters, columns, stars, and acts on several runs at once."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from webapp.common.serving import CsvResponse, csv_lines
from webapp.people.teams.models import AuditEntry, Project
from webapp.runs.models import Attempt, Run, RunColumns, RunStar
from webapp.runs.records import columns
from webapp.runs.records.columns import DRAWN, USUAL, columns_for, columns_keep, columns_named, table_rows
from webapp.runs.records.listing import run_list, run_tags
from webapp.runs.records.marks import run_label, run_star, runs_archive, runs_tag, tags_of

pytestmark = pytest.mark.django_db


def _config(make_run: Any, spec: str = "", **over: Any) -> Run:
    run: Run = make_run(**over)
    run.config = run.config | {
        "rewards": {"spec": spec, "components": []},
        "model": {"source": "model:small"},
        "data": {"train": "dataset:tasks@3"},
    }
    run.save(update_fields=["config"])
    return run


def _url(name: str, project: Project, *rest: Any) -> str:
    return reverse(name, args=[project.slug, *rest])


# --- What a line shows --- -------------------------------------------------------------------------------------------
def test_a_line_shows_success_spec_model_and_device_time(project: Any, make_run: Any, alice: Any) -> None:
    run = _config(make_run, "reward:tool@2", success=0.75, heldout_success=0.5, last_reward=0.9, created_by=alice)
    now = timezone.now()
    for number, seconds in ((1, 60), (2, 30)):
        began = now - timedelta(hours=number)
        Attempt.objects.create(
            run=run, number=number, owner="w", started_at=began, ended_at=began + timedelta(seconds=seconds)
        )
    row = run_list(project).rows[0]
    assert (row.success, row.heldout, row.success_range) == (0.75, 0.5, None)
    assert (row.spec, row.model, row.dataset, row.owner) == ("tool@2", "small", "tasks@3", "alice")
    assert row.device_seconds == pytest.approx(90) and not row.starred


def test_the_figures_of_an_ended_evaluation_come_before_its_last_steps(project: Any, make_run: Any) -> None:
    figures = {"success": {"value": 0.4, "low": 0.3, "high": 0.52, "tasks": 100}}
    make_run(name="evaluated", kind="evaluate", success=0.9, evaluation={"figures": figures})
    make_run(name="better", success=0.5)
    make_run(name="nothing")
    rows = run_list(project, sort="-success").rows
    assert [row.run.name for row in rows] == ["better", "evaluated", "nothing"]
    assert (rows[1].success, rows[1].success_range, rows[2].success) == (0.4, (0.3, 0.52), None)


# --- Filters --------------------------------------------------------------------------------------------------------
def test_filters_by_tag_spec_star_text_and_archive(project: Any, make_run: Any, alice: Any, bob: Any) -> None:
    _config(make_run, "reward:tool@2", name="one", tags=["best", "v2"])
    two = _config(make_run, "reward:tool@1", name="two", tags=["best"], notes="Learning rate was too high")
    _config(make_run, name="old", archived_at=timezone.now(), tags=["best"])
    run_star(run=two, user=alice, on=True)

    def names(user: Any = None, **filters: Any) -> list[str]:
        return [row.run.name for row in run_list(project, filters, "name", user=user).rows]

    assert names() == ["one", "two"] and names(archived="1") == ["old"]
    assert names(tags=["best"]) == ["one", "two"] and names(tags=["best", "v2"]) == ["one"]
    assert [row.run.name for row in run_list(project, {}, "no such column").rows] == ["two", "one"], "the newest first"
    assert names(tags=["none"]) == [] and names(spec="tool@2") == ["one"] and names(spec="tool") == []
    assert names(q="rate WAS") == ["two"] and names(q="ON") == ["one"]
    assert names(alice, starred="1") == ["two"] and names(bob, starred="1") == []
    assert [row.starred for row in run_list(project, sort="name", user=alice).rows] == [False, True]
    assert run_tags(project) == ["best", "v2"]


def test_the_address_is_the_view(client_for: Any, project: Any, rita: Any, make_run: Any) -> None:
    _config(make_run, name="alpha", tags=["best"])
    _config(make_run, name="beta")
    page = client_for(rita).get(_url("run-list", project), {"tag": "best", "cols": "model,started"}).content.decode()
    assert "alpha" in page and ">beta<" not in page
    assert ">Model<" in page.replace("\n", "").replace("  ", "") and "Success</a>" not in page
    odd = client_for(rita).get(_url("run-list", project), {"tag": "'\x00", "cols": "<b>", "spec": "\x00", "q": "%"})
    assert odd.status_code == 200 and "No run matches" in odd.content.decode()


# --- Columns --------------------------------------------------------------------------------------------------------
def test_columns_are_kept_for_one_person_and_project(
    client_for: Any, project: Any, elsewhere: Any, rita: Any, bob: Any
) -> None:
    client, home = client_for(rita), _url("run-list", project)
    columns_keep(project=elsewhere, user=rita, keys=["tags"])
    to = client.post(
        _url("run-columns", project),
        {"column": ["started", "model", "password"]},
        headers={"Referer": f"http://testserver{home}?q=a&cols=state"},
    )
    assert to["Location"] == f"{home}?q=a&cols=model,started"
    assert [column.key for column in columns_for(project, rita)] == ["model", "started"]
    assert tuple(column.key for column in columns_for(project, bob)) == USUAL
    assert [column.key for column in columns_for(project, rita, "tags,x")] == ["tags"]
    assert client.post(_url("run-columns", project), {"usual": "1"})["Location"] == home
    assert [row.project for row in RunColumns.objects.all()] == [elsewhere], "that of another project stays"
    columns_keep(project=project, user=bob, keys=["tags"])
    assert tuple(column.key for column in columns_keep(project=project, user=rita, keys=USUAL)) == USUAL
    assert [row.user for row in RunColumns.objects.filter(project=project)] == [bob], "another person's choice stays"


def test_the_way_back_leads_nowhere_else(client_for: Any, project: Any, rita: Any, make_run: Any) -> None:
    run, home = make_run(), _url("run-list", project)
    for next_page in ("https://evil.example/p/joust/runs/", "//evil.example/", "/site/", "javascript:alert(1)"):
        to = client_for(rita).post(_url("run-star", project, run.pk), {"on": "1", "next": next_page})
        assert to["Location"] == home
    to = client_for(rita).post(_url("run-star", project, run.pk), {"on": "1", "next": f"{home}?tag=a"})
    assert to["Location"] == f"{home}?tag=a"


# --- Stars ----------------------------------------------------------------------------------------------------------
def test_a_star_is_one_persons(client_for: Any, project: Any, rita: Any, bob: Any, make_run: Any) -> None:
    run = make_run()
    url = _url("run-star", project, run.pk)
    part = client_for(rita).post(url, {"on": "1"}, headers={"HX-Request": "true"}).content.decode()
    assert 'aria-pressed="true"' in part and "<html" not in part
    client_for(rita).post(url, {"on": "1"})
    assert client_for(rita).get(url, {"on": "0"}).status_code == 405
    assert [star.user for star in RunStar.objects.all()] == [rita]
    pressed = f'id="star-{run.pk}" name="on" value="0"'
    assert pressed in client_for(rita).get(_url("run-list", project)).content.decode()
    assert pressed not in client_for(bob).get(_url("run-list", project)).content.decode()
    shown = [client_for(user).get(_url("run-detail", project, run.pk)).context["starred"] for user in (rita, bob)]
    assert shown == [True, False]
    client_for(bob).post(url, {"on": "1"})
    off = client_for(rita).post(url, {"on": "0"}, headers={"HX-Request": "true"}).content.decode()
    assert 'aria-pressed="false"' in off and [star.user for star in RunStar.objects.all()] == [bob]
    client_for(bob).post(url, {"on": "0"})
    assert not RunStar.objects.exists() and not AuditEntry.objects.exists()


# --- Tags and notes -------------------------------------------------------------------------------------------------
def test_what_may_be_a_tag() -> None:
    assert tags_of(" Best, v2；lr:1e-4  best 中文 ") == ["best", "v2", "lr:1e-4", "中文"]
    assert tags_of(["a", " b "]) == ["a", "b"] and tags_of("") == []
    for bad in ("<b>", "-a", "a" * 31, "a\x00"):
        with pytest.raises(ValidationError):
            tags_of([bad])
    with pytest.raises(ValidationError):
        tags_of(["two words"])


def test_the_tags_of_the_project_are_read_when_the_editor_is_opened(
    client_for: Any, project: Project, bob: Any, rita: Any, make_run: Any
) -> None:
    run, _other = make_run(tags=["mine"]), make_run(tags=["zeta", "theirs"])
    url, client = _url("run-label", project, run.pk), client_for(bob)
    with CaptureQueriesContext(connection) as asked:
        page = client.get(_url("run-detail", project, run.pk)).content.decode()
    assert f'hx-get="{url}"' in page and "theirs" not in page and 'value="mine"' in page
    assert not [query for query in asked if 'unnest("runs_run"."tags")' in query["sql"]]
    part = client.get(url).content.decode()
    assert "This project has: mine, theirs, zeta" in " ".join(part.split())
    assert part.count("<option") == 3 and "<html" not in part
    assert client_for(rita).get(url).status_code == 403
    assert url not in client_for(rita).get(_url("run-detail", project, run.pk)).content.decode()


def test_notes_and_tags_are_written_on_the_run_page(client_for: Any, project: Any, bob: Any, make_run: Any) -> None:
    run = make_run(tags=["old"])
    url = _url("run-label", project, run.pk)
    page = client_for(bob).post(url, {"tags": "Best v2", "notes": "<b>Good</b>\r\nline"}, follow=True).content.decode()
    run.refresh_from_db()
    assert run.tags == ["best", "v2"] and run.notes == "<b>Good</b>\nline"
    assert "&lt;b&gt;Good&lt;/b&gt;<br>line" in page and "<b>Good" not in page
    page = client_for(bob).post(url, {"tags": "no!", "notes": "x"}, follow=True).content.decode()
    run.refresh_from_db()
    assert "cannot be a tag" in page and run.notes == "<b>Good</b>\nline"
    client_for(bob).post(url, {"notes": ""})
    run.refresh_from_db()
    assert (run.tags, run.notes) == (["best", "v2"], "")
    assert AuditEntry.objects.filter(action="run_labelled", subject=run.name).count() == 2
    client_for(bob).post(url, {"notes": ""})
    assert AuditEntry.objects.count() == 2, "what changes nothing leaves no row"
    labelled = run_label(run=run, user=bob, notes="n" * 4000, tags=[f"t{n}" for n in range(10)])
    assert (len(labelled.notes), labelled.tags[-1]) == (4000, "t9")
    for words in ({"notes": "n" * 4001}, {"tags": " ".join(f"t{n}" for n in range(11))}):
        with pytest.raises(ValidationError):
            run_label(run=run, user=bob, **words)


def test_several_runs_are_tagged_all_or_none(client_for: Any, project: Any, bob: Any, make_run: Any) -> None:
    full = make_run(name="full", tags=[f"t{n}" for n in range(10)])
    free = make_run(name="free", tags=["old", "keep"])
    client, url = client_for(bob), _url("run-tag", project)
    shown = client.get(url, {"c": [full.pk, "no id", make_run(name="a last", tags=["zeta"]).pk, free.pk]})
    assert [run.name for run in shown.context["chosen"]] == ["a last", "free", "full"]
    assert shown.context["theirs"] == ["keep", "old", *[f"t{n}" for n in range(10)], "zeta"]
    assert "Tag 3 runs" in shown.content.decode() and 'value="old"' in shown.content.decode()
    answer = client.post(url, {"c": [full.pk, free.pk], "add": "new", "remove": "old"})
    assert answer.status_code == 422 and "full: A run has at most 10 tags." in answer.content.decode()
    free.refresh_from_db()
    assert free.tags == ["old", "keep"]
    to = client.post(url, {"c": [free.pk], "add": "new", "remove": ["old"], "next": _url("run-list", project) + "?q=f"})
    free.refresh_from_db()
    assert free.tags == ["keep", "new"] and to["Location"].endswith("/runs/?q=f")
    assert list(AuditEntry.objects.values_list("action", "subject")) == [("run_labelled", "free")]
    assert runs_tag(runs=[free], user=bob, add="new", remove="") == 0
    assert AuditEntry.objects.count() == 1


def test_marks_are_of_one_run_and_one_person(project: Any, bob: Any, rita: Any, make_run: Any) -> None:
    one, other = make_run(tags=["a"], state="failed"), make_run(tags=["a"], state="failed")
    run_label(run=one, user=bob, tags="b", notes="mine")
    other.refresh_from_db()
    assert (other.tags, other.notes) == (["a"], "")
    runs_archive(runs=[one], user=bob)
    assert list(Run.objects.exclude(archived_at=None)) == [one]
    runs_archive(runs=[other], user=bob)
    runs_archive(runs=[one], user=bob, on=False)
    assert list(Run.objects.exclude(archived_at=None)) == [other]
    for run, user in ((one, bob), (one, rita), (other, rita)):
        run_star(run=run, user=user, on=True)
    run_star(run=one, user=rita, on=False)
    assert set(RunStar.objects.values_list("run", "user")) == {(one.pk, bob.pk), (other.pk, rita.pk)}


# --- The archive ----------------------------------------------------------------------------------------------------
def test_archived_runs_are_hidden_counted_and_taken_back(
    client_for: Any, project: Any, bob: Any, rita: Any, make_run: Any
) -> None:
    ended, active = make_run(name="ended", state="failed"), make_run(name="active", state="running")
    client, url, home = client_for(bob), _url("run-archive", project), _url("run-list", project)
    asked = client.get(url, {"c": [ended.pk, active.pk, "x"]}).content.decode()
    assert "Archive 2 runs" in asked and "1 run has not ended" in asked
    text = client.post(url, {"c": [ended.pk, active.pk]}, follow=True).content.decode()
    assert "1 run was archived." in text and "1 run has not ended and stays in the list." in text
    page = client_for(rita).get(home).content.decode()
    assert ">ended<" not in page and "1 archived run" in page and 'href="?archived=1"' in page
    hidden = client_for(rita).get(home, {"archived": "1"}).content.decode()
    assert ">ended<" in hidden and ">active<" not in hidden
    assert ">ended<" not in client_for(rita).get(f"/p/{project.slug}/").content.decode()
    client.post(url, {"c": [ended.pk], "on": "0"})
    assert ">ended<" in client_for(rita).get(home).content.decode()
    acts = list(AuditEntry.objects.order_by("id").values_list("action", "subject"))
    assert acts == [("run_archived", "ended"), ("run_restored", "ended")]


def test_nothing_chosen_says_what_to_do(client_for: Any, project: Any, bob: Any, charlie: Any, make_run: Any) -> None:
    elsewhere = make_run(project=charlie.teams.get().projects.get(), state="failed")
    for name in ("run-tag", "run-archive", "run-csv"):
        page = client_for(bob).get(
            _url(name, project), {"c": [str(elsewhere.pk)]} if name != "run-csv" else {}, follow=True
        )
        assert "Tick the boxes" in page.content.decode()
    client_for(bob).post(_url("run-archive", project), {"c": [elsewhere.pk]})
    elsewhere.refresh_from_db()
    assert elsewhere.archived_at is None


# --- CSV and the API ------------------------------------------------------------------------------------------------
def _table(answer: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode("utf-8-sig"))))


def test_the_csv_has_the_lists_columns(client_for: Any, project: Any, rita: Any, make_run: Any) -> None:
    one = _config(make_run, "reward:tool@2", name="one", success=0.5, tags=["a", "b"], notes="=1+1")
    _config(make_run, name="two")
    _config(make_run, name="gone", archived_at=timezone.now())
    client, url = client_for(rita), _url("run-csv", project)
    rows = _table(client.get(url, {"all": "1", "sort": "name", "cols": "success,spec,tags,trend"}))
    assert rows == [
        {"name": "one", "kind": "grpo", "success": "0.5", "spec": "tool@2", "tags": "a b", "notes": "'=1+1"},
        {"name": "two", "kind": "grpo", "success": "", "spec": "", "tags": "", "notes": ""},
    ]
    chosen = _table(client.get(url, {"c": [one.pk]}))
    assert [row["name"] for row in chosen] == ["one"] and set(chosen[0]) == {"name", "kind", "notes", *USUAL} - {
        "trend"
    }


def test_a_csv_is_sent_while_its_lines_are_made() -> None:
    """Where the server is asynchronous: the header before a row is asked for, then piece by piece."""
    made: list[int] = []

    def rows() -> Any:
        for number in range(450):
            made.append(number)
            yield [number, "é"]

    async def sent() -> list[tuple[int, bytes]]:
        answer = CsvResponse(csv_lines(["n", "text"], rows()), "a.csv")
        assert answer["Content-Disposition"] == 'attachment; filename="a.csv"'
        assert answer["X-Content-Type-Options"] == "nosniff"
        return [(len(made), piece) async for piece in answer]

    pieces = asyncio.run(sent())
    assert [count for count, _piece in pieces] == [0, 200, 400, 450]
    lines = b"".join(piece for _count, piece in pieces).decode("utf-8-sig").splitlines()
    assert lines == ['"n","text"', *(f'"{number}","é"' for number in range(450))]


def test_the_cells_say_and_escape_what_they_hold(project: Any, make_run: Any, alice: Any) -> None:
    now = timezone.now()
    first = make_run(name="first", state="running", step=3, total_steps=8, attempt=1, last_event_at=now)
    make_run(name="waits", state="queued", after=first)
    make_run(name="checked", state="draft", phase="checking", tags=["a"])
    error = {"code": "odd", "message": 'It <b>died</b>. "Q"', "hint": "Look."}
    make_run(name="bad", state="failed", error=error, last_reward=0.5, success=0.25)
    make_run(name="silent", state="running", attempt=1, total_steps=0, last_event_at=now - timedelta(hours=2))
    _config(make_run, "reward:tool@2", name="named", last_reward=0.5)
    own = make_run(name="own", last_reward=0.5)
    own.config["rewards"] = {"components": [{"name": "format", "weight": 1.0}]}
    own.save(update_fields=["config"])
    rows = {row.run.name: row for row in run_list(project).rows}
    found = {name: {key: draw(row) for key, draw in DRAWN.items()} for name, row in rows.items()}
    state = {name: str(row["state"]) for name, row in found.items()}
    assert state["first"] == '<span><span class="badge" data-state="running">running</span></span>'
    assert "after first" in state["waits"] and "being checked" in state["checked"]
    assert 'data-state="stale">No progress for 2 h 0 min' in state["silent"]
    assert "It &lt;b&gt;died&lt;/b&gt;. &quot;Q&quot;" in state["bad"] and "<b>" not in state["bad"]
    assert found["bad"]["success"] == "25%" and "default components" in str(found["bad"]["reward"])
    assert "tool@2" in str(found["named"]["reward"]) and "own components" in str(found["own"]["reward"])
    assert str(found["first"]["step"]) == (
        '<span>3<span class="muted"> / 8</span><progress class="progress progress-cell" max="8" value="3"'
        ' aria-hidden="true"></progress></span>'
    )
    assert "progress" not in str(found["bad"]["step"])
    assert 'max="1" value="0"' in str(found["silent"]["step"]), "a bar of no length is not drawn full"
    assert "just now" in str(found["bad"]["created"]) and found["bad"]["started"] == "–"


def test_a_row_holds_and_escapes_what_people_wrote(project: Any, make_run: Any, alice: Any) -> None:
    evil = '"><script>alert(1)</script>'
    run = make_run(name=evil, kind="grpo", tags=["a/b&c"], notes=evil, success=0.5)
    make_run(name="plain", kind="sft", notes="x" * 80 + evil)
    shown = columns.heads(columns_named(["success", "tags"]))
    of = {row.run.name: row for row in run_list(project).rows}

    def drawn(name: str, csrf: str = "") -> str:
        return str(table_rows([of[name]], shown, project.slug, csrf)[0])

    page, at = drawn(evil, 'token"'), f"/p/{project.slug}/runs/{run.pk}/"
    assert "<script" not in page and 'value="token&quot;"' in page
    escaped = "&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"
    assert f'<a href="{at}">{escaped}</a> <span class="tag">GRPO</span>' in page
    assert f'value="{run.pk}" id="pick-{run.pk}" form="compare-form" aria-label="Choose {escaped}">' in page
    assert f'action="{at}star/" hx-post="{at}star/"' in page and f'aria-label="Star {escaped}">' in page
    assert 'name="on" value="1" aria-pressed="false"' in page
    assert f'<span class="cell-sub" title="{escaped}">{escaped}</span>' in page
    assert '<td class="num" data-live data-label="Success">50%</td>' in page
    assert (
        f'<td data-label="Tags"><span class="tags"><a class="tag" href="/p/{project.slug}/runs/?tag=a/b%26c"'
        ' title="Runs tagged a/b&amp;c">a/b&amp;c</a></span></td>'
    ) in page
    assert escaped in (folded := drawn("plain", "token")) and "<script" not in folded
    assert f"<summary>{'x' * 69}…</summary>" in folded and '<td data-label="Tags"></td>' in folded
    bare = drawn(evil)  # where runs are only shown
    assert "<script" not in bare and not any(part in bare for part in ("<input", "<form", "cell-sub"))


def test_the_api_lists_labels_archives_and_stars(
    client_for: Any, project: Any, bob: Any, rita: Any, make_run: Any
) -> None:
    run = _config(make_run, "reward:tool@2", name="one", state="failed", success=0.5)
    make_run(name="two", state="running")
    client, at = client_for(bob), f"/api/v1/runs/{run.pk}"

    def patch(body: dict[str, Any], person: Any = client, address: str = at) -> Any:
        return person.patch(address, json.dumps(body), content_type="application/json")

    shown = patch({"tags": ["Best"], "notes": "Good."}).json()
    assert (shown["tags"], shown["notes"], shown["archived"]) == (["best"], "Good.", False)
    assert patch({"tags": ["no!"]}).status_code == 422 and patch({"stars": 1}).status_code == 422
    assert patch({"notes": "x"}, client_for(rita)).status_code == 403
    client.post(f"{at}/star", json.dumps({"starred": True}), content_type="application/json")
    listed = client.get(f"/api/v1/projects/{project.slug}/runs", {"tag": "best", "starred": "true"}).json()
    (item,) = listed["items"]
    assert (item["name"], item["starred"], item["success"], item["reward_spec"]) == ("one", True, 0.5, "tool@2")
    assert patch({"archived": True}).json()["archived"] is True
    assert [row["name"] for row in client.get(f"/api/v1/projects/{project.slug}/runs").json()["items"]] == ["two"]
    assert client.get(f"/api/v1/projects/{project.slug}/runs", {"archived": "true"}).json()["total"] == 1
    other = Run.objects.get(name="two")
    refused = patch({"archived": True}, address=f"/api/v1/runs/{other.pk}")
    assert refused.status_code == 409 and patch({"archived": False}).json()["archived"] is False


def test_archiving_twice_is_done_once(project: Any, bob: Any, make_run: Any) -> None:
    run = make_run(state="succeeded")
    assert runs_archive(runs=[run], user=bob) == (1, 0) and runs_archive(runs=[run], user=bob) == (0, 0)
    assert AuditEntry.objects.count() == 1
