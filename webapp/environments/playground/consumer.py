"""The playground's socket: one tab, one environment, at most one session of it (docs/environments.md has the frames).

1. Authenticate, ask ``teams.access`` for an editor, count; only then accept. Viewers may see what others did, but a
   session takes a slot that a run may need, so playing needs the role that may launch runs.
2. A command runs in a task of its own, one at a time, so that a closing tab is noticed while an environment is slow;
   closing cancels the command and gives the slot back.
3. A session that is not used for ``IDLE_S`` is ended, with a sentence; what was played stays for ``KEEP_S``.
4. The right to play is checked again every ``RECHECK_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection
from django.http import Http404
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _

from envs.wire import Message
from training.errors import TiltyardError
from webapp.common.errors import DATABASE_AWAY
from webapp.common.pages import clean_name
from webapp.common.serving import in_database
from webapp.common.text import clean_json
from webapp.common.words import failure
from webapp.datasets.versions import dataset_append
from webapp.environments.models import Environment
from webapp.environments.playground.play import (
    FRAME_BYTES,
    MAX_CALLS,
    PLAYGROUND,
    Close,
    Command,
    Ping,
    Play,
    Played,
    PlayRefused,
    SaveCase,
    SaveRow,
    Step,
    command_of,
    reach_of,
    start_of,
)
from webapp.live.consumers import BAD_FRAME, FORBIDDEN, GONE, LOGIN, TOO_MANY, Closed, page_language, user_now
from webapp.live.feed import encode
from webapp.people.teams.access import object_for
from webapp.people.teams.models import Role, User
from webapp.rewards.cases import reward_case_create
from webapp.rewards.models import RewardCase

# --- Saving ---------------------------------------------------------------------------------------------------------
# An episode that was played, as something to keep: a demonstration, or a test case of rewards.


class Saved(NamedTuple):
    """The object that was made, and its address."""

    kind: str
    label: str
    url: str


def save(episode: Played, environment: Environment, user_id: UUID, command: SaveRow | SaveCase) -> Saved:
    """Keep the episode. Raises ``ValidationError``."""
    if not episode.policy_turns:
        raise ValidationError(_("Nothing was played yet: take at least one turn before you save the episode."))
    user = User.objects.filter(pk=user_id).first()
    if isinstance(command, SaveRow):
        return _save_row(episode, environment, user, command)
    return _save_case(episode, environment, user, command)


def _save_row(episode: Played, environment: Environment, user: User | None, command: SaveRow) -> Saved:
    made = dataset_append(
        project=environment.project,
        user=user,
        name=_clean_name(command.dataset),
        rows=[demonstration(episode)],
        file_name="playground.jsonl",
    )
    return Saved("row", str(made), reverse("dataset-detail", args=[environment.project.slug, made.pk]))


def _save_case(episode: Played, environment: Environment, user: User | None, command: SaveCase) -> Saved:
    case = RewardCase(
        name=_clean_name(command.name),
        environment=environment.name,
        prompt_length=episode.prompt_length,
        messages=_message_rows(episode),
        row=clean_json(episode.task),
        env_reward=episode.reward,
        env_parts=dict(episode.parts),
        truncated=not episode.done,
        expected=command.expected,
        total=command.total,
    )
    made = reward_case_create(case=case, project=environment.project, user=user)
    return Saved("case", made.name, reverse("reward-list", args=[environment.project.slug]))


def demonstration(episode: Played) -> dict[str, Any]:
    """The episode as a row that SFT trains on: its conversation, its tools, and where it comes from."""
    row: dict[str, Any] = {"messages": _message_rows(episode)}
    if episode.tools:
        row["tools"] = episode.tools
    row["provenance"] = {
        "source": "playground",
        "environment": episode.environment,
        "task": clean_json(episode.task) if not episode.origin else episode.origin,
        "seed": episode.seed,
        "reward": episode.reward,
        "reward_parts": dict(episode.parts),
        "done": episode.done,
    } | episode.past
    return row


def _clean_name(name: str) -> str:
    """A checked name from a field of the page. Its ``ValidationError`` names no field."""
    try:
        return clean_name(name)
    except ValidationError as exc:
        raise ValidationError(exc.messages) from exc


def _message_rows(episode: Played) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json", exclude_none=True) for message in episode.messages]


# --- Seats ----------------------------------------------------------------------------------------------------------
# Who may play, and how much at once. Counted in this process: the web server is one.

PLAYS_MAX = 4
_by_person: Counter[UUID] = Counter()
_taken: set[tuple[UUID, UUID]] = set()


def authorise(scope: dict[str, Any], environment_id: UUID, *, again: bool) -> tuple[User, Environment]:
    """The person and the environment, or ``Closed`` with the code that says why not."""
    user = user_now(scope)
    if not user.is_authenticated:
        raise Closed(LOGIN)
    try:
        within = Environment.objects.select_related("project")
        return user, object_for(user, Environment, environment_id, need=Role.EDITOR, within=within)  # type: ignore[return-value]
    except PermissionDenied as exc:
        raise Closed(FORBIDDEN) from exc
    except Http404 as exc:
        raise Closed(FORBIDDEN if again else GONE) from exc


def take(person: UUID, environment: UUID) -> bool:
    """Count one tab: one for each environment, and ``PLAYS_MAX`` for each person. Returns whether there was room."""
    if _by_person[person] >= PLAYS_MAX or (person, environment) in _taken:
        return False
    _by_person[person] += 1
    _taken.add((person, environment))
    return True


def leave(person: UUID, environment: UUID) -> None:
    """Count one tab out."""
    _taken.discard((person, environment))
    _by_person[person] -= 1
    if _by_person[person] <= 0:
        del _by_person[person]


def seats_taken() -> int:
    """How many tabs play now."""
    return len(_taken)


logger = logging.getLogger(__name__)
IDLE_S, KEEP_S, RECHECK_S, WATCH_S, SEND_LIMIT_S = 600.0, 3600.0, 25.0, 1.0, 30.0
T = TypeVar("T")
_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="playground")


class PlayConsumer(AsyncWebsocketConsumer):
    """One tab that plays one environment by hand.

    A subclass that begins episodes in another way defines which environment is played (``_find``), the commands
    (``known``), how an episode begins (``_begin_episode``), whether the environment is asked for its verdict on one
    that is cut off (``judges``), and what is done when one is over (``_on_over``).
    """

    channel_layer_alias = ""
    known = PLAYGROUND
    judges = False

    async def connect(self) -> None:
        """Authenticate, authorise, count, accept, say hello."""
        self.counted = False
        self.play: Play | None = None
        self.task: asyncio.Task[None] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.used_at, self.language = time.monotonic(), page_language(self.scope)
        try:
            user, environment = await in_database(lambda: self._find(again=False))
        except Closed as closed:
            await self.close(closed.code)
            return
        except DATABASE_AWAY:
            await self.close(1013)
            return
        if not take(user.pk, environment.pk):
            await self.accept()  # a browser gets no close code of a socket that was never open
            await self.close(TOO_MANY)
            return
        self.counted, self.user_id, self.environment, self.seat = True, user.pk, environment, environment.pk
        await self.accept()
        self.watch = asyncio.create_task(self._watch(), name=f"watch-{environment.pk}")
        await self._send_frame("hello", environment=environment.name, frame_bytes=FRAME_BYTES, calls=MAX_CALLS)

    async def disconnect(self, code: int) -> None:
        """Cancel the running command, and give the slot back."""
        if not self.counted:
            return
        self.counted = False
        busy = self.task is not None and not self.task.done()
        for task in (self.watch, self.task):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        played = None if busy else await self._end_quietly()
        if self.play is not None:
            await self.play.end()
        # Only now: a second tab that got in earlier would find its slot still taken.
        leave(self.user_id, self.seat)
        if played is not None:
            await self._on_left(played)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """One command at a time; a frame that is not a command closes the socket."""
        command = command_of(text_data, self.known)
        if command is None:
            await self.close(BAD_FRAME)
        elif isinstance(command, Ping):
            await self._send_frame("pong")
        elif self.task is not None and not self.task.done():
            with translation.override(self.language):
                await self._send_problem(command, "busy", _("The last request is still being answered."))
        else:
            self.used_at = time.monotonic()
            self.task = asyncio.create_task(self._run_in_language(command), name=f"play-{self.environment.pk}")

    async def _run_in_language(self, command: Command) -> None:
        """Run a command in the person's language."""
        try:
            with translation.override(self.language):
                await self._answer_command(command)
        except Closed as closed:
            await self.close(closed.code)
        except Exception:  # the boundary of the socket
            logger.exception("playground failed", extra={"action": "play", "environment_id": self.environment.pk})
            await self.close(1011)
        self.used_at = time.monotonic()

    async def _answer_command(self, command: Command) -> None:
        """Run a command; each of its errors becomes a frame with a sentence."""
        try:
            await self._run(command)
        except PlayRefused as refused:
            await self._send_problem(command, refused.code, str(refused))
        except ValidationError as exc:
            await self._send_problem(command, "invalid", " ".join(exc.messages))
        except TiltyardError as exc:
            shown = failure(exc.info.model_dump(mode="json"))
            if shown is not None:  # an error has a code, so there always is one
                await self._send_problem(command, shown.code, shown.title, shown.hint, shown.detail)
        except DATABASE_AWAY:
            await self._send_problem(command, "database", _("The database does not answer. Try again in a moment."))

    async def _run(self, command: Command) -> None:
        if isinstance(command, Step):
            await self._play_step(command)
        elif isinstance(command, Close):
            await self._end_episode("")
        elif isinstance(command, SaveRow | SaveCase):
            await self._save_episode(command)
        else:
            # The registration as it is now: its address may have changed, and so may the right to use it.
            _user, self.environment = await in_database(lambda: self._find(again=True))
            await self._begin_episode(command)

    def _find(self, *, again: bool) -> tuple[User, Environment]:
        """The person and the environment. Raises ``Closed`` where the person may not play it."""
        return authorise(self.scope, self.scope["url_route"]["kwargs"]["environment_id"], again=again)

    async def _begin_episode(self, command: Any) -> None:
        """Begin an episode: the only command that is left here."""
        start = await self._in_thread(start_of, self.environment.project, command.source)
        play, again = await self._new_play()
        began = time.monotonic()
        messages = await play.reset(start, command.seed, again=again)
        await self._send_state("opened", messages=messages, seconds=time.monotonic() - began, seed=command.seed)

    async def _new_play(self) -> tuple[Play, bool]:
        """A new ``Play`` without an episode, and whether another session of this environment was just left for it."""
        reach = await self._in_thread(reach_of, self.environment)
        again = self.play is not None and self.play.is_open
        if (played := await self._end_quietly()) is not None:
            await self._on_left(played)
        self.play = Play(reach, self.environment.name)
        return self.play, again

    async def _on_over(self, episode: Played) -> None:
        """An episode with turns of the person is over."""

    async def _play_step(self, command: Step) -> None:
        if self.play is None:
            raise PlayRefused("no_episode", _("No episode is open. Choose a task and start one."))
        play = self.play
        said, added, seconds = await play.step(command)
        await self._send_state("answer", said=said.model_dump(mode="json"), messages=added, seconds=seconds)
        if play.episode is not None and not play.is_open:
            await self._on_over(play.episode)

    async def _on_left(self, episode: Played) -> None:
        """An open episode with turns of the person was left: for another one, or because the tab was closed."""

    async def _end_episode(self, reason: str) -> None:
        """End the episode, send that, and call ``_on_over`` with what was played."""
        left = await self._end_quietly()
        await self._send_state("ended", reason=reason)
        if left is not None:
            await self._on_over(left)

    async def _end_quietly(self) -> Played | None:
        """End the episode; returns it if it was open and the person had taken a turn."""
        play = self.play
        if play is None or not play.is_open:
            return None
        played = play.episode is not None and play.episode.policy_turns > 0
        await (play.give_up() if played and self.judges else play.end())
        return play.episode if played else None

    async def _save_episode(self, command: SaveRow | SaveCase) -> None:
        episode = self.play.episode if self.play is not None else None
        if episode is None:
            raise PlayRefused("no_episode", _("There is no episode to save. Choose a task and start one."))
        await in_database(lambda: self._find(again=True))
        saved = await self._in_thread(save, episode, self.environment, self.user_id, command)
        await self._send_frame("saved", **saved._asdict())

    async def _in_thread(self, action: Callable[..., T], *arguments: Any) -> T:
        """Run in a thread, in the person's language, which threads do not inherit. Not in those of the live view:
        reading row 900,000 of a dataset, or copying one, takes a while.
        """

        def run() -> T:
            try:
                with translation.override(self.language):
                    return action(*arguments)
            finally:
                connection.close()

        return await asyncio.get_running_loop().run_in_executor(_threads, run)

    async def _watch(self) -> None:
        """Once a second: is the session still used, may the person still be here."""
        check_at = time.monotonic() + RECHECK_S
        while True:
            await asyncio.sleep(WATCH_S)
            now = time.monotonic()
            try:
                if now >= check_at:
                    check_at = now + RECHECK_S
                    await in_database(lambda: self._find(again=True))
                if self.task is not None and not self.task.done():
                    continue
                if now - self.used_at > KEEP_S:
                    raise Closed(1000)
                if self.play is not None and self.play.is_open and now - self.used_at > IDLE_S:
                    with translation.override(self.language):
                        sentence = _("Nothing was played for %(n)s minutes, so the slot was released.")
                        await self._end_episode(sentence % {"n": round(IDLE_S / 60)})
            except Closed as closed:
                await self.close(closed.code)
                return
            except DATABASE_AWAY:
                continue

    async def _send_state(self, kind: str, messages: list[Message] | None = None, **more: Any) -> None:
        """Send what happened and the state of the episode."""
        play = self.play
        episode = play.episode if play is not None else None
        state: dict[str, Any] = {"open": play is not None and play.is_open}
        if episode is not None:
            state |= {
                "episode": episode.id,
                "turns": episode.turns,
                "done": episode.done,
                "reward": episode.reward,
                "parts": episode.parts,
                "info": episode.info,
                "tools": episode.known_tools,
            }
        plain = [message.model_dump(mode="json", exclude_none=True) for message in messages or []]
        await self._send_frame(kind, messages=plain, state=state, **more)

    async def _send_problem(self, command: Command, code: str, title: str, hint: str = "", detail: str = "") -> None:
        of = getattr(command, "type", "")
        await self._send_state("problem", of=of, code=code, title=title, hint=hint, detail=detail)

    async def _send_frame(self, frame: str, /, **values: Any) -> None:
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await self.send(text_data=encode({"type": frame, **values}))
        except TimeoutError as exc:
            raise Closed(TOO_MANY) from exc
