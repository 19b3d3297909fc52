"""Two hundred tabs opened at once on a run of 20,000 rollouts: the first frame, the page, what goes over the wire.

Starts a Tiltyard of its own with `manage.py up`, writes the run into its database, and prints one JSON object.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import sys
import time
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urljoin

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.site import Site

TABS, TABS_EACH, ROLLOUTS, EACH, TURNS = 200, 20, 20_000, 64, 3
STEPS = ROLLOUTS // EACH
METRICS = 60
LINK = re.compile(r'(?:src|href)="(/static/[^"]+)"')
IMPORT = re.compile(r'from "(\.[^"]+)"')


def fill(origin: str) -> tuple[str, str, list[str]]:
    """Write the run; its page, its socket and the cookies of ten people. Only now Django knows its database."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    django.setup()
    from webapp.people.teams.models import Project
    from webapp.runs.models import Run

    project = Project.objects.get()
    run = Run.objects.create(
        project=project,
        name="long",
        kind="grpo",
        state="succeeded",
        config={},
        step=STEPS,
        total_steps=STEPS,
        attempt=1,
        seq=ROLLOUTS,
    )
    _curves(run)
    _rollouts(run)
    _log(run)
    cookies = _readers(project)
    socket = f"{origin.replace('http', 'ws', 1)}/ws/runs/{run.pk}/"
    return f"{origin}/p/{project.slug}/runs/{run.pk}/", socket, cookies


def _curves(run: Any) -> None:
    from webapp.runs.metrics.models import MetricPoint

    names = ["reward", "loss", "kl", "entropy", "learning_rate", "completions/mean_length", "timing/step"]
    names += [f"rewards/part{n}/mean" for n in range(6)]
    names += [f"env/figure/{n}" for n in range(METRICS - len(names))]
    points = [
        MetricPoint(run=run, attempt=1, step=step, name=name, value=(step * 7919 % 9973) / 9973, seq=step)
        for name in names
        for step in range(1, STEPS + 1)
    ]
    MetricPoint.objects.bulk_create(points, batch_size=5_000)


def _rollouts(run: Any) -> None:
    from django.utils import timezone

    from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn

    now = timezone.now()
    reply = [{"role": "assistant", "content": "I look for a table for two. " * 40}]
    for first in range(0, ROLLOUTS, 2_000):
        rows = [
            Rollout(
                run=run,
                attempt=1,
                step=1 + n // EACH,
                group=n % EACH // 8,
                index=n % 8,
                status="completed",
                task="Book a table. " * 30,
                reward=n % 7 / 6,
                parts={f"part{m}": m / 5 for m in range(6)},
                turns=TURNS,
                started_at=now,
                seq=n + 1,
            )
            for n in range(first, min(first + 2_000, ROLLOUTS))
        ]
        Rollout.objects.bulk_create(rows)
        Turn.objects.bulk_create(
            [Turn(run=run, rollout=row, number=n, messages=reply, seq=row.seq) for row in rows for n in range(TURNS)]
        )
    groups = [RolloutGroup(run=run, attempt=1, step=STEPS, group=n, zero_variance=False, seq=1) for n in range(8)]
    RolloutGroup.objects.bulk_create(groups)


def _log(run: Any) -> None:
    from django.utils import timezone

    from webapp.runs.models import RunEvent

    now = timezone.now()
    lines = {"level": "info", "message": "a line of the log, of an ordinary length, with a figure: 0.123456"}
    RunEvent.objects.bulk_create(
        [RunEvent(run=run, attempt=1, kind="log", payload=lines, at=now, seq=n) for n in range(1, 5_000)]
    )


def _readers(project: Any) -> list[str]:
    """The cookies of people who may look."""
    from django.test import Client

    from webapp.people.teams.models import Membership, User

    cookies = []
    for number in range(TABS // TABS_EACH):
        person = User.objects.create_user(f"reader{number}")
        Membership.objects.create(team=project.team, user=person, role="viewer")
        client = Client()
        client.force_login(person)
        cookies.append("; ".join(f"{name}={item.value}" for name, item in client.cookies.items()))
    return cookies


async def first_frames(socket: str, cookies: list[str], origin: str) -> tuple[list[float], int]:
    """Seconds from opening a socket to its first frame, all at once; bytes of the frame."""
    import websockets

    async def tab(number: int) -> tuple[float, int]:
        headers = {"Cookie": cookies[number % len(cookies)]}
        began = time.monotonic()
        async with websockets.connect(
            socket, additional_headers=headers, origin=origin, max_size=None, open_timeout=60
        ) as line:
            text = await asyncio.wait_for(line.recv(), 60)
            took = time.monotonic() - began
            await asyncio.sleep(1)  # the others are still opening theirs
        return took, len(text)

    found = await asyncio.gather(*(tab(number) for number in range(TABS)))
    return [took for took, _size in found], max(size for _took, size in found)


def fetch(url: str, cookie: str = "") -> tuple[bytes, int, HTTPResponse]:
    """Content, bytes on the wire, and the answer."""
    request = urllib.request.Request(url, headers={"Cookie": cookie, "Accept-Encoding": "gzip"})  # noqa: S310 - ours
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        raw = answer.read()
        content = gzip.decompress(raw) if answer.headers.get("Content-Encoding") == "gzip" else raw
        return content, len(raw), answer


def page_bytes(url: str, cookie: str) -> dict[str, Any]:
    """The bytes of the run page on the wire, its scripts followed through their imports; Plotly by itself."""
    page, size, _answer = fetch(url, cookie)
    html = page.decode()
    plotly = re.search(r'"(/static/vendor/plotly[^"]+)"', html)
    wanted = [urljoin(url, found) for found in LINK.findall(html) if "plotly" not in found]
    seen: dict[str, int] = {}
    while wanted:
        file = wanted.pop().split("#")[0]
        if file in seen:
            continue
        content, seen[file], _answer = fetch(file)
        if file.endswith(".js") and "/vendor/" not in file:
            wanted += [urljoin(file, found) for found in IMPORT.findall(content.decode())]
    found = {"html_bytes": size, "files": len(seen), "page_bytes_without_plotly": size + sum(seen.values())}
    if plotly:
        _content, weight, answer = fetch(urljoin(url, plotly[1]))
        found |= {"plotly_bytes": weight, "plotly_cache": answer.headers["Cache-Control"]}
    return found


def main() -> int:
    """Print the figures."""
    with Site(demo=False) as site:
        origin = f"http://127.0.0.1:{site.port}"
        os.environ["TILTYARD_DATA_DIR"] = str(site.data)
        os.environ["TILTYARD_PORT"] = str(site.port)
        page, socket, cookies = fill(origin)
        figures = page_bytes(page, cookies[0])
        took, size = asyncio.run(first_frames(socket, cookies, origin))
    figures |= {
        "tabs": TABS,
        "rollouts": ROLLOUTS,
        "snapshot_bytes": size,
        "first_frame_s": {"median": round(median(took), 2), "p95": round(quantiles(took, n=20)[18], 2)},
    }
    print(json.dumps({"tabs": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
