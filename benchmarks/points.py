"""A run of a million metric points in a real Chromium: until its page can be used, until a zoom shows all points.

Starts a Tiltyard of its own with `manage.py up`, writes the run into its database, and prints one JSON object.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.site import Site

OPENINGS, SETTLE_S = 20, 1.5
DOCTOR_LIMIT_S = 300
ZOOM_STEPS = 1_000
# 40 metrics of 25,000 steps, of which the page draws 15 at once.
FILL = """
from django.db import connection
from django.test import Client
from webapp.runs.models import Run
from webapp.people.teams.models import Project, User
project = Project.objects.get()
parts = [{"name": name, "weight": weight} for name, weight in (("task_success", 0.7), ("length_penalty", 0.3))]
config = {"kind": "grpo", "rewards": {"components": parts}}
run = Run.objects.create(project=project, name="million", kind="grpo", state="succeeded", config=config, attempt=1,
                         step=25_000, total_steps=25_000, seq=1)
names = ["reward", "rollouts/task_success", "kl", "loss", "entropy", "clip_ratio/region_mean", "learning_rate",
         "completions/mean_length", "groups/zero_variance_share", "rollouts/excluded_share", "timing/step", "grad_norm",
         "reward_std", *(f"rewards/{part['name']}/mean" for part in parts)]
names += [f"env/figure/{n}" for n in range(40 - len(names))]
with connection.cursor() as cursor:
    for name in names:
        value = "0" if name == "rollouts/excluded_share" else "0.5 + 0.3 * sin(step / 4000.0) + 0.2 * random()"
        cursor.execute("INSERT INTO metrics_metricpoint (run_id, attempt, step, name, value, seq) SELECT %s, 1, step,"
                       " %s, " + value + ", 1 FROM generate_series(1, 25000) AS step", [run.pk, name])
    cursor.execute("VACUUM ANALYZE metrics_metricpoint")
client = Client()
client.force_login(User.objects.order_by("pk")[0])
cookie = next(iter(client.cookies.values()))
print(f"/p/{project.slug}/runs/{run.pk}/ {cookie.key} {cookie.value} {run.points.count()}")
"""
# The doctor has seen all of its steps, as it has of a run that was recorded as it went.
SEEN = """
from webapp.runs.advisories.models import Examination
print(*Examination.objects.values_list("step", flat=True))
"""
# Every chart that can be seen is drawn, and the tiles have their figures.
USABLE = """() => {
  const charts = [...document.querySelectorAll("#charts > .chart")];
  const seen = charts.filter((chart) => chart.getBoundingClientRect().top < innerHeight);
  return seen.length > 0 && seen.every((chart) => chart.querySelector(".chart-plot .trace"));
}"""
ZOOMED = """(steps) => {
  const { data, layout } = document.querySelector('[data-chart="reward"] .chart-plot');
  const [first, last] = layout.xaxis.range;
  const drawn = data.find((trace) => trace.hoverinfo === "none").x;
  return last - first < 2 * steps && drawn.filter((x) => first <= x && x <= last).length > 0.3 * (last - first);
}"""


def spread(seconds: list[float]) -> dict[str, float]:
    """Median and p95, in seconds."""
    return {"median_s": round(median(seconds), 3), "p95_s": round(quantiles(seconds, n=20)[18], 3)}


def processor_s(page: Any) -> float:
    """Processor time that the page's process has used: what other work on the machine does not lengthen."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return float(metrics["ProcessTime"])


def opened(context: Any, url: str) -> tuple[float, float, float]:
    """Seconds from going to the page until it can be used, from the end of a drag until all points are drawn, and
    the processor time of the first of them in the browser."""
    page = context.new_page()
    page.wait_for_timeout(1_000 * SETTLE_S)  # a new tab costs Chromium 0.7 s of a core for its own furniture
    before = processor_s(page)
    began = time.monotonic()
    page.goto(url, wait_until="commit")
    page.wait_for_function(USABLE, timeout=60_000, polling="raf")
    usable = time.monotonic() - began
    used = processor_s(page) - before
    place = page.locator('[data-chart="reward"] .chart-plot')
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    x, y, width = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, box["width"] * ZOOM_STEPS / 25_000
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + max(width, 10), y, steps=3)
    page.mouse.up()
    began = time.monotonic()
    page.wait_for_function(ZOOMED, arg=ZOOM_STEPS, timeout=60_000, polling="raf")
    closer = time.monotonic() - began
    page.close()
    return usable, closer, used


def seen_by_the_doctor(site: Site) -> float:
    """Wait until the run doctor has seen the run; for how many seconds."""
    began = time.monotonic()
    while site.shell(SEEN).split()[-1:] != ["25000"]:
        if time.monotonic() - began > DOCTOR_LIMIT_S:
            raise RuntimeError("The doctor has not come to the end of the run.")
        time.sleep(1)
    return time.monotonic() - began


def asked(context: Any, url: str) -> tuple[list[float], int]:
    """Seconds of the same zoom over the API, twenty times, and its bytes."""
    took, size = [], 0
    for number in range(OPENINGS):
        first = 1_000 * number
        began = time.monotonic()
        answer = context.request.get(f"{url}?name=reward&points=2000&first={first}&last={first + 3 * ZOOM_STEPS}")
        size = len(answer.body())
        took.append(time.monotonic() - began)
    return took, size


def main() -> int:
    """Print the figures."""
    from playwright.sync_api import sync_playwright

    with Site(demo=False) as site, sync_playwright() as playwright:
        path, name, cookie, points = site.shell(FILL, timeout=300).splitlines()[-1].split()
        doctor_s = seen_by_the_doctor(site)
        origin = f"http://127.0.0.1:{site.port}"
        # A profile on disk, as a person has: a private window would compile Plotly again each time.
        context = playwright.chromium.launch_persistent_context(
            site.data / "profile",
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox"],
            base_url=origin,
            viewport={"width": 1360, "height": 1400},
        )
        context.add_cookies([{"name": name, "value": cookie, "url": origin}])
        first = opened(context, path)  # nothing is in any cache
        found = [opened(context, path) for _number in range(OPENINGS)]
        api, size = asked(context, f"/api/v1/runs/{path.rstrip('/').rpartition('/')[2]}/metrics")
        context.close()
    figures = {
        "points": int(points),
        "doctor_s": round(doctor_s, 1),
        "first_opening_s": round(first[0], 3),
        "usable": spread([each[0] for each in found]),
        "usable_browser_processor": spread([each[2] for each in found]),
        "zoom": spread([each[1] for each in found]),
        "zoom_request": spread(api) | {"bytes": size},
    }
    print(json.dumps({"points": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
