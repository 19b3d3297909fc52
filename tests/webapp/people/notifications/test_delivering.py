"""A delivery from claim to outcome: tried again with growing pauses, held, given up, sent again after a death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tests.chaos.services import wait_until
from tests.servers import make_child_env
from tests.webapp.people.notifications.conftest import Service, work_off
from webapp.common import work
from webapp.common.secrets.models import Secret
from webapp.people.notifications import delivering
from webapp.people.notifications.channels import channel_delete, channel_resume
from webapp.people.notifications.formats import webhook_of
from webapp.people.notifications.models import Channel, Delivery, Event, Kind
from webapp.people.teams.models import AuditEntry, Membership, Project, User

pytestmark = pytest.mark.django_db(transaction=True)
LABEL = "notifications.delivery"


@pytest.fixture(autouse=True)
def _asked(sent: list[str]) -> None:
    """No message reaches a real worker."""


def one() -> Delivery:
    return Delivery.objects.get()


def due() -> None:
    """The pause of every delivery is over."""
    Delivery.objects.filter(state="waiting").update(again_at=None, heard_at=None)


def seconds_until(moment: Any) -> float:
    return float((moment - timezone.now()).total_seconds())


def test_a_server_that_fails_is_asked_again_with_growing_pauses_until_it_is_given_up(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event]
) -> None:
    make_channel()
    service.say((503, {}, "later"))
    happened()
    pauses = []
    for attempt in range(1, 6):
        work_off()
        found = one()
        assert (found.state, found.attempts) == ("waiting", attempt)
        pauses.append(round(seconds_until(found.again_at), -1))
        due()
    work_off()
    found = one()
    assert pauses == [30, 120, 600, 3600, 10800]
    assert (found.state, found.attempts, found.again_at) == ("failed", 6, None)
    work_off()
    assert len(service.got) == 6
    ids = {got.headers.get("X-Tiltyard-Delivery") for got in service.got}
    assert ids == {None}  # Slack has no use for it; JSON has, below


def test_the_same_message_keeps_its_id(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event]
) -> None:
    make_channel("json")
    service.say((503, {}, ""), (200, {}, ""))
    happened()
    work_off()
    due()
    work_off()
    assert {got.headers["X-Tiltyard-Delivery"] for got in service.got} == {str(one().pk)} and len(service.got) == 2
    assert {got.json["id"] for got in service.got} == {str(one().pk)}
    assert one().state == "sent"


def test_retry_after_is_honoured_also_by_a_message_that_comes_early(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event]
) -> None:
    make_channel("discord")
    service.say((429, {"Retry-After": "90"}, ""), (204, {}, ""))
    happened()
    work_off()
    assert 85 < seconds_until(one().again_at) <= 90
    assert not work.waiting(Delivery).exists()
    work.do(LABEL, str(one().pk))
    assert (len(service.got), one().attempts, one().state) == (1, 1, "waiting")
    Delivery.objects.update(heard_at=timezone.now() + timedelta(seconds=90 - 10 - 91))
    assert work.waiting(Delivery).exists()
    due()
    work_off()
    assert (len(service.got), one().state, Channel.objects.get().failures) == (2, "sent", 0)


def test_a_service_that_is_busy_is_not_blamed_and_waits_no_longer_than_six_hours(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event]
) -> None:
    make_channel()
    service.say((429, {"Retry-After": "9999999"}, ""))
    happened()
    work_off()
    assert seconds_until(one().again_at) == pytest.approx(6 * 3600, abs=5)
    assert Channel.objects.get().failures == 0


def test_what_only_a_person_can_fix_is_not_tried_again(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event]
) -> None:
    make_channel("feishu", secret="wrong")
    service.say((200, {}, {"code": 19021, "msg": "sign match fail or timestamp is not within one hour"}))
    happened()
    work_off()
    due()
    work_off()
    assert (one().state, one().attempts, len(service.got), Channel.objects.get().failures) == ("failed", 1, 1, 1)


def fail_often(happened: Callable[..., Event], count: int, make_run: Any, bob: User) -> None:
    for number in range(count):
        happened(run=make_run(created_by=bob), key=f"k{number}")
        work_off()


def test_a_channel_that_fails_in_a_row_is_paused_until_a_person_tries_again(
    service: Service,
    make_channel: Callable[..., Channel],
    happened: Callable[..., Event],
    make_run: Any,
    bob: User,
) -> None:
    channel = make_channel()
    service.say((404, {}, "no_service"))
    fail_often(happened, 7, make_run, bob)
    channel.refresh_from_db()
    assert (channel.failures, channel.paused_at) == (7, None)
    fail_often(happened, 0, make_run, bob)
    happened(key="eighth")
    work_off()
    channel.refresh_from_db()
    assert channel.failures == 8 and channel.paused_at is not None
    happened(Kind.RUN_FAILED, key="held")
    work_off()
    assert len(service.got) == 8
    other = Delivery.objects.create(event=Event.objects.get(key="held"), channel=make_channel(), state="held")
    held = Delivery.objects.get(event__key="held", channel=channel)
    assert (held.state, held.attempts) == ("held", 0)
    service.say((200, {}, "ok"))
    assert channel_resume(channel) == 1
    work_off()
    channel.refresh_from_db()
    held.refresh_from_db()
    assert (held.state, channel.failures, channel.paused_at, len(service.got)) == ("sent", 0, None, 9)
    other.refresh_from_db()
    assert other.state == "held", "it is of another channel"
    assert channel_resume(channel) == 0


def test_a_try_that_may_get_better_is_held_by_the_pause_that_it_causes(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event]
) -> None:
    channel = make_channel()
    Channel.objects.update(failures=delivering.PAUSE_AFTER - 1)
    other = happened(Kind.RUN_FAILED, key="waits")
    happened(key="fails")
    service.say((503, {}, ""))
    work_off(Event)
    work.do(LABEL, str(Delivery.objects.get(event__key="fails").pk))
    channel.refresh_from_db()
    assert channel.paused_at is not None and set(Delivery.objects.values_list("state", flat=True)) == {"held"}
    Delivery.objects.filter(event=other).update(created_at=timezone.now() - timedelta(hours=25))
    service.say((200, {}, "ok"))
    assert channel_resume(channel) == 1
    work_off()
    assert Delivery.objects.get(event=other).state == "dropped"
    assert Delivery.objects.get(event__key="fails").state == "sent"


def test_one_that_arrives_ends_the_row_of_failures(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event], make_run: Any, bob: User
) -> None:
    make_channel()
    service.say((404, {}, ""), (404, {}, ""), (200, {}, "ok"))
    fail_often(happened, 3, make_run, bob)
    assert Channel.objects.get().failures == 0


DYING = """
import django, sys
django.setup()
from django.utils.module_loading import autodiscover_modules
autodiscover_modules("tasks")
from webapp.common import work
work.do("notifications.delivery", sys.argv[1])
"""


def test_a_worker_killed_while_it_sends_costs_one_attempt_and_the_message_comes_again_under_its_id(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event], settings: Any
) -> None:
    """Between the write of the event and the answer of the service: kill -9."""
    make_channel("json")
    service.hold = True
    happened()
    work_off(Event)
    delivery = one()
    env = make_child_env(TILTYARD_OUTBOUND_ALLOW=f"127.0.0.1:{service.port}", DJANGO_SETTINGS_MODULE="webapp.settings")
    child = subprocess.Popen([sys.executable, "-c", DYING, str(delivery.pk)], env=env, start_new_session=True)
    try:
        wait_until(lambda: len(service.got) == 1, 60, what="the first post")
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(10)
    connection.close()
    found = one()
    assert (found.state, found.attempts, found.token != "") == ("waiting", 1, True)
    work.look()
    assert one().token != ""  # it was heard a moment ago
    Delivery.objects.update(heard_at=timezone.now() - timedelta(seconds=61))
    service.hold = False
    service.released.set()
    work.look()
    work_off()
    found = one()
    assert (found.state, found.attempts, len(service.got)) == ("sent", 2, 2)
    assert {got.json["id"] for got in service.got} == {str(delivery.pk)}


def test_workers_that_are_lost_again_and_again_end_a_delivery(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event]
) -> None:
    make_channel()
    happened()
    work_off(Event)
    for _death in range(3):
        assert work.claim(Delivery, one().pk) is not None
        Delivery.objects.update(heard_at=timezone.now() - timedelta(seconds=61))
        work.look()
    work_off()
    assert (one().state, len(service.got)) == ("failed", 0)


def test_who_left_the_team_gets_no_mail_that_was_on_its_way(
    happened: Callable[..., Event],
    project: Project,
    elsewhere: Project,
    bob: User,
    settings: Any,
    mailoutbox: list[Any],
) -> None:
    settings.EMAIL_HOST = "mail.example.org"
    bob.watches.create(project=project, scope="mine", mail=True)
    happened()
    work_off(Event)
    assert one().user == bob
    Membership.objects.filter(user=bob).update(team=elsewhere.team)
    work_off()
    assert (one().state, mailoutbox) == ("dropped", [])


def test_a_channel_of_a_deleted_project_is_not_posted_to(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event], project: Project
) -> None:
    make_channel()
    happened()
    work_off(Event)
    Project.objects.filter(pk=project.pk).update(removed_at=timezone.now())
    work_off()
    assert (one().state, service.got) == ("dropped", [])


def test_a_channel_that_is_deleted_takes_its_messages_and_its_address_with_it(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event], alice: User
) -> None:
    channel = make_channel(secret="k")
    assert "s3cret-in-url" in str(webhook_of(channel.pk)) and "s3cret-in-url" not in Secret.objects.get().sealed
    happened()
    work_off(Event)
    channel_delete(channel)
    assert not Secret.objects.exists() and not Delivery.objects.exists()
    work_off()
    assert service.got == []
    assert AuditEntry.objects.filter(action="channel_added").count() == 1


@pytest.mark.parametrize("gone", [True, False])
def test_an_address_that_is_gone_or_unreadable_fails_with_what_to_do(
    gone: bool, service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event], settings: Any
) -> None:
    make_channel()
    if gone:
        Secret.objects.all().delete()
    else:
        settings.SECRET_KEY = "another secret key of at least fifty characters, which is lost"
    happened()
    work_off()
    found: Any = one().told
    assert one().state == "failed" and service.got == []
    assert found["template"] == (delivering.NO_FILE if gone else delivering.UNREADABLE)


def test_posts_are_written_in_the_language_of_the_channel(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event]
) -> None:
    make_channel(language="zh-hans")
    make_channel(language="en")
    event = happened()
    work_off()
    titles = {got.json["blocks"][0]["text"]["text"] for got in service.got}
    assert titles == {f"Run “{event.subject}” succeeded", f"训练任务“{event.subject}”成功"}


def test_many_events_are_posted_once_each(
    service: Service, make_channel: Callable[..., Channel], happened: Callable[..., Event], make_run: Any, bob: User
) -> None:
    make_channel("json")
    begun = time.monotonic()
    for number in range(30):
        happened(run=make_run(created_by=bob), key=f"many{number}")
    work_off()
    work_off()
    assert len({got.json["id"] for got in service.got}) == len(service.got) == 30
    assert time.monotonic() - begun < 30
