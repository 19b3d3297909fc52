"""What a shared link shows to anyone, and all that it does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from training.redaction import redact
from webapp.common.logs import LineFormatter, RedactFilter
from webapp.evaluation.sharing.models import SavedComparison
from webapp.evaluation.sharing.services import Query, comment_add, comparison_save, link_create, link_revoke
from webapp.people.teams import logins
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.removal.services import remove

pytestmark = pytest.mark.django_db
GATED = [{"name": "env_success", "weight": 0.8, "params": {}}, {"name": "format", "weight": 0.2, "params": {}}]
# What a page may name: styles and pictures of ours, and the file next to it.
ALLOWED = re.compile(r"/static/(css|img)/[\w./-]+(#\w+)?|report\.html")


@pytest.fixture
def secret(saved: SavedComparison, bob: User) -> str:
    return link_create(saved=saved, user=bob, days=7)[1]


def _named(page: str) -> list[str]:
    return re.findall(r'(?:href|src|action|data-[\w-]*url)="([^"]*)"', page)


def test_the_report_is_there_without_an_account(secret: str, saved: SavedComparison) -> None:
    answer = Client().get(f"/s/{secret}/")
    page = answer.content.decode()
    assert answer.status_code == 200 and "<h1>week 47</h1>" in page
    assert "run-b and run-a cannot be told apart: success +50.0 points" in page
    assert "No difference can be shown: +50 points of success for run-b (95% interval " in page
    figures = re.findall(r'forest-value">\s*<strong>([^<]*)<', page)
    assert figures == ["87.5%", "37.5%", "+50.0"], "the better one first, and how far it is ahead"
    assert "even" in page and "odd" in page, "the categories"
    assert "Shared by <strong>bob</strong> on " in page and "valid until " in page
    assert f"{timezone.now() + timedelta(days=7):%Y-%m-%d}" in page


def test_it_names_nothing_else(secret: str, saved: SavedComparison, bob: User, project: Project) -> None:
    comment_add(saved=saved, user=bob, text="not for outsiders")
    page = Client().get(f"/s/{secret}/").content.decode()
    wrong = [name for name in _named(page) if not ALLOWED.fullmatch(name)]
    assert wrong == []
    hidden = ("<script", "<form", "csrf", "not for outsiders", "/p/", "joust", "Joust", "Knights", secret, "/login")
    assert [text for text in hidden if text in page] == []
    ids = [str(pk) for pk in (saved.pk, project.pk, bob.pk, *saved.run_ids)]
    assert not [pk for pk in ids if pk in page]
    assert "task 1" not in page and "solved</" not in page and "given up" not in page, "a task or its transcript"


def test_no_cache_keeps_it(secret: str) -> None:
    """Neither a cache, a search engine, the next page's log, nor the browser: no cookie is set."""
    for address in (f"/s/{secret}/", f"/s/{secret}/report.html", "/s/nothing/", "/s/nothing/report.html"):
        answer = Client().get(address)
        assert (answer["Cache-Control"], answer["Referrer-Policy"]) == ("private, no-store", "no-referrer")
        assert answer["X-Robots-Tag"] == "noindex, nofollow, noarchive" and answer["X-Frame-Options"] == "DENY"
        assert answer["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self';")
        assert not answer.cookies and "Cookie" not in answer.get("Vary", "")
    assert (
        '<meta name="robots" content="noindex, nofollow, noarchive">' in Client().get(f"/s/{secret}/").content.decode()
    )


def test_a_person_who_is_logged_in_sees_the_same(
    client_for: Callable[..., Client], alice: User, charlie: User, secret: str
) -> None:
    pages = [client_for(user).get(f"/s/{secret}/") for user in (None, alice, charlie)]
    assert len({answer.content for answer in pages}) == 1 and not any(answer.cookies for answer in pages)


def test_it_only_reads(secret: str) -> None:
    for method in ("post", "put", "patch", "delete"):
        assert getattr(Client(), method)(f"/s/{secret}/").status_code == 405


def test_wrong_revoked_and_expired_answer_alike(saved: SavedComparison, bob: User) -> None:
    revoked, one = link_create(saved=saved, user=bob, days=7)
    _link, two = link_create(saved=saved, user=bob, days=1)
    link_revoke(revoked)
    with time_machine.travel(timezone.now() + timedelta(days=2)):
        answers = [
            Client().get(f"/s/{secret}/{tail}")
            for secret in (one, two, "guess", "x" * 43, "x" * 5000, "%00", "☃", "-", one + "x", one[:-1], one.upper())
            for tail in ("", "report.html")
        ]
    assert {answer.status_code for answer in answers} == {404} and len({answer.content for answer in answers}) == 1
    page = answers[0].content.decode()
    assert "This link does not exist or has ended" in page and "Ask the sender for a new one." in page
    assert "<a " not in page and "<form" not in page


@pytest.mark.parametrize(
    ("language", "sentence"),
    [("zh-CN,zh;q=0.9", "此链接不存在或已失效"), ("de", "This link does not exist or has ended")],
)
def test_it_speaks_the_language_of_the_browser(secret: str, language: str, sentence: str) -> None:
    assert sentence in Client().get("/s/guess/", headers={"Accept-Language": language}).content.decode()
    page = Client().get(f"/s/{secret}/", headers={"Accept-Language": language}).content.decode()
    assert ("由 <strong>bob</strong> 于 " in page) == language.startswith("zh")


# --- How often --------------------------------------------------------------------------------------------------------
def test_guesses_are_limited_by_address_and_close_no_link_that_exists(
    secret: str, saved: SavedComparison, bob: User
) -> None:
    """Thirty wrong secrets closed every shared link to all behind that address."""
    revoked, ended = link_create(saved=saved, user=bob, days=7)
    link_revoke(revoked)
    guesser, reader = Client(REMOTE_ADDR="10.0.0.9"), Client(REMOTE_ADDR="10.0.0.10")
    for number in range(logins.GUESSES_PER_ADDRESS):
        assert guesser.get(f"/s/guess-{number}/").status_code == 404
        assert guesser.get(f"/s/{secret}/").status_code == 200, "what exists opens, and is no guess"
    refused = [guesser.get(f"/s/{name}/") for name in ("guess", ended, "x" * 5000)]
    assert [answer.status_code for answer in refused] == [429, 429, 429], "what ended answers as what never was"
    assert 0 < int(refused[0]["Retry-After"]) <= logins.WINDOW_S
    assert "Too many links were opened from where you are. Try again in " in refused[1].content.decode()
    assert guesser.get("/s/guess/report.html").status_code == 429
    assert refused[0]["Cache-Control"] == "private, no-store" and not refused[0].cookies
    assert guesser.get(f"/s/{secret}/").status_code == guesser.get(f"/s/{secret}/report.html").status_code == 200
    assert reader.get("/s/guess/").status_code == 404, "another person pays for the guesses"
    logins.LoginThrottle.objects.update(until=timezone.now())
    assert guesser.get("/s/guess/").status_code == 404, "the window is over"


def test_openings_are_limited_by_address(
    secret: str, saved: SavedComparison, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = link_create(saved=saved, user=bob, days=7)[1]
    monkeypatch.setattr(logins, "OPENS_PER_ADDRESS", 3)
    assert [Client().get(f"/s/{secret}/").status_code for _n in range(5)] == [200, 200, 200, 429, 429]
    assert Client(REMOTE_ADDR="10.1.1.1").get(f"/s/{secret}/").status_code == 200
    assert Client().get(f"/s/{other}/").status_code == 200, "another link is closed by it"
    later = timedelta(seconds=logins.WINDOW_S + 1)
    logins.LoginThrottle.objects.update(until=timezone.now() - later)
    assert Client().get(f"/s/{secret}/").status_code == 200


def test_logs_do_not_hold_the_secret(
    secret: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "OPENS_PER_ADDRESS", 0)
    monkeypatch.setattr(logins, "GUESSES_PER_ADDRESS", 0)
    for _twice in range(2):  # the first one makes the rows that then count
        answer = Client().get(f"/s/{secret}/")
    assert answer.status_code == 429  # refused here, and still open elsewhere
    record = next(record for record in caplog.records if record.name == "django.request")
    RedactFilter().filter(record)
    line = LineFormatter().format(record)
    assert "Too Many Requests: /s/***/" in line and "GET '/s/***/'" in line and secret not in line
    assert redact(f"Too Many Requests: /s/{secret}/report.html") == "Too Many Requests: /s/***/report.html"
    assert redact(f"GET /s/{secret} 404") == "GET /s/*** 404"
    assert redact("units: 40 tok/s/device, https://a.b/c/s/x") == "units: 40 tok/s/device, https://a.b/c/s/x"


# --- The file ---------------------------------------------------------------------------------------------------------
def test_the_file_needs_nothing_else_and_does_not_tell_the_link(secret: str) -> None:
    answer = Client().get(f"/s/{secret}/report.html")
    page = answer.content.decode()
    assert answer["Content-Disposition"] == 'attachment; filename="comparison.html"'
    assert _named(page) == [] and "url(" not in page.split("<style>")[1].split("</style>")[0].replace("url(data:", "")
    assert "run-b and run-a cannot be told apart" in page and ".forest-point" in page
    assert secret not in page and "testserver" not in page and "<script" not in page


# --- What it leaves out -----------------------------------------------------------------------------------------------
def test_addresses_and_keys_are_left_out_of_the_options(
    project: Project, bob: User, evaluation: Callable[..., Run], client_for: Callable[..., Client]
) -> None:
    a = evaluation("a", {0: [1]})
    endpoint = {"url": "http://10.1.2.3:8001/v1", "model": "gpt-oss-20b", "key_variable": "TEAM_KEY"}
    b = evaluation("b", {0: [0]}, endpoint=endpoint)
    Run.objects.filter(pk=a.pk).update(
        config=a.config | {"data": a.config["data"] | {"validation": "/srv/secret.jsonl"}}
    )
    saved = comparison_save(project=project, user=bob, name="x", query=Query([str(a.pk), str(b.pk)]))
    shared = Client().get(f"/s/{link_create(saved=saved, user=bob, days=1)[1]}/")
    private = client_for(bob).get(f"/p/joust/compare/saved/{saved.pk}/")
    paths = [
        {row.path for group in answer.context["found"].options for row in group.rows} for answer in (shared, private)
    ]
    untold = {"data.validation", "endpoint.url", "endpoint.key_variable"}
    assert paths == [{"endpoint.model"}, {"endpoint.model", *untold}]
    page, inside = shared.content.decode(), private.content.decode()
    for hidden in ("10.1.2.3", "TEAM_KEY", "/srv/secret.jsonl"):
        assert hidden in inside and hidden not in page
    assert "gpt-oss-20b" in page and "Addresses of servers and places of files are left out." in page


def test_rewards_of_different_specs_are_not_shown_side_by_side(
    project: Project, bob: User, evaluation: Callable[..., Run]
) -> None:
    a = evaluation("a", {0: [1]})
    b = evaluation("b", {0: [1]}, components=GATED, parts=lambda s: {"env_success": s, "format": 0.5})
    for spec, shown in (
        ("", "so they are not shown side by side."),
        (str(a.pk), "All recorded tries are weighed again by a."),
    ):
        query = Query([str(a.pk), str(b.pk)], spec=spec)
        saved = comparison_save(project=project, user=bob, name=f"by {spec[:4]}x", query=query)
        page = Client().get(f"/s/{link_create(saved=saved, user=bob, days=1)[1]}/").content.decode()
        assert shown in page and ('data-label="Reward"' in page) == bool(spec)


def test_a_run_that_was_deleted_is_named_and_then_nothing_is_left(secret: str, two: tuple[Run, Run]) -> None:
    remove(two[0])
    page = Client().get(f"/s/{secret}/").content.decode()
    assert "There is nothing to compare any more" in page and "left out of it: run-a." in page
    assert _named(page) and not [name for name in _named(page) if not ALLOWED.fullmatch(name)]
    assert Client().get(f"/s/{secret}/report.html").status_code == 200


def test_names_come_out_escaped(project: Project, bob: User, saved: SavedComparison, two: tuple[Run, Run]) -> None:
    Run.objects.filter(pk=two[0].pk).update(name="<img src=x onerror=x9x()>")
    page = Client().get(f"/s/{link_create(saved=saved, user=bob, days=1)[1]}/").content.decode()
    assert "<img" not in page and "&lt;img src=x" in page


def test_runs_that_train_have_no_verdict(project: Project, bob: User, make_run: Any) -> None:
    runs = [make_run(name="one"), make_run(name="two")]
    saved = comparison_save(project=project, user=bob, name="x", query=Query([str(run.pk) for run in runs]))
    page = Client().get(f"/s/{link_create(saved=saved, user=bob, days=1)[1]}/").content.decode()
    assert (
        "No answer: none of these runs is an evaluation or has played held-out tasks." in page
        and "What differs" in page
    )
