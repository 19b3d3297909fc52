"""The demo as its user meets it: ``python benchmarks/demo.py [--clone]``.

Starts a fresh site with ``up --demo`` (with ``--clone``: ``git clone`` and ``make demo``, installation included) and
watches the GRPO run in Chromium. Prints ``first_reward_on_screen_s`` (from
the command to the first reward in the DOM), ``grpo_s`` (launch to end; waiting for the warm-up is not counted),
``reward_ratio`` (mean of the last 10 steps over mean of the first 10), and ``emit_to_dom_ms``: for rollouts, the time
from the trainer's own stamp in the journal to the moment a MutationObserver saw the line in the page.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.site import Site

CHROMIUM_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-quic", "--no-first-run"]
RUN_LIMIT_S = 600
# Notes when each rollout's line appeared in the list "in flight", on this machine's clock.
OBSERVE = """() => {
  window.seenAt = {};
  const note = () => {
    const now = Date.now();
    for (const node of document.querySelectorAll('#flight [data-rollout]')) window.seenAt[node.dataset.rollout] ??= now;
    const reward = document.querySelector('.tile[data-metric="reward"] .tile-value')?.textContent?.trim();
    if (reward && /[0-9]/.test(reward)) window.rewardAt ??= Date.now();
  };
  new MutationObserver(note).observe(document.body, {subtree: true, childList: true, characterData: true});
  note();
}"""
FIND = "from webapp.runs.models import Run; print(Run.objects.filter(name='first-grpo').values_list('id').first())"
RESULT = """
import json
from webapp.runs.models import Run
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.rollouts.models import Rollout
run = Run.objects.filter(name="first-grpo").first()
warm = Run.objects.filter(name="warm-up").first()
rewards = list(MetricPoint.objects.filter(run=run, name="reward").order_by("step").values_list("value", flat=True))
stamps = {str(i): t.timestamp() * 1000 for i, t in Rollout.objects.filter(run=run).values_list("id", "started_at")}
print(json.dumps({"state": run.state, "error": run.error, "rewards": rewards, "stamps": stamps,
    "grpo_s": (run.finished_at - run.started_at).total_seconds() if run.finished_at else None,
    "sft_s": (warm.finished_at - warm.started_at).total_seconds() if warm.finished_at else None}))
"""


def percentile(values: list[float], share: float) -> float | None:
    """The value below which this share of the values lies; ``None`` of nothing."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else None


def watch(site: Site) -> dict[str, Any]:
    """Log in, open the GRPO run while it waits, and stay until it has ended."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM_ARGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(site.link)
        page.locator("main form button, main form input[type=submit]").first.click()
        run_id = _wait_for_run(site)
        page.goto(f"http://127.0.0.1:{site.port}/p/demo/runs/{run_id}/")
        page.evaluate(OBSERVE)
        deadline = time.monotonic() + RUN_LIMIT_S
        while time.monotonic() < deadline:
            state = page.evaluate("document.querySelector('#run-state')?.dataset.state")
            if state in {"succeeded", "failed", "cancelled"}:
                break
            time.sleep(0.5)
        seen = page.evaluate("({seen: window.seenAt, reward: window.rewardAt ?? null})")
        browser.close()
    return dict(seen)


def _wait_for_run(site: Site) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = site.shell(FIND)
        if "UUID" in found:
            return found.split("'")[1]
        time.sleep(0.3)
    raise RuntimeError("The demo's GRPO run did not appear:\n" + "\n".join(site.lines[-20:]))


def measure(*, clone: bool) -> dict[str, Any]:
    """One demo from start to end."""
    with Site(demo=True, clone=clone) as site:
        up_s = time.time() - site.started_at
        seen = watch(site)
        result = json.loads(site.shell(RESULT))
        started = site.started_at
    rewards, stamps = result["rewards"], result["stamps"]
    delays = [at - stamps[rollout] for rollout, at in seen["seen"].items() if rollout in stamps]
    first, last = statistics.fmean(rewards[:10]), statistics.fmean(rewards[-10:])
    return {
        "benchmark": "demo from a fresh clone" if clone else "demo",
        "state": result["state"],
        "up_s": round(up_s, 1),
        "first_reward_on_screen_s": round(seen["reward"] / 1000 - started, 1) if seen["reward"] else None,
        "sft_s": result["sft_s"],
        "grpo_s": result["grpo_s"],
        "steps": len(rewards),
        "reward_first_10": round(first, 3),
        "reward_last_10": round(last, 3),
        "reward_ratio": round(last / first, 2),
        "emit_to_dom_ms": {"n": len(delays), "p50": percentile(delays, 0.5), "p95": percentile(delays, 0.95)},
    }


if __name__ == "__main__":
    print(json.dumps(measure(clone="--clone" in sys.argv)))
