"""The first frame of a long run was 3.35 MB, and each tab read it again."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone, translation

from tests.webapp.live.conftest import Socket, Watched, in_db, points_of
from webapp.live import feed
from webapp.live.feed import snapshot_text
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.records.selectors import run_read
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn

pytestmark = pytest.mark.django_db(transaction=True)
STEPS, EACH, METRICS = 2_000, 512, 120


def fill(run: Run, *, task: str = "Book a table for two, then cancel it. " * 20) -> None:
    """A long run: curves of 2,000 steps, a newest step of 512 rollouts with long transcripts, events, checkpoints."""
    now = timezone.now()
    names = ["reward", "loss", "kl", "learning_rate", *(f"rewards/part{n}/mean" for n in range(8))]
    names += [f"env/figure/{n}" for n in range(METRICS - len(names))]
    MetricPoint.objects.bulk_create(
        [
            MetricPoint(run=run, attempt=1, step=step, name=name, value=(step * 7919 % 1000) / 997, seq=1)
            for name in names
            for step in range(1, STEPS, 1 if name == "reward" else 50)
        ],
        batch_size=5_000,
    )
    parts = {f"part{n}": n / 7 for n in range(8)}
    rollouts = [
        Rollout(
            run=run,
            attempt=1,
            step=STEPS,
            group=n // 8,
            index=n % 8,
            task=task,
            status="completed" if n else "running",
            reward=n / 511,
            parts=parts,
            turns=4,
            started_at=now,
            seq=n + 1,
        )
        for n in range(EACH)
    ]
    Rollout.objects.bulk_create(rollouts)
    long = [{"role": "tool", "content": "x" * 5_000}]
    Turn.objects.bulk_create(
        [Turn(run=run, rollout=row, number=n, messages=long, seq=1) for row in rollouts for n in range(2)]
    )
    groups = [RolloutGroup(run=run, attempt=1, step=STEPS, group=n, zero_variance=False, seq=1) for n in range(64)]
    RolloutGroup.objects.bulk_create(groups)
    line = {"level": "info", "message": "said " * 200}
    RunEvent.objects.bulk_create(
        [RunEvent(run=run, attempt=1, kind="log", payload=line, at=now, seq=n) for n in range(1000, 1500)]
    )
    Checkpoint.objects.bulk_create(
        [
            Checkpoint(
                project_id=run.project_id,
                run=run,
                attempt=1,
                step=n,
                path=f"checkpoints/{n}",
                seq=n,
                bytes=1,
                created_at=now,
            )
            for n in range(1, 400)
        ]
    )
    Run.objects.filter(pk=run.pk).update(seq=1_000_000, attempt=1, step=STEPS)


def read(run: Run) -> Run:
    found = run_read(run.pk)
    assert found is not None
    return found


def test_the_first_frame_of_a_long_run_is_small_and_says_what_it_left_out(watched: Watched) -> None:
    fill(watched.run)
    text = snapshot_text(read(watched.run))
    assert len(text) <= 200_000
    frame = json.loads(text)
    assert frame["step"] == STEPS and frame["rollouts"][0]["status"] == "running"
    assert frame["rollouts"][0]["short"] and len(frame["rollouts"][0]["task"]) <= 201
    assert len(frame["rollouts"]) + frame["more"]["rollouts"] == EACH
    assert len(frame["names"]) == METRICS and frame["more"]["names"] == 0
    newest = MetricPoint.objects.filter(run=watched.run, name="env/figure/3").order_by("-step")[0]
    assert frame["names"]["env/figure/3"] == pytest.approx(newest.value)
    reward = frame["curves"]["reward"]
    assert "env/figure/3" not in frame["curves"] and "rewards/part7/mean" in frame["curves"]
    values = [(step * 7919 % 1000) / 997 for step in range(1, STEPS)]
    assert 100 < len(reward["steps"]) <= 400 and reward["steps"][-1] == STEPS - 1
    assert max(reward["values"]) == pytest.approx(max(values)) and min(reward["values"]) == pytest.approx(min(values))
    assert frame["events"][-1]["seq"] == 1499 and frame["checkpoints"][-1]["step"] == 399


def test_thousands_of_metrics_do_not_make_the_first_frame_large(watched: Watched) -> None:
    names = [f"rewards/{'long name ' * 7}{n}/mean" for n in range(2_000)]
    MetricPoint.objects.bulk_create(
        [MetricPoint(run=watched.run, attempt=1, step=1, name=name, value=n, seq=1) for n, name in enumerate(names)]
    )
    text = snapshot_text(read(watched.run))
    frame = json.loads(text)
    assert len(text) <= 200_000 and len(frame["names"]) + frame["more"]["names"] == 2_000


async def test_what_was_left_out_comes_when_it_is_asked_for(watched: Watched, alice: Any) -> None:
    await in_db(fill)(watched.run)
    socket = Socket(watched.run.pk, alice)
    await socket.connect()
    first = await socket.frame()
    await socket.send_to(json.dumps({"type": "curves", "names": ["reward", "env/figure/3", "no such metric"]}))
    await socket.send_to(json.dumps({"type": "step", "step": first["step"]}))
    await socket.until(lambda: "curves" in {frame["type"] for frame in socket.tab.frames} and STEPS in socket.tab.whole)
    await socket.until(lambda: len(socket.tab.rows["turns"]) == EACH * 2)
    answer = next(frame for frame in socket.tab.frames if frame["type"] == "curves")
    assert len(answer["curves"]["reward"]["steps"]) == STEPS - 1
    assert answer["curves"]["no such metric"]["steps"] == []
    assert len(points_of(answer["curves"])) == STEPS - 1 + 40
    row = next(iter(socket.tab.rows["rollouts"].values()))
    assert len(socket.tab.rows["rollouts"]) == EACH and "short" not in row and len(row["task"]) > 700
    await socket.disconnect()


async def test_a_closer_look_brings_what_was_thinned_away(watched: Watched, alice: Any) -> None:
    await in_db(fill)(watched.run)
    socket = Socket(watched.run.pk, alice)
    await socket.connect()
    first = (await socket.frame())["curves"]["reward"]
    assert sum(first["means"]["counts"]) == STEPS - 1 and sum(1 for step in first["steps"] if 500 <= step <= 600) < 60
    await socket.send_to(json.dumps({"type": "curves", "names": ["reward", "kl"], "first": 500, "last": 600}))
    await socket.until(lambda: "curves" in {frame["type"] for frame in socket.tab.frames})
    answer = next(frame for frame in socket.tab.frames if frame["type"] == "curves")
    assert (answer["first"], answer["last"]) == (500, 600)
    assert answer["curves"]["reward"]["steps"] == list(range(500, 601)) and "means" not in answer["curves"]["reward"]
    assert answer["curves"]["kl"]["steps"] == [501, 551]
    await socket.disconnect()


def test_a_first_frame_full_of_gaps_stays_small(watched: Watched) -> None:
    """Each stretch may keep three points: its ends, and one that is not finite."""
    fill(watched.run)
    MetricPoint.objects.filter(run=watched.run, name="reward").delete()
    names = ["reward", "loss", "kl", "entropy", *(f"rewards/long name of a part {n}/mean" for n in range(40))]
    MetricPoint.objects.filter(run=watched.run, name__in=names).delete()
    with connection.cursor() as cursor:  # 52,800 rows; as objects they took longer than the rest
        cursor.execute(
            """INSERT INTO metrics_metricpoint (run_id, attempt, step, name, seq, value)
               SELECT %s, 1, 10000 + step, name, 1,
                      CASE WHEN step %% 5 = 0 THEN 'NaN'::float8 ELSE -(step * 7919 %% 99991) / 99991.0 / 7 END
               FROM unnest(%s::text[]) AS name, generate_series(0, 1199) AS step""",
            [watched.run.pk, names],
        )
        cursor.execute("ANALYZE metrics_metricpoint")  # which autovacuum does a minute after such an import
    assert MetricPoint.objects.filter(run=watched.run, name=names[-1]).count() == 1_200
    assert len(snapshot_text(read(watched.run))) <= 200_000


async def test_tabs_that_open_together_share_one_snapshot(watched: Watched, monkeypatch: Any) -> None:
    """Single flight: two hundred tabs made two hundred snapshots."""
    monkeypatch.setattr(feed, "SNAPSHOT_KEEP_S", 30.0)
    made, real = [], feed.snapshot_text

    def slow(run: Run) -> str:
        made.append(threading.get_ident())
        return real(run)

    monkeypatch.setattr(feed, "snapshot_text", slow)
    await in_db(watched.step)(1)
    reads = await asyncio.gather(*(feed.feed().first(watched.run.pk, None) for _ in range(200)))
    assert len(made) == 1 and len({id(one.texts[0]) for one in reads}) == 1


async def test_tabs_share_the_frames_of_their_language(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SNAPSHOT_KEEP_S", 30.0)

    async def words(language: str) -> tuple[str, feed.Read, feed.Read]:
        with translation.override(language):
            first, changes = await feed.feed().first(watched.run.pk, None), await feed.feed().first(watched.run.pk, 0)
        frames = [json.loads(read.texts[0])["events"] for read in (first, changes)]
        assert frames[0] == frames[1]
        return next(event["words"] for event in frames[0] if event["kind"] == "state"), first, changes

    (english, snapshot, _), (chinese, other, _) = await words("en"), await words("zh-hans")
    assert (english.split(" · ")[0], chinese.split(" · ")[0]) == ("queued → preparing", "排队中 → 准备中")
    assert (await words("en"))[1] is snapshot and (await words("zh-hans"))[1] is other


async def test_a_first_frame_is_never_older_than_its_page(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page opened within a second of a change was shown the state before it, and its own notice was taken away."""
    monkeypatch.setattr(feed, "SNAPSHOT_KEEP_S", 30.0)
    await in_db(watched.step)(1)
    before = await feed.feed().first(watched.run.pk, None)
    await in_db(watched.step)(2)
    assert (await feed.feed().first(watched.run.pk, None)).seq == before.seq  # another tab's
    newest = await in_db(lambda: read(watched.run).seq)()
    found = await feed.feed().first(watched.run.pk, None, newest)
    assert before.seq < newest == found.seq and json.loads(found.texts[0])["seq"] == newest
    assert await feed.feed().first(watched.run.pk, None, newest) is found  # shared again
    assert (await feed.feed().first(watched.run.pk, None, 10**18)).seq == newest  # a number that was never given


async def test_the_snapshot_of_a_run_that_has_ended_is_kept_until_it_changes(watched: Watched) -> None:
    await in_db(watched.step)(1)
    await in_db(lambda: Run.objects.filter(pk=watched.run.pk).update(state="succeeded"))()
    found = await feed.feed().first(watched.run.pk, None)
    key = feed._key(feed._read_snapshot, watched.run.pk)
    held = feed.feed()._reads[key]
    feed.feed()._reads[key] = replace(held, since=held.since - 60)  # a minute ago
    assert await feed.feed().first(watched.run.pk, None, found.seq) is found
    assert await feed.feed().first(watched.run.pk, None, found.seq + 1) is not found  # its page was made of a later one


async def test_an_answer_is_never_older_than_what_the_tab_was_sent(watched: Watched) -> None:
    """A shared answer that another tab made before this tab's last change would lose what lies between."""
    await in_db(watched.step)(1)
    before = await feed.feed().curves(watched.run.pk, ("reward",), 0)
    await in_db(watched.step)(2)
    assert (await feed.feed().curves(watched.run.pk, ("reward",), 0)).seq == before.seq  # shared: fresh enough
    after = await feed.feed().curves(watched.run.pk, ("reward",), watched.run.seq)
    assert after.seq == watched.run.seq
    assert json.loads(after.texts[0])["curves"]["reward"]["steps"] == [1, 2]


async def test_a_shared_read_that_a_nudge_has_overtaken_says_so(watched: Watched) -> None:
    """A tab that got another tab's older changes waited for the next nudge, or two seconds, with newer ones there."""
    shared, woken = feed.Feed(), asyncio.Event()
    await shared.subscribe(watched.run.pk, woken)
    await in_db(watched.step)(1)
    first, stale = await shared.changes(watched.run.pk, 0)
    while stale:  # the step's own nudges may have come while it was read
        first, stale = await shared.changes(watched.run.pk, first.seq)
    await in_db(watched.step)(2)
    await asyncio.wait_for(woken.wait(), 5)
    shared._reads[feed._key(feed._read_changes, watched.run.pk, 0)] = feed.Held(time.monotonic(), 0, _done(first))
    again, stale = await shared.changes(watched.run.pk, 0)
    assert again is first and stale
    newer, _stale = await shared.changes(watched.run.pk, first.seq)
    assert newer.seq > first.seq
    shared.unsubscribe(watched.run.pk, woken)
    assert not shared._nudges


def _done(read: feed.Read) -> asyncio.Task[feed.Read]:
    """A read that has ended."""

    async def give() -> feed.Read:
        return read

    return asyncio.ensure_future(give())


async def test_changes_gather_longer_where_hundreds_of_sockets_share_a_process() -> None:
    shared = feed.Feed()
    assert shared.crowd_s == 0
    shared._sockets = {uuid4(): {asyncio.Event() for _ in range(25)} for _ in range(4)}
    assert shared.crowd_s == pytest.approx(0.1)
    shared._sockets = {uuid4(): {asyncio.Event() for _ in range(500)} for _ in range(4)}
    assert shared.crowd_s == pytest.approx(0.4)
