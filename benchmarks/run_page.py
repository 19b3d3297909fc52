"""What the page of a run weighs, and how long a click on it takes until the next paint.

Starts a Tiltyard of its own with `manage.py up`, writes a run into its database, opens its page in Chromium with
nothing in any cache, and then clicks through it on a processor that is slowed down four times. Prints one JSON object.
``--root`` starts another tree, such as a checkout of an older commit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.site import Site  # noqa: E402

SLOWED, ROUNDS, SETTLE_MS = 4, 3, 700
# 60 steps of 64 rollouts, twenty metrics, five components, held-out evaluations and the rollouts of the last step.
FILL = """
from datetime import timedelta
from django.db import connection
from django.test import Client
from django.utils import timezone
from training.config import JobConfig
from webapp.people.teams.models import Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout, Turn
project, now = Project.objects.get(), timezone.now()
known = "task_success", "tool_call", "format", "length_penalty", "coherence"
parts = [{"name": name, "weight": 0.2} for name in known]
config = JobConfig.model_validate({"kind": "grpo", "rewards": {"components": parts},
    "rollout": {"prompts_per_step": 8, "num_generations": 8}}).model_dump(mode="json")
run = Run.objects.create(project=project, name="weighed", kind="grpo", state="succeeded", config=config,
    resolved=config, attempt=1, step=60, total_steps=60, seq=1, started_at=now, finished_at=now)
Attempt.objects.create(run=run, number=1, owner="w", started_at=now - timedelta(minutes=5), ended_at=now, last_step=60)
names = ["reward", "reward_std", "rollouts/task_success", "kl", "loss", "entropy", "clip_ratio/region_mean",
    "grad_norm", "learning_rate", "completions/mean_length", "groups/zero_variance_share",
    "rollouts/excluded_share", "timing/step",
    "sampling/logprob_gap_max", "sampling/logprob_gap_mean", *(f"rewards/{part['name']}/mean" for part in parts)]
MetricPoint.objects.bulk_create(MetricPoint(run=run, attempt=1, step=step, name=name, seq=1,
    value=0.1 + place / 40 + step / 80 + (step * 7919 + place * 31) % 97 / 970)
    for place, name in enumerate(names) for step in range(1, 61))
MetricPoint.objects.bulk_create(MetricPoint(run=run, attempt=1, step=step, name=f"heldout/success{end}", seq=1,
    value=step / 80 + away) for step in range(0, 61, 15) for end, away in (("", 0), ("_low", -0.05), ("_high", 0.05)))
for place in range(64):
    row = Rollout.objects.create(run=run, attempt=1, step=60, group=place // 8, index=place % 8, seq=1,
        task=f"What is {place} * 5?", status="completed", outcome="solved" if place % 3 else "failed",
        reward=place % 3 / 2, turns=2, tokens=30, started_at=now, finished_at=now)
    Turn.objects.create(run=run, rollout=row, number=1, seq=1,
        messages=[{"role": "assistant", "content": f"The result is {place * 5}."}])
client = Client()
client.force_login(User.objects.order_by("pk")[0])
cookie = next(iter(client.cookies.values()))
print(f"/p/{project.slug}/runs/{run.pk}/ {cookie.key} {cookie.value}")
"""
CLICKS = (
    "[data-smooth='0.6']", "[data-smooth='0']", "#curve-log", "#curve-log", "#metric-menu > summary",
    "#metric-menu > summary", "#overlay-menu > summary", "#overlay-menu > summary", "[data-axis=rollouts]",
    "[data-axis=step]", "[data-tab=log]", "[data-tab=config]", "[data-tab=events]", "[data-tab=rollouts]",
    "[data-tab=curves]", "[data-chart] .chart-menu > summary", "[data-chart] .chart-menu > summary",
    "#flight .flight-cell", "[data-tab=curves]", "#charts-still > summary", "#charts-still > summary",
)  # fmt: skip
# The longest event of each interaction, from the click to the paint after it.
WATCH = """() => {
  window.interactions = new Map();
  new PerformanceObserver((list) => {
    for (const event of list.getEntries()) {
      if (event.interactionId) interactions.set(event.interactionId,
        Math.max(event.duration, interactions.get(event.interactionId) ?? 0));
    }
  }).observe({ type: "event", durationThreshold: 16, buffered: true });
}"""


def weighed(context: Any, url: str) -> dict[str, Any]:
    """Bytes on the wire, headers included, of a page that nothing is cached of; the frames of its socket apart."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: dict[str, int] = {}
    names: dict[str, str] = {}
    frames: list[int] = []
    session.on("Network.responseReceived", lambda event: names.update({event["requestId"]: event["response"]["url"]}))
    session.on(
        "Network.loadingFinished",
        lambda event: sizes.update({event["requestId"]: int(event["encodedDataLength"])}),
    )
    session.on("Network.webSocketFrameReceived", lambda event: frames.append(len(event["response"]["payloadData"])))
    page.goto(url)
    page.wait_for_selector("[data-chart] :is(.trace path, .trace)", timeout=60_000)
    page.wait_for_timeout(3 * SETTLE_MS)
    page.close()
    largest = sorted(((size, names.get(key, "")) for key, size in sizes.items()), reverse=True)[:6]
    return {
        "bytes": sum(sizes.values()),
        "requests": len(sizes),
        "socket_bytes": sum(frames),
        "largest": {_file(name): size for size, name in largest},
    }


def _file(url: str) -> str:
    return url.partition("?")[0].rstrip("/").rsplit("/", 1)[-1]


def clicked(context: Any, url: str) -> dict[str, Any]:
    """Milliseconds from a click to the next paint, over the clicks of the page, on a slowed processor."""
    page = context.new_page()
    page.add_init_script(f"({WATCH})()")  # a tab may lead to a page of its own
    page.goto(url)
    page.wait_for_selector("[data-chart] :is(.trace path, .trace)", timeout=60_000)
    page.wait_for_timeout(SETTLE_MS)
    session = context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
    took: dict[str, list[float]] = {}
    for _round in range(ROUNDS):
        for selector in CLICKS:
            if page.url.partition("?")[0] != url:
                page.goto(url)
                page.wait_for_timeout(SETTLE_MS)
            target = page.locator(selector).first
            if not target.is_visible():
                continue
            target.evaluate("node => node.scrollIntoView({ block: 'center' })")  # what it opens is seen
            page.wait_for_timeout(SETTLE_MS / 2)
            before = page.evaluate("[...interactions.keys()]")
            target.click()
            page.wait_for_timeout(SETTLE_MS)
            new = page.evaluate("(before) => [...interactions].filter(([id]) => !before.includes(id))", before)
            ms = max((duration for _key, duration in new), default=16.0)  # what is shorter is not reported
            took.setdefault(selector, []).append(ms)
    every = [ms for each in took.values() for ms in each]
    return {
        "clicks": len(every),
        "median_ms": median(every),
        "p75_ms": quantiles(every, n=4)[2],
        "worst_ms": max(every),
        "medians_ms": {
            selector: median(each) for selector, each in sorted(took.items(), key=lambda item: -max(item[1]))
        },
    }


def main() -> int:
    """Print the figures."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree that is started")
    options = parser.parse_args()
    with Site(demo=False, root=options.root.resolve()) as site, sync_playwright() as playwright:
        path, name, cookie = site.shell(FILL, timeout=300).splitlines()[-1].split()
        origin = f"http://127.0.0.1:{site.port}"
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )

        def fresh() -> Any:
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            context.add_cookies([{"name": name, "value": cookie, "url": origin}])
            return context

        figures = {"cold": weighed(fresh(), origin + path), "slowed": SLOWED, "click": clicked(fresh(), origin + path)}
        browser.close()
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
