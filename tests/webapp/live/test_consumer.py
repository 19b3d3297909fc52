"""The socket of a run: who gets in, what comes out, what it does with nonsense."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from channels.layers import channel_layers
from channels_redis.core import RedisChannelLayer
from django.conf import settings
from django.db import OperationalError
from django.utils import timezone

from tests.webapp.live.conftest import Socket, Tab, Watched, Wire, in_db
from training import journal
from webapp.asgi import application
from webapp.common.answers import as_json
from webapp.live import consumers, feed
from webapp.live.feed import encode, frames
from webapp.people.teams.models import Membership
from webapp.runs.answers import CONTENT_MAX, Event
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Turn

pytestmark = pytest.mark.django_db(transaction=True)


async def _open(watched: Watched, user: Any, query: str = "") -> Socket:
    socket = Socket(watched.run.pk, user, query)
    connected, code = await socket.connect()
    assert connected, code
    return socket


async def test_a_member_gets_a_snapshot_then_changes(watched: Watched, alice: Any) -> None:
    await in_db(watched.step)(1)
    socket = await _open(watched, alice)
    first = await socket.frame()
    assert first["type"] == "snapshot" and first["run"]["state"] == "running" and first["seq"] == watched.run.seq
    assert first["names"] == {"reward": 0.1, "loss": None} and first["step"] == 1
    assert first["curves"]["reward"] == {"steps": [1], "values": [0.1], "attempts": 1}
    assert len(first["rollouts"]) == 2 and first["rollouts"][0]["parts"] == {"a": None} and "turns" not in first
    await socket.complete()
    assert len(socket.tab.shown()["turns"]) == 2
    await in_db(watched.step)(2)
    await socket.until(lambda: socket.tab.seq == watched.run.seq)
    assert socket.tab.frames[-1]["type"] == "changes" and socket.tab.run["step"] == 2
    await socket.disconnect()
    assert not consumers._sockets


async def test_a_viewer_may_watch_and_a_stranger_may_not(watched: Watched, rita: Any, charlie: Any) -> None:
    await (await _open(watched, rita)).disconnect()
    assert await Socket(watched.run.pk, charlie).connect() == (False, 4404)
    assert await Socket(uuid.uuid4(), rita).connect() == (False, 4404)
    assert await Socket("nonsense", rita).connect() == (False, 4404)
    assert await Socket(watched.run.pk, None).connect() == (False, 4401)


async def test_a_foreign_origin_and_an_anonymous_browser_are_refused(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those refused, none makes us listen at Redis."""
    heard = Mock(wraps=RedisChannelLayer.receive)
    monkeypatch.setattr(RedisChannelLayer, "receive", heard)

    async def connect(*origins: bytes) -> Any:
        wire = Wire(application, f"/ws/runs/{watched.run.pk}/", headers=[(b"origin", origin) for origin in origins])
        refused = await wire.connect()
        await wire.disconnect()
        return refused

    trusted = settings.TRUSTED_ORIGINS[0].encode()
    assert await connect(trusted) == (False, 4401)
    foreign = (b"http://evil.example", b"http://127.0.0.1:1", b"http://127.0.0.1:99999", b"null", b"http://[", b"\xff")
    for origins in ((), (trusted, b"http://evil.example"), *((origin,) for origin in foreign)):
        assert await connect(*origins) == (False, 4403), origins
    assert not heard.called


async def test_a_removed_member_is_closed(watched: Watched, rita: Any) -> None:
    socket = await _open(watched, rita)
    await in_db(Membership.objects.filter(user=rita).delete)()
    assert await socket.closed() == 4403


async def test_a_blocked_person_is_closed(watched: Watched, rita: Any) -> None:
    socket = await _open(watched, rita)
    rita.is_active = False
    await in_db(rita.save)(update_fields=["is_active"])
    assert await socket.closed() == 4401


async def test_a_deleted_run_closes_its_sockets(watched: Watched, alice: Any) -> None:
    socket = await _open(watched, alice)
    await socket.frame()
    await in_db(Run.objects.filter(pk=watched.run.pk).delete)()
    assert await socket.closed() in {4403, 4404}


async def test_the_twenty_first_socket_is_one_too_many(watched: Watched, alice: Any) -> None:
    sockets = [await _open(watched, alice) for _ in range(consumers.SOCKETS_MAX)]
    assert await Socket(watched.run.pk, alice).connect() == (False, 4429)
    for socket in sockets:
        await socket.disconnect()
    await (await _open(watched, alice)).disconnect()


async def test_one_socket_too_many_in_all_is_asked_to_come_later(
    watched: Watched, alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have a limit of their own. It is accepted first: a browser learns no code of a socket that never was."""
    monkeypatch.setattr(consumers, "SOCKETS_ALL", len(consumers.Watcher.open_sockets) + 2)
    first, second = await _open(watched, alice), await _open(watched, alice)
    third = await _open(watched, alice)
    assert await third.closed() == 1013
    await first.disconnect()
    fourth = await _open(watched, alice)
    assert (await fourth.frame())["type"] == "snapshot"
    for socket in (second, fourth):
        await socket.disconnect()


@pytest.mark.parametrize(
    "after", ["", "?after=0", "?after=x", "?after=-1", "?after=999999", "?after=" + "9" * 30, "?least=1", "?least=x"]
)
async def test_any_after_leads_to_the_same_state(watched: Watched, alice: Any, after: str) -> None:
    await in_db(watched.step)(1)
    socket = await _open(watched, alice, after)
    await socket.frame()
    assert socket.tab.frames[0]["type"] == ("changes" if after == "?after=0" else "snapshot")
    assert len(socket.tab.shown()["rollouts"]) == 2 and socket.tab.seq == watched.run.seq
    await socket.disconnect()


async def test_a_reconnect_gets_only_what_it_missed(watched: Watched, alice: Any) -> None:
    await in_db(watched.step)(1)
    seq = watched.run.seq
    await in_db(watched.step)(2)
    socket = await _open(watched, alice, f"?after={seq}")
    frame = await socket.frame()
    assert frame["type"] == "changes" and {point["step"] for point in frame["points"]} == {2}
    await socket.disconnect()


async def test_beats_pings_and_steps_are_answered(watched: Watched, alice: Any) -> None:
    await in_db(watched.step)(1)
    await in_db(watched.step)(2)
    socket = await _open(watched, alice)
    await socket.send_to(text_data='{"type":"ping"}')
    await socket.send_to(text_data='{"type":"step","step":1}')
    seen: dict[str, Any] = {}
    while not {"pong", "step", "beat"} <= set(seen):
        frame = await socket.frame()
        seen[frame["type"]] = frame
    assert seen["step"]["step"] == 1 and {row["step"] for row in seen["step"]["rollouts"]} == {1}
    assert len(seen["step"]["turns"]) == 2
    assert seen["beat"]["run"]["id"] == str(watched.run.pk) and seen["beat"]["now"]
    await socket.disconnect()


BAD = [
    "",
    "{",
    "[]",
    "null",
    "1",
    '"ping"',
    "{}",
    "\x00",
    "\ud800",
    "NaN",
    "[" * 4000,
    "x" * 5000,
    '{"type":"step"}',
    '{"type":"step","step":"1"}',
    '{"type":"step","step":true}',
    '{"type":"step","step":-1}',
    '{"type":"step","step":4294967296}',
    '{"type":"step","step":1e3}',
    '{"type":"step","step":' + "9" * 3000 + "}",
    '{"type":"ping","x":1}',
    '{"type":"PING"}',
    '{"type":["ping"]}',
    '{"type":{}}',
    '{"type":"subscribe","group":"x"}',
    '{"type":"curves"}',
    '{"type":"curves","names":[]}',
    '{"type":"curves","names":"loss"}',
    '{"type":"curves","names":[1]}',
    '{"type":"curves","names":[""]}',
    '{"type":"curves","names":["a\\u0000"]}',
    '{"type":"curves","names":["\\ud800"]}',
    json.dumps({"type": "curves", "names": ["x"] * 33}),
    json.dumps({"type": "curves", "names": ["x" * 121]}),
    '{"type":"step","step":1,"names":["loss"]}',
    '{"type":"curves","names":["loss"],"first":1}',
    '{"type":"curves","names":["loss"],"first":2,"last":1}',
    '{"type":"curves","names":["loss"],"first":-1,"last":1}',
    '{"type":"curves","names":["loss"],"first":0,"last":2147483648}',
    '{"type":"curves","names":["loss"],"first":0,"last":1.5}',
    '{"type":"curves","names":[],"first":0,"last":1}',
]


@pytest.mark.parametrize("text", BAD)
def test_nonsense_is_no_frame(text: str) -> None:
    assert consumers._client_frame(text) is None


GOOD = [
    {"type": "ping"},
    {"type": "step", "step": 0},
    {"type": "step", "step": 2_147_483_647},
    {"type": "curves", "names": ["x" * 120] * 32},
    {"type": "curves", "names": ["loss"], "first": 0, "last": 2_147_483_647},
    {"type": "curves", "names": ["loss"], "first": 5, "last": 5},
]


@pytest.mark.parametrize("frame", GOOD)
def test_what_is_at_a_limit_is_a_frame(frame: dict[str, Any]) -> None:
    text = json.dumps(frame)
    assert consumers._client_frame(text) == frame
    assert consumers._client_frame(text.ljust(4096)) == frame
    assert consumers._client_frame(text.ljust(4097)) is None


async def test_sixteen_requests_for_curves_wait_and_one_more_closes_the_socket(monkeypatch: Any) -> None:
    socket, closed = consumers.RunConsumer(), []

    async def close(code: int) -> None:
        closed.append(code)

    monkeypatch.setattr(socket, "close", close)
    socket.wake = asyncio.Event()
    socket.begin()
    for _request in range(16):
        await socket.receive('{"type":"curves","names":["loss"],"first":1,"last":2}')
    assert closed == [] and socket.wake.is_set()
    assert socket.wanted_curves == [consumers.CurvesAsked(("loss",), 1, 2)] * 16
    await socket.receive('{"type":"curves","names":["loss"]}')
    assert closed == [4429] and len(socket.wanted_curves) == 16


async def test_a_place_in_the_queue_is_sent_where_it_is_another_one(monkeypatch: Any) -> None:
    """And that there is none any more, once."""
    places, sent = iter(["first", "first", "second"]), []

    async def place(_run: Any, _sees: Any) -> str:
        return next(places)

    async def send(text: str) -> None:
        sent.append(text)

    socket = consumers.RunConsumer()
    socket.watched = uuid.uuid4()
    socket.begin()
    monkeypatch.setattr(socket, "_send", send)
    monkeypatch.setattr(consumers, "feed", lambda: SimpleNamespace(place=place))
    for queued in (False, True, True, True, False, False):
        await socket._send_place(queued)
    assert sent == ["first", "second", '{"type":"queue","queue":null}']


def test_ten_thousand_random_frames_never_raise() -> None:
    """The parser takes anything a client can send."""
    dice = random.Random(5)
    for _ in range(10_000):
        letters = [*b'",:[]e{}', dice.randrange(0x110000)]
        text = "".join(chr(dice.choice(letters)) for _ in range(30))
        frame = consumers._client_frame(dice.choice(BAD)[: dice.randrange(40)] + text)
        assert frame is None or frame["type"] in {"ping", "step"}


@pytest.mark.parametrize("frame", [{"text_data": "{"}, {"bytes_data": b"\x00\xff"}, {"text_data": "[" * 5000}])
async def test_a_bad_frame_closes_the_socket(watched: Watched, alice: Any, frame: Any, caplog: Any) -> None:
    socket = await _open(watched, alice)
    await socket.send_to(**frame)
    assert await socket.closed() == 4400
    assert "Traceback" not in caplog.text
    await socket.disconnect()


class LossyLayer(RedisChannelLayer):
    """Drops one nudge in five, doubles one in five."""

    dice = random.Random(1)

    async def group_send(self, group: str, message: Any) -> None:
        for _ in range(self.dice.choice([0, 1, 1, 1, 2])):
            await super().group_send(group, message)


async def test_snapshot_and_changes_equal_a_fresh_snapshot(watched: Watched, alice: Any) -> None:
    """Whatever is lost on the way, a tab ends where a new tab begins."""
    old = channel_layers.set("default", LossyLayer(**settings.CHANNEL_LAYERS["default"]["CONFIG"]))
    try:
        socket = await _open(watched, alice)
        await socket.frame()
        for step in range(1, 9):
            await in_db(watched.step)(step)
            if step == 4:  # the laptop sleeps
                tab = socket.tab
                await socket.disconnect()
                await in_db(watched.step)(40)
                socket = await _open(watched, alice, f"?after={tab.seq}")
                socket.tab = tab
        await socket.until(lambda: socket.tab.seq == watched.run.seq)
        fresh = await _open(watched, alice)
        await fresh.frame()
        await fresh.complete()
        assert socket.tab.shown() == fresh.tab.shown()
        ages = {"beat_age_seconds": 0, "progress_age_seconds": 0}
        assert socket.tab.run | ages == fresh.tab.run | ages
        await socket.disconnect()
        await fresh.disconnect()
    finally:
        channel_layers.set("default", old)


async def test_a_lost_nudge_costs_one_look(watched: Watched, alice: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("webapp.engine.projection.nudge", lambda *_: None)
    monkeypatch.setattr(consumers, "BEAT_S", 30.0)
    socket = await _open(watched, alice)
    await socket.frame()
    await in_db(watched.step)(1)
    await socket.until(lambda: socket.tab.seq == watched.run.seq, within_s=2)
    await socket.disconnect()


@pytest.mark.parametrize("stale", [True, False])
async def test_a_nudge_that_came_during_a_read_has_the_socket_read_again(stale: bool, monkeypatch: Any) -> None:
    """Else what came with it waits for the next look."""

    async def changes(_run_id: Any, after: int) -> tuple[feed.Read, bool]:
        return feed.Read([], after), stale

    monkeypatch.setattr(consumers, "feed", lambda: SimpleNamespace(changes=changes))
    socket = consumers.RunConsumer()
    socket.watched, socket.wake = uuid.uuid4(), asyncio.Event()
    socket.begin()
    await socket._catch_up()
    assert socket.wake.is_set() == stale


async def test_a_database_that_is_away_is_reported(watched: Watched, alice: Any, monkeypatch: Any) -> None:
    socket = await _open(watched, alice)
    await socket.frame()
    real = feed.run_read

    def away(_run_id: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(feed, "run_read", away)
    await socket.until(lambda: socket.tab.frames[-1].get("paused", False))
    monkeypatch.setattr(feed, "run_read", real)
    await in_db(watched.step)(1)
    await socket.until(lambda: socket.tab.seq == watched.run.seq)
    await socket.disconnect()


async def test_a_tab_that_opens_while_the_database_is_away_is_asked_to_come_again(
    watched: Watched, alice: Any, monkeypatch: Any
) -> None:
    """Refused before it was open, a browser heard no code, and the answer was a 403."""

    def away(_scope: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(consumers, "user_now", away)
    socket = await _open(watched, alice)
    assert await socket.closed() == 1013


async def test_sockets_share_their_reads(watched: Watched, alice: Any, rita: Any, monkeypatch: Any) -> None:
    reads = []
    real = feed._read_changes
    monkeypatch.setattr(feed, "_read_changes", lambda *args: reads.append(args) or real(*args))
    sockets = [await _open(watched, user) for user in (alice, rita) * 5]
    for socket in sockets:
        await socket.frame()
    await in_db(watched.say)(journal.Metrics(step=1, values={"reward": 1.0}))
    for socket in sockets:
        await socket.until(lambda socket=socket: socket.tab.seq == watched.run.seq)
    useful = [args for args in reads if args[1] < watched.run.seq]
    assert len(useful) < 30  # ten sockets, each looking alone at every nudge and look, would need far more
    for socket in sockets:
        await socket.disconnect()


async def test_a_nudge_becomes_a_frame_quickly(watched: Watched, alice: Any, monkeypatch: Any) -> None:
    """On an idle machine: from the commit to the tab in well under a second (measured: see docs/live.md)."""
    monkeypatch.setattr(consumers.RunConsumer, "look_s", 30.0)
    monkeypatch.setattr(consumers, "BEAT_S", 30.0)
    socket = await _open(watched, alice)
    await socket.frame()
    took = []
    for step in range(1, 21):
        await asyncio.sleep(0.1)
        await in_db(watched.say)(journal.Metrics(step=step, values={"reward": 1.0}))
        began = asyncio.get_running_loop().time()
        await socket.until(lambda: socket.tab.seq >= watched.run.seq, within_s=3)
        took.append(asyncio.get_running_loop().time() - began)
    took.sort()
    print(f"nudge to frame: median {took[10] * 1000:.0f} ms, p95 {took[18] * 1000:.0f} ms")
    assert took[18] < 1
    await socket.disconnect()


def test_frames_are_cut_and_resume_safely() -> None:
    messages, rollout = [{"role": "user", "content": "x" * CONTENT_MAX}] * 5, uuid.uuid4()
    turns = [Turn(rollout_id=rollout, number=number, messages=messages, seq=number) for number in range(10)]
    rows = {"points": [], "turns": turns}
    texts = list(frames({"type": "snapshot", "seq": 9, "run": {}}, rows, before=0))
    parsed = [json.loads(text) for text in texts]
    assert all(len(text) <= 4 << 20 for text in texts) and len(texts) > 2
    assert [frame["type"] for frame in parsed] == ["snapshot"] + ["changes"] * (len(texts) - 1)
    assert [frame["seq"] for frame in parsed] == [0] * (len(texts) - 1) + [9]
    assert [turn["seq"] for frame in parsed for turn in frame["turns"]] == list(range(10))


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**60, "\ud800", "\x00", "</script>", "x" * 1_000_000, "\u2028"]
)
def test_every_value_is_json(value: Any) -> None:
    """Every frame is JSON that a browser can parse."""
    shown = {"value": value, "deep": [{"value": value}]}
    row = {"seq": 1, "attempt": 1, "kind": "log", "payload": shown, "at": timezone.now()}
    for text in (encode(shown), as_json(Event, row)):
        assert text.isascii() and "NaN" not in text and "Infinity" not in text
        found = json.loads(text)
        assert set(found.get("payload", found)) == {"value", "deep"}


def test_a_tab_keeps_the_later_attempts_point() -> None:
    tab = Tab()
    head = {"type": "changes", "seq": 1, "run": {}}
    tab.take(head | {"points": [{"attempt": 2, "step": 1, "name": "a", "value": 2}]})
    tab.take(head | {"points": [{"attempt": 1, "step": 1, "name": "a", "value": 1}]})
    assert [row["value"] for row in tab.shown()["points"]] == [2]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?language=zh-hans", "排队中 → 准备中"),
        ("?least=1&language=en", "queued → preparing"),
        ("?language=%00x", "queued → preparing"),
        ("", "queued → preparing"),
    ],
)
async def test_words_of_frames_are_in_the_language_of_the_page(
    watched: Watched, alice: Any, query: str, words: str
) -> None:
    socket = await _open(watched, alice, query)
    first = await socket.frame()
    assert [event["words"].split(" · ")[0] for event in first["events"] if event["kind"] == "state"] == [words]
    await in_db(watched.say)(journal.Resumed(source="", step=0, lost_steps=0, set_aside=[], verified=[]))
    await socket.until(lambda: socket.tab.run.get("reports") not in (None, []))
    (name, line), began = socket.tab.run["reports"][0], words.startswith("queued")
    assert name == "resumed" and line.startswith("Attempt 1 began at step 0") == began
    await socket.until(lambda: socket.tab.frames[-1]["type"] == "beat")
    assert socket.tab.frames[-1]["run"]["reports"] == [[name, line]]
    await socket.disconnect()
