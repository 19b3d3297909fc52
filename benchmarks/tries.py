"""Does one person's slow scoring keep others waiting? ``python benchmarks/tries.py [--tries 60]``.

On a whole site a viewer posts so many tries at once of a spec whose pattern runs into its limit, and again when all are
answered, while a stranger of another team tries a small spec once a second. Prints JSON: how long the stranger waits
(p50 and the largest; alone; and for the very first answer, which starts a process) next to an answer that needs no
scoring, and what becomes of the viewer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.site import Site  # noqa: E402

PATTERN, HOSTILE = "(a|aa|a+)+$", "a" * 50_000 + "b"
SHORT = "two words"
EVERY_S = 1.0
ANSWER_LIMIT_S = 120.0
TARGETS = {"stranger_max_s": 1.0, "stranger_failed": 0}
MAKE = "from benchmarks.tries import make; make()"


def make() -> None:
    """Inside the site's Django: two teams with a spec each and a viewer each, and a session for both."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    from training.config import RewardComponent
    from webapp.people.teams.models import Membership, Project, Role, Team
    from webapp.rewards.services import reward_spec_save

    made = {}
    for name, pattern in (("viewer", PATTERN), ("stranger", "words")):
        team = Team.objects.create(name=name)
        project = Project.objects.create(team=team, slug=name, name=name)
        user = get_user_model().objects.create_user(name)
        Membership.objects.create(team=team, user=user, role=Role.VIEWER)
        part = RewardComponent(name="regex_match", weight=1, params={"pattern": pattern})
        spec = reward_spec_save(project=project, user=None, name="spec", components=[part])
        client = Client()
        client.force_login(user)
        made[name] = {"spec": str(spec.pk), "session": client.session.session_key}
    print(json.dumps(made))


class Person:
    """A person who tries their spec."""

    def __init__(self, site: Site, made: dict[str, str], text: str) -> None:
        token = "c" * 32
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{site.port}",
            timeout=ANSWER_LIMIT_S,
            headers={"X-CSRFToken": token},
            cookies={"tiltyard": made["session"], "tiltyard-csrf": token},
            limits=httpx.Limits(max_connections=200),
        )
        self._path = f"/api/v1/rewards/{made['spec']}/try"
        talk = [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]
        self._body = {"conversation": json.dumps(talk)}

    def tries(self) -> tuple[int, float]:
        """The status, and the seconds until the whole answer is there."""
        return self._asks("POST", self._path, json=self._body)

    def is_told_who(self) -> tuple[int, float]:
        """The same of an answer that nothing is scored for: what the server's other work alone costs."""
        return self._asks("GET", "/api/v1/me")

    def _asks(self, method: str, path: str, **more: Any) -> tuple[int, float]:
        began = time.perf_counter()
        answer = self._client.request(method, path, **more)
        return answer.status_code, time.perf_counter() - began


def measure(site: Site, tries: int, rounds: int) -> dict[str, Any]:
    """The stranger's answers alone, and while rounds of the viewer's tries come, each as soon as the last is over."""
    made = json.loads(site.shell(MAKE))
    viewer, stranger = Person(site, made["viewer"], HOSTILE), Person(site, made["stranger"], SHORT)
    first, *alone = [stranger.tries()[1] for _number in range(6)]
    viewers: list[tuple[int, float]] = []

    def keeps_trying() -> None:
        with ThreadPoolExecutor(tries) as pool:
            for _round in range(rounds):
                viewers.extend(pool.map(lambda _number: viewer.tries(), range(tries)))

    trying = threading.Thread(target=keeps_trying)
    trying.start()
    answers, others = [], []
    while trying.is_alive():
        others.append(stranger.is_told_who()[1])
        answers.append(stranger.tries())
        time.sleep(EVERY_S)
    times = [took for _status, took in answers]
    statuses = Counter(status for status, _took in viewers)
    return {
        "viewer_tries": len(viewers),
        "viewer_refused": statuses[429],
        "viewer_too_slow": statuses[422],
        "viewer_max_s": round(max(took for _status, took in viewers), 2),
        "stranger_asked": len(answers),
        "stranger_failed": sum(status != 200 for status, _took in answers),
        "stranger_p50_s": round(statistics.median(times), 3),
        "stranger_max_s": round(max(times), 3),
        "unscored_p50_s": round(statistics.median(others), 3),
        "unscored_max_s": round(max(others), 3),
        "stranger_alone_p50_s": round(statistics.median(alone), 3),
        "stranger_first_s": round(first, 3),
    }


def main() -> int:
    """Measure on a site of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=60, help="tries of the viewer at once")
    parser.add_argument("--rounds", type=int, default=3, help="how often they come")
    options = parser.parse_args()
    with Site(demo=False) as site:
        found = measure(site, options.tries, options.rounds)
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"benchmark": "tries", "cores": os.cpu_count(), "load": load, **found, "targets": TARGETS}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
