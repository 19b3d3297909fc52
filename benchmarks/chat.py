"""A chat with the starter model on a site of its own: ``python benchmarks/chat.py``.

Prints JSON: milliseconds from sending a message until the open page's socket has the first text, with the model in
memory (median and 95th percentile of 40), how long the first message of all took (a worker starts, the model is
loaded), and the seconds until a run that is queued while an answer is written has the device (most of 5).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.site import Site  # noqa: E402

ASKED, RUNS = 40, 5
LIMIT_S = 120


def fill(data: Path) -> tuple[Any, str]:
    """A chat with an untrained starter, and the cookie of the person who looks at it."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    django.setup()
    from django.test import Client

    from envs.wire import Message
    from training.data.schema import Row
    from training.starter import build_starter
    from webapp.chat.services import chat_create
    from webapp.people.teams.models import Membership, Project, Team, User
    from webapp.runs.registry.models import ModelKind, RegisteredModel

    rows = [Row(messages=[Message(role="user", content=f"What is {n} * 7?")]) for n in range(200)]
    build_starter(rows, data / "models" / "tiny", seed=1)
    team = Team.objects.create(name="Bench")
    project = Project.objects.create(team=team, name="Bench", slug="bench")
    person = User.objects.create_user("talker")
    Membership.objects.create(team=team, user=person, role="editor")
    RegisteredModel.objects.create(project=project, name="tiny", kind=ModelKind.FOLDER, source="tiny")
    chat = chat_create(project=project, user=person, contestants=[{"source": "model:tiny"}])
    client = Client()
    client.force_login(person)
    return chat, "; ".join(f"{name}={item.value}" for name, item in client.cookies.items())


class Page:
    """The socket of an open page."""

    def __init__(self, socket: Any, chat: Any) -> None:
        self._socket, self.chat = socket, chat
        self._until(lambda frame: frame["type"] == "chat")

    def _until(self, found: Any) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not found(json.loads(self._socket.recv(timeout=deadline - time.monotonic()))):
            continue

    def say(self, **parameters: Any) -> tuple[Any, float]:
        """Send a message; the answer, and the seconds until its first text was here."""
        from webapp.chat.services import turn_send

        self.chat.refresh_from_db()
        began = time.monotonic()
        turn = turn_send(chat=self.chat, user=self.chat.created_by, text="What is 3 * 7?", parameters=parameters)
        answer = turn.answers.get()

        def text_of(frame: dict[str, Any]) -> bool:
            if any(one["id"] == str(answer.pk) for one in frame.get("more", [])):
                return True
            whole = [one for one in frame.get("answers", []) if one["id"] == str(answer.pk)]
            return any(one["partial"] or one["messages"] for one in whole)

        self._until(text_of)
        return answer, time.monotonic() - began


def ended(answer: Any) -> None:
    """Wait until nothing more is written."""
    deadline = time.monotonic() + LIMIT_S
    while answer.state in answer.OPEN and time.monotonic() < deadline:
        time.sleep(0.02)
        answer.refresh_from_db()


def first_texts(page: Page) -> dict[str, float]:
    """The first message of all, then those with the model in memory, each in a chat without any other."""
    answer, first = page.say(max_tokens=16)
    ended(answer)
    seconds = []
    for number in range(ASKED):
        page.chat.turns.all().delete()
        answer, took = page.say(max_tokens=16, seed=number)
        ended(answer)
        seconds.append(took)
    seconds.sort()
    return {
        "first_of_all_s": round(first, 2),
        "p50_ms": round(1000 * seconds[len(seconds) // 2]),
        "p95_ms": round(1000 * seconds[int(0.95 * len(seconds))]),
    }


def given_up(page: Page) -> float:
    """Seconds until a run that is queued in the middle of an answer is taken."""
    from django.db.models.functions import Now

    from training.config import JobConfig
    from webapp.runs.models import Run
    from webapp.runs.states import RunState

    page.chat.turns.all().delete()
    answer, _took = page.say(max_tokens=3500, temperature=5.0)
    began = time.monotonic()
    run = Run.objects.create(
        project=page.chat.project,
        name=f"run {time.time_ns()}",
        config=JobConfig().model_dump(mode="json"),
        state=RunState.QUEUED,
        queued_at=Now(),
    )
    while run.state == RunState.QUEUED and time.monotonic() - began < LIMIT_S:
        time.sleep(0.02)
        run.refresh_from_db()
    took = time.monotonic() - began
    ended(answer)
    return took


def main() -> int:
    """Fill, talk, print."""
    from websockets.sync.client import connect

    with Site(demo=False) as site:
        os.environ["TILTYARD_DATA_DIR"], os.environ["TILTYARD_PORT"] = str(site.data), str(site.port)
        chat, cookie = fill(site.data)
        address, origin = f"127.0.0.1:{site.port}/ws/chats/{chat.pk}/", f"http://127.0.0.1:{site.port}"
        headers = {"Cookie": cookie}
        with connect(f"ws://{address}", origin=origin, additional_headers=headers, ping_interval=None) as socket:
            page = Page(socket, chat)
            found = {"asked": ASKED, **first_texts(page), "runs": RUNS}
            found["given_up_most_s"] = round(max(given_up(page) for _run in range(RUNS)), 2)
    print(json.dumps({"chat": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
