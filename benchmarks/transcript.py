"""How fast does a long transcript open, and the tokens of a long rollout? ``python benchmarks/transcript.py``.

Starts a Tiltyard of its own with `manage.py up`, records an episode of 30,000 turns and one of 32,768 tokens, and opens
both in Chromium. Prints one JSON object: seconds until the first part of the transcript is painted, how much of it came
over the wire, the same for its middle and for *Show more*, and milliseconds from the answer of the tokens to their
paint, with what the server took for it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.site import Site

EVENTS, TOKENS, PROMPT = 30_000, 32_768, 512
TIMES = 7
WORDS = 12_000
"""Different tokens, of a vocabulary that a text of this length may use."""
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
# When the first of them was painted, noted by the page itself: asking from outside takes longer than a frame.
NOTE = """
const seen = new MutationObserver(() => {
  if (!document.querySelector("#tokens .token, section.turn")) return;
  seen.disconnect();
  requestAnimationFrame(() => {
    const after = new MessageChannel();
    after.port1.onmessage = () => (window.painted = performance.now());
    after.port2.postMessage("");
  });
});
seen.observe(document, { childList: true, subtree: true });
"""
NOTED = "() => window.painted"
SETTLE_MS = 1_500  # a new tab costs Chromium 0.7 s of a core for its own furniture


def fill() -> tuple[str, str, dict[str, str]]:
    """Write both rollouts; their pages and the cookies of a reader. Only now Django knows its database."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    django.setup()
    from django.test import Client
    from django.utils import timezone

    from training.config import JobConfig
    from webapp.people.teams.models import Membership, Project, User
    from webapp.runs.models import Run
    from webapp.runs.rollouts.models import Rollout

    project = Project.objects.get()
    config = JobConfig().model_dump(mode="json")
    run = Run.objects.create(
        project=project, name="long", kind="grpo", state="succeeded", config=config, resolved=config, step=1,
        total_steps=1, attempt=1,
    )  # fmt: skip
    rows = [
        Rollout.objects.create(
            run=run, attempt=1, step=1, group=0, index=index, status="completed", outcome="solved", reward=1.0, seq=1,
            turns=EVENTS // 2 if not index else 2, tokens=TOKENS, advantage=1.0, started_at=timezone.now(),
        )
        for index in range(2)
    ]  # fmt: skip
    _turns(rows[0], EVENTS)
    _turns(rows[1], 3)
    _tokens(rows[1])
    client, person = Client(), User.objects.create_user("reader")
    Membership.objects.create(team=project.team, user=person, role="viewer")
    client.force_login(person)
    pages = [f"/p/{project.slug}/rollouts/{row.pk}/" for row in rows]
    return pages[0], pages[1], {name: item.value for name, item in client.cookies.items()}


def _turns(rollout: Any, count: int) -> None:
    """A prompt, then the model's turns with a call each, and what the tool answered as JSON."""
    from webapp.runs.rollouts.models import Turn

    def messages(number: int) -> list[dict[str, Any]]:
        if number == 0:
            return [{"role": "user", "content": "Find the table."}]
        if number % 2:
            call = {"id": str(number), "name": "search", "arguments": {"query": f"table {number}", "page": number}}
            return [{"role": "assistant", "content": "I look at the next page. " * 8, "tool_calls": [call]}]
        found = {"page": number, "items": [{"id": number + n, "name": f"table {n}"} for n in range(6)]}
        return [{"role": "tool", "content": json.dumps(found), "tool_call_id": str(number - 1), "name": "search"}]

    for first in range(0, count, 2_000):
        numbers = range(first, min(first + 2_000, count))
        Turn.objects.bulk_create(
            Turn(rollout=rollout, run=rollout.run, number=number, messages=messages(number), seq=1, tokens=40)
            for number in numbers
        )


def _tokens(rollout: Any) -> None:
    import numpy as np

    from training.token_file import Spelling, TokenValues, write_step
    from webapp.common.storage import attempt_dir

    chance, folder = np.random.default_rng(3), attempt_dir(rollout.run_id, 1)
    count, own = TOKENS - PROMPT, np.ones(TOKENS - PROMPT, np.uint8)
    own[2_000::97] = 0
    values = TokenValues(
        prompt=chance.integers(0, WORDS, PROMPT).astype(np.uint32),
        ids=chance.integers(0, WORDS, count).astype(np.uint32),
        flags=own * 7,
        logprob=-chance.exponential(0.7, count).astype(np.float32),
        entropy=chance.exponential(0.9, count).astype(np.float32),
        ratio=chance.normal(1, 0.05, count).astype(np.float32),
        advantage=1.0,
    )
    write_step(folder, rollout.step, [(rollout.group, rollout.index, values)])
    Spelling(folder, lambda number: f" w{number}".encode()).tell(range(WORDS))


def opened(page: Any, address: str, selector: str) -> tuple[float, int]:
    """Seconds from the request of a page to the paint of what ``selector`` finds, and bytes of its documents."""
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(_size(answer)) if "/rollouts/" in answer.url else None)
    page.goto(address, wait_until="commit")
    page.wait_for_selector(selector)
    took: float = page.wait_for_function(NOTED).json_value()
    page.wait_for_load_state("networkidle")
    return took / 1000, sum(sizes)


def _size(answer: Any) -> int:
    return len(answer.body()) if answer.ok else 0


def transcript(tab: Any, address: str) -> dict[str, Any]:
    """Its first part, its middle, and *Show more*."""
    first = [opened(tab(), address, "section.turn") for _ in range(TIMES)]
    middle = [opened(tab(), f"{address}?first={EVENTS // 2}", "section.turn") for _ in range(TIMES)]
    page, more = tab(), []
    page.goto(address)
    page.wait_for_selector("section.turn")
    for _ in range(TIMES):
        shown = page.locator("section.turn").count()
        began = page.evaluate("performance.now()")
        page.locator("#turns-more a").click()
        page.locator("section.turn").nth(shown).wait_for()
        more.append((page.evaluate(PAINTED) - began) / 1000)
    return {
        "events": EVENTS,
        "open_s": spread([took for took, _size in first]),
        "open_bytes": max(size for _took, size in first),
        "middle_s": spread([took for took, _size in middle]),
        "more_s": spread(more),
        "turns_in_page": shown,
    }


def tokens(tab: Any, address: str) -> dict[str, Any]:
    """The token view: the server's answer, and from it to the paint."""
    served, painted, whole, complete = [], [], [], []
    for _ in range(TIMES):
        page = tab()
        page.goto(f"{address}?view=tokens", wait_until="commit")
        end = page.wait_for_function(NOTED).json_value()
        timing = page.evaluate(
            "(({requestStart, responseEnd}) => [requestStart, responseEnd])"
            "(performance.getEntriesByType('resource').find(each => each.name.endsWith('/tokens')))"
        )
        served.append(timing[1] - timing[0])
        painted.append(end - timing[1])
        whole.append(end)
        page.locator("#tokens .token[data-at]").nth(TOKENS - 1).wait_for(state="attached")
        complete.append(page.evaluate("performance.now()") - timing[1])
        page.close()
    figures = {
        "answer_ms": spread(served),
        "paint_ms": spread(painted),
        "all_ms": spread(complete),
        "page_ms": spread(whole),
    }
    return {"tokens": TOKENS, **figures}


def spread(values: list[float]) -> dict[str, float]:
    """Median and worst."""
    return {"median": round(median(values), 3), "worst": round(max(values), 3)}


def main() -> int:
    """Print the figures."""
    from playwright.sync_api import sync_playwright

    with Site(demo=False) as site:
        origin = f"http://127.0.0.1:{site.port}"
        os.environ |= {"TILTYARD_DATA_DIR": str(site.data), "TILTYARD_PORT": str(site.port)}
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's loop runs in this thread
        long, worded, cookies = fill()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])

            def tab() -> Any:
                context = browser.new_context()
                context.add_cookies([{"name": name, "value": value, "url": origin} for name, value in cookies.items()])
                page = context.new_page()
                page.add_init_script(NOTE)
                page.wait_for_timeout(SETTLE_MS)
                return page

            tab().goto(origin + long)  # the server's first answer is its slowest
            figures = {"transcript": transcript(tab, origin + long), "tokens": tokens(tab, origin + worded)}
            browser.close()
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
