"""The lists of notifications and of channels, drawn by themselves: what each state says, and who may act on it."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils import timezone

from tests.markup import drawn, words

PK, NOW = uuid.UUID(int=1), timezone.now()


def _list(line: dict[str, Any] | None = None, **context: Any) -> str:
    event = {"get_kind_display": "failed", "object_kind": "runs.run", "object_id": PK, "created_at": NOW}
    event |= {"project": {"slug": "joust", "name": "Joust"}, **context.pop("event", {})}
    item = {"pk": 5, "event": event, "read_at": context.pop("read_at", None)}
    one = {"item": item, "there": True, "words": {"title": "run 1 failed", "lines": ["No room."]}, **(line or {})}
    projects = [{"slug": "joust", "name": "Joust"}, {"slug": "other", "name": "Other"}]
    return drawn("notifications/list.html", **{"lines": [one], "projects": projects, **context})


def test_a_notification_is_marked_as_what_it_is_not() -> None:
    fresh, read = _list(), _list(read_at=NOW)
    assert " data-unread" in fresh and 'name="read" value="yes">Mark read<' in fresh
    assert " data-unread" not in read and 'name="read" value="no">Mark unread<' in read
    assert "Mark all read" not in fresh and "Mark all read" in _list(unread=True)


def test_a_notification_leads_to_what_is_still_there() -> None:
    assert "/notifications/5/open/" in _list() and f'data-run="/p/joust/runs/{PK}/"' in _list()
    assert "data-run" not in _list(event={"object_kind": "datasets.dataset"})
    gone = _list({"there": False})
    assert "/open/" not in gone and "run 1 failed deleted No room. Joust ·" in words(gone)
    assert "deleted" not in words(_list())


def test_the_filters_keep_what_was_chosen() -> None:
    page = _list(slug="other", only_unread=True)
    assert page.count(" selected") == 1 and '<option value="other" selected>' in page and " checked" in page
    assert " selected" not in _list() and " checked" not in _list()


def test_an_empty_list_says_whether_a_filter_is_why() -> None:
    assert "No notifications yet" in _list(lines=[]) and "Nothing here" not in _list(lines=[])
    for chosen in ({"slug": "joust"}, {"only_unread": True}):
        assert "Nothing here" in _list(lines=[], **chosen) and "No notifications yet" not in _list(lines=[], **chosen)


def _channels(channel: dict[str, Any] | None = None, last: dict[str, Any] | None = None, **context: Any) -> str:
    one = {"pk": PK, "name": "room", "get_kind_display": "Slack", "host": "h", "get_language_display": "English"}
    line = {"channel": {**one, **(channel or {})}, "last": last, "kinds": ["failed"], "result": "no answer"}
    return drawn("notifications/channels.html", **{"lines": [line], "form": {}, **context})


LAST = {"event": {"subject": "run 1"}, "get_state_display": "sent", "tried_at": NOW, "state": "sent"}


def test_a_channel_has_one_state() -> None:
    head = "Channels 1 room "
    assert f"{head}nothing sent yet Service Slack · h Events failed" in words(_channels())
    assert f"{head}works Service" in words(_channels(last=LAST))
    assert f"{head}last message not delivered Service" in words(_channels(last={**LAST, "state": "failed"}))
    paused = words(_channels({"paused_at": NOW, "failures": 1}, LAST))
    assert f"{head}paused Service" in paused and "Paused after 1 failure in a row." in paused
    assert "Paused after 2 failures" in words(_channels({"paused_at": NOW, "failures": 2}))
    assert "h · signed Events" in words(_channels({"signed": True}))


def test_the_last_message_says_what_came_of_it() -> None:
    assert "Last message –" in words(_channels()) and "no answer" not in words(_channels(last=LAST))
    again = {**LAST, "state": "waiting", "again_at": NOW}
    assert "no answer Tried again at" in words(_channels(last=again))
    assert "Tried again" not in words(_channels(last={**again, "state": "failed"}))
    assert "Tried again" not in words(_channels(last={**again, "again_at": None}))


def test_only_owners_manage_channels() -> None:
    page = _channels()
    assert "<form" not in page and "<dialog" not in page and "Owners of the team add" not in page
    own = words(_channels(is_owner=True))
    assert "Send a test Change Delete Delete the channel room?" in own and "Add a channel" in own
    assert "Change Try again Delete" in words(_channels({"paused_at": NOW, "failures": 2}, is_owner=True))
    none = "Owners of the team add channels."
    assert none in _channels(lines=[]) and none not in _channels(lines=[], is_owner=True)


def test_a_test_message_says_whether_it_was_accepted() -> None:
    tried = {"channel": {"name": "room"}, "result": "HTTP 200"}
    good, bad = _channels(tried={**tried, "ok": True}), _channels(tried=tried)
    assert "room accepted the test message HTTP 200" in words(good) and 'data-kind="success" role="status"' in good
    assert "room did not accept the test message HTTP 200" in words(bad) and 'data-kind="error" role="alert"' in bad
