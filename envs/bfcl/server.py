"""The BFCL environment: one episode is one entry, turn by turn, against the entry's ground truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from envs.base import EnvironmentRefusal, ToolEnvironment
from envs.bfcl import VERSION
from envs.bfcl.calls import tool_schemas
from envs.bfcl.execution import Errors
from envs.bfcl.package import entries, installed_version
from envs.bfcl.speech import DIALECTS, Dialect, Speech
from envs.bfcl.tasks import Task, TaskRow, read_row, resolve
from envs.bfcl.turns import Episode, Round, error_of, official_parts, reward_parts
from envs.wire import Observation, StepRequest


@dataclass(frozen=True)
class Defaults:
    """How episodes are played unless their row says otherwise."""

    speech: Speech = "native"
    errors: Errors = "standard"
    compat: bool = False


def server_version() -> str:
    """Version of this server, with that of the data it plays."""
    return f"{VERSION}+bfcl.{installed_version()}"


class BfclEnvironment(ToolEnvironment):
    """Plays the turns of one entry. All state belongs to this object and ends with it."""

    def __init__(self, defaults: Defaults | None = None) -> None:
        self._defaults = defaults or Defaults()
        self._episode: Episode | None = None
        self._dialect: Dialect = DIALECTS[self._defaults.speech]
        self._native = True

    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation:
        """Open the entry that the row names or carries; without one, an entry is drawn by seed."""
        self._episode = None
        row = read_row(task)
        entry = resolve(row, seed)
        speech = row.speech or self._defaults.speech
        self._dialect, self._native = DIALECTS[speech], speech == "native"
        episode = self._start(row, entry)
        messages, tools = self._dialect.opening(entry)
        self._episode = episode
        info = {"id": entry.id, "turn": 0, "turns": len(entry.turns), "bfcl_version": installed_version()}
        # A row with its own prompt keeps it: the trainer would otherwise show the model both.
        return Observation(messages=row.messages or messages, tools=tools, info=info)

    def step(self, request: StepRequest) -> Observation:
        """Play one message. A final or wholly empty one gives up: the episode is scored as far as it came."""
        episode = self._episode
        if episode is None:
            raise EnvironmentRefusal("No episode is open: send reset first.")
        content = request.message or request.reasoning or request.tool_calls
        if request.final or not (content or request.parse_error is not None):
            return self._finish(episode, Observation(info={"truncated": True}))
        turn = episode.turn
        played = episode.play(self._dialect.read(request))
        answer = self._answer(request, episode, played, ended=episode.turn > turn)
        return self._finish(episode, answer) if episode.over else answer

    def close(self) -> None:
        """Let go of the instances."""
        self._episode = None

    def _start(self, row: TaskRow, entry: Task) -> Episode:
        errors = row.errors or self._defaults.errors
        compat = self._defaults.compat if row.compat is None else row.compat
        try:
            return Episode.start(entry, errors=errors, compat=compat)
        except Exception as error:  # BFCL's classes trust their scenario; a row's need not be one
            raise EnvironmentRefusal(
                f"The task cannot be played: its initial_config does not load ({type(error).__name__})."
            ) from None

    def _answer(self, request: StepRequest, episode: Episode, played: Round, *, ended: bool) -> Observation:
        following = episode.task.turns[episode.turn] if ended and not episode.over else None
        tools = None
        if self._native and following is not None and following.revealed:
            tools = tool_schemas(episode.task.documents(episode.turn))
        messages = self._dialect.render(request, played, following)
        info = {"turn": episode.turn, "code": played.code, "attempts": episode.attempts}
        return Observation(messages=messages, tools=tools, info=info)

    def _finish(self, episode: Episode, answer: Observation) -> Observation:
        """Add the rewards and forget the episode."""
        self._episode = None
        error = error_of(episode.task, episode.asked[: episode.turn], forced=episode.forced)
        parts = reward_parts(episode.codes, len(episode.task.turns)) | official_parts(error)
        if episode.compat:
            reward = parts["progress_reached"]
        else:
            # Refusing every turn would be worth the turns that want a refusal: up to half of some entries.
            reward = parts["progress_all"] if episode.solved_by_calls else 0.0
        info = {**answer.info, "turn": episode.turn, "codes": episode.codes}
        return answer.model_copy(update={"done": True, "reward": reward, "reward_parts": parts, "info": info})


def generate_rows(ids: Sequence[str], speech: Speech) -> Iterator[dict[str, Any]]:
    """A dataset row for each entry: what plays it, and the messages it opens with."""
    for name in ids:
        messages, _ = DIALECTS[speech].opening(resolve(read_row({"id": name}), 0))
        yield {
            "id": name,
            "bfcl_version": installed_version(),
            "split": entries()[name]["split"],
            "speech": speech,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
        }
