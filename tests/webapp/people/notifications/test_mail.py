"""Notifications by mail: whom they reach, what they say, and what a mail server may answer."""

from __future__ import annotations

import smtplib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.mail import EmailMultiAlternatives
from django.test import Client

from tests.webapp.people.notifications.conftest import work_off
from webapp.common.text import in_words
from webapp.people.notifications.models import Delivery, Event, Kind, Reader, Watch
from webapp.people.notifications.selectors import last_mail
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.django_db(transaction=True)
FACTS = {"error": {"code": "storage_full", "boundary": "storage", "message": "<b>4 MB</b> are left.", "hint": ""}}


@pytest.fixture(autouse=True)
def _server(sent: list[str], settings: Any) -> None:
    settings.EMAIL_HOST, settings.DEFAULT_FROM_EMAIL = "mail.example.org", "Tiltyard <ty@example.org>"


@pytest.fixture
def watching(project: Project, bob: User) -> User:
    """bob wants mail of his runs."""
    Watch.objects.create(user=bob, project=project, scope="mine", mail=True)
    return bob


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def send(self: EmailMultiAlternatives, fail_silently: bool = False) -> int:
        raise error

    monkeypatch.setattr(EmailMultiAlternatives, "send", send)


def test_a_mail_has_text_and_html_a_link_and_its_deliverys_id(
    watching: User, alice: User, happened: Callable[..., Event], mailoutbox: list[Any]
) -> None:
    event = happened(Kind.RUN_FAILED, facts=FACTS)
    work_off()
    work_off()
    (mail,) = mailoutbox
    delivery = Delivery.objects.get()
    assert (mail.to, mail.from_email) == (["bob@example.org"], "Tiltyard <ty@example.org>")
    assert mail.subject == f"[Joust] Run “{event.subject}” failed"
    assert mail.extra_headers["Message-ID"] == f"<{delivery.pk}@example.org>"
    link = f"http://127.0.0.1:8000/p/joust/runs/{event.object_id}/"
    assert "The disk is full." in mail.body and link in mail.body and "<b>4 MB</b>" in mail.body
    ((html, kind),) = mail.alternatives
    assert kind == "text/html" and f'href="{link}"' in html
    assert "&lt;b&gt;4 MB&lt;/b&gt;" in html and "<b>" not in html
    assert (delivery.state, delivery.attempts) == ("sent", 1)


def test_mail_is_in_the_readers_language(watching: User, happened: Callable[..., Event], mailoutbox: list[Any]) -> None:
    Reader.objects.create(user=watching, language="zh-hans")
    event = happened(Kind.RUN_FAILED, facts=FACTS)
    work_off()
    assert mailoutbox[0].subject == f"[Joust] 训练任务“{event.subject}”失败"
    assert "磁盘已满" in mailoutbox[0].body and 'lang="zh-hans"' in mailoutbox[0].alternatives[0][0]


@pytest.mark.parametrize("why", ["no server", "no address", "not wanted", "never asked"])
def test_no_mail_to_people_who_cannot_or_do_not_want_it(
    watching: User, happened: Callable[..., Event], mailoutbox: list[Any], settings: Any, why: str
) -> None:
    if why == "no server":
        settings.EMAIL_HOST = ""
    elif why == "no address":
        User.objects.update(email="")
    elif why == "not wanted":
        Watch.objects.update(mail=False)
    else:
        Watch.objects.all().delete()
    happened()
    work_off()
    assert mailoutbox == [] and not Delivery.objects.exists()
    assert watching.notifications.count() == 1


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (smtplib.SMTPRecipientsRefused({"bob@example.org": (550, b"no such user")}), "failed", "no such user"),
        (smtplib.SMTPRecipientsRefused({"bob@example.org": (450, b"greylisted")}), "waiting", "greylisted"),
        (smtplib.SMTPAuthenticationError(535, b"bad credentials"), "failed", "bad credentials"),
        (smtplib.SMTPServerDisconnected("Connection unexpectedly closed"), "waiting", "unexpectedly closed"),
        (ConnectionRefusedError(111, "Connection refused"), "waiting", "Connection refused"),
        (TimeoutError(), "waiting", "TimeoutError"),
    ],
)
def test_what_a_mail_server_answers_decides_whether_it_is_tried_again(
    watching: User,
    happened: Callable[..., Event],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    state: str,
    message: str,
) -> None:
    refuse(monkeypatch, error)
    happened()
    work_off()
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == (state, 1)
    assert message in in_words(delivery.told)


def test_a_test_mail_is_sent_by_a_worker_and_its_outcome_is_shown(
    client_for: Callable[..., Client], bob: User, mailoutbox: list[Any], sent: list[str]
) -> None:
    client = client_for(bob)
    answer = client.post("/notifications/settings/mail/", headers={"HX-Request": "true"})
    assert "A test mail is being sent" in answer.content.decode() and mailoutbox == []
    client.post("/notifications/settings/mail/", headers={"HX-Request": "true"})
    assert sent == [str(bob.pk)]  # asked for once, however often it is clicked
    work_off(Reader)
    assert [mail.subject for mail in mailoutbox] == ["Test from Tiltyard"]
    page = client.get("/notifications/settings/mail/", headers={"HX-Request": "true"}).content.decode()
    assert "The mail server accepted the message." in page and "every 1s" not in page


def test_a_test_mail_that_is_refused_says_what_the_server_said(
    client_for: Callable[..., Client], bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, smtplib.SMTPAuthenticationError(535, b"bad credentials"))
    client = client_for(bob)
    assert client.post("/notifications/settings/mail/").status_code == 302
    work_off(Reader)
    page = client.get("/notifications/settings/").content.decode()
    assert "The mail server did not accept the message. It said: bad credentials" in page


def test_the_page_names_the_setting_without_a_server(
    client_for: Callable[..., Client], bob: User, settings: Any
) -> None:
    settings.EMAIL_HOST = ""
    page = client_for(bob).get("/notifications/settings/").content.decode()
    assert "No mail server is set up" in page and "EMAIL_HOST" in page and "Send a test mail" not in page


def test_a_mail_whose_server_is_gone_meanwhile_is_not_tried_again(
    watching: User, happened: Callable[..., Event], mailoutbox: list[Any], settings: Any
) -> None:
    happened()
    work_off(Event)
    settings.EMAIL_HOST = ""
    work_off()
    delivery = Delivery.objects.get()
    assert (delivery.state, mailoutbox) == ("failed", [])


def test_the_mail_that_was_tried_last_is_shown(watching: User, alice: User, happened: Callable[..., Event]) -> None:
    for number, (person, tried) in enumerate([(watching, 3), (watching, 5), (watching, 4), (alice, 9), (watching, 0)]):
        event = happened(key=f"k{number}")
        when = datetime(2026, 1, tried, tzinfo=UTC) if tried else None
        Delivery.objects.create(event=event, user=person, tried_at=when, state="sent")
    found = last_mail(watching)
    assert found is not None and found.event.key == "k1"
