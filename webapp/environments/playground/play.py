"""One person's session with one environment: its commands, where a task comes from, and an episode as the server
remembers it. At most one episode is open, and its slot is given back in every case.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic import ValidationError as ShapeError

from envs.wire import Message, Observation, ResetRequest, StepRequest, ToolCall
from training.config import EnvironmentConfig
from training.connections import Access, reaching
from training.data import Row, RowError, check_tree, conversation_key, row_from_dict, strict_loads
from training.errors import EnvironmentFault, EnvironmentFull, TiltyardError
from training.plain import json_problem
from training.rewards.base import Episode
from training.rollout import protocols
from training.rollout.rewinding import Recording, Rewound, Taken, rewind
from webapp.common.outbound import access, target_of
from webapp.common.text import clean_json
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.selectors import datasets_of
from webapp.environments.models import Environment
from webapp.environments.tokens import ours, token_for
from webapp.people.teams.models import Project

# --- Commands -------------------------------------------------------------------------------------------------------
# The commands of the playground's socket. Anything else closes it.

# Below what the web server lets through (``--ws-max-size``), so that a person gets a sentence and not a cut connection.
FRAME_BYTES = 60_000
MAX_CALLS = 16
MAX_NAME = 200
MAX_SEED = 2**31 - 1
MAX_RANGES = 50

Finite = Annotated[float, Field(allow_inf_nan=False)]
Range = Annotated[list[Finite], Field(min_length=2, max_length=2)]


class Command(BaseModel):
    """Base of all commands: nothing is coerced, nothing unknown is taken."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Ping(Command):
    """A sign of life from the tab."""

    type: Literal["ping"]


class Empty(Command):
    """No task: the environment draws one by the seed."""

    kind: Literal["empty"]


class Pasted(Command):
    """A task as JSON."""

    kind: Literal["task"]
    task: dict[str, Any]


class FromRow(Command):
    """A row of a dataset of the project; ``row`` counts from 1."""

    kind: Literal["row"]
    dataset: UUID = Field(strict=False)
    row: int = Field(ge=1, le=MAX_SEED)


class Reset(Command):
    """Begin an episode; one that is open ends."""

    type: Literal["reset"]
    seed: int = Field(ge=0, le=MAX_SEED)
    source: Annotated[Empty | Pasted | FromRow, Field(discriminator="kind")]


class Call(Command):
    """One tool call; its id is made here."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    arguments: dict[str, Any]


class Step(Command):
    """One turn."""

    type: Literal["step"]
    message: str
    tool_calls: list[Call] = Field(max_length=MAX_CALLS)


class Close(Command):
    """End the episode and give its slot back; what was played stays and can be saved."""

    type: Literal["close"]


class SaveRow(Command):
    """Add the episode to a dataset, as its next version or as the first of a new name."""

    type: Literal["save_row"]
    dataset: str = Field(max_length=MAX_NAME)


class SaveCase(Command):
    """Keep the episode as a test case of rewards."""

    type: Literal["save_case"]
    name: str = Field(max_length=MAX_NAME)
    expected: dict[str, Range] = Field(max_length=MAX_RANGES)
    total: Range | None


Playing = Ping | Step | Close | SaveRow | SaveCase
"""The commands of an open episode."""
PLAYGROUND: TypeAdapter[Any] = TypeAdapter(Annotated[Playing | Reset, Field(discriminator="type")])


def command_of(text: str | None, known: TypeAdapter[Any] = PLAYGROUND) -> Command | None:
    """A frame as the command it is, else ``None``. Never raises."""
    if text is None or len(text) > FRAME_BYTES:
        return None
    try:
        found: Command = known.validate_python(json.loads(text))
    except (ValueError, RecursionError, OverflowError, ShapeError):
        return None
    return found


# --- Starts ---------------------------------------------------------------------------------------------------------
# Where an episode's task comes from: a row of a dataset, a pasted object, or nothing but the seed.


class Start(NamedTuple):
    """The start of an episode: the environment's task, the row's own words, and where the row is from."""

    task: dict[str, Any]
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    origin: str


def start_of(project: Project, source: Empty | Pasted | FromRow) -> Start:
    """The start that a person asked for. Raises ``ValidationError`` with a sentence."""
    if isinstance(source, FromRow):
        dataset = datasets_of(project).filter(pk=source.dataset, state=DatasetState.READY).first()
        if dataset is None:
            raise ValidationError(_("This dataset is gone or not ready; choose another."))
        return start_of_row(dataset, source.row)
    if isinstance(source, Empty):
        return Start({}, [], None, "")
    problem = json_problem(source.task)
    if problem is not None:
        raise ValidationError(_("The task cannot be used: %(reason)s.") % {"reason": problem})
    if not isinstance(source.task.get(conversation_key(source.task) or ""), list):
        return Start(source.task, [], None, "")  # a task need not hold a conversation
    try:
        check_tree(source.task)
        return _start_before_answer(row_from_dict(source.task), "")
    except RowError as exc:
        raise ValidationError(_("The task cannot be used: %(reason)s.") % {"reason": exc}) from exc


def start_of_row(dataset: Dataset, number: int) -> Start:
    """Row ``number`` (from 1) of a ready dataset. Raises ``ValidationError``."""
    if not 1 <= number <= dataset.rows:
        raise ValidationError(
            _("%(name)s has rows 1 to %(rows)s.") % {"name": str(dataset), "rows": f"{dataset.rows:,}"}
        )
    try:
        with dataset.rows_path.open(encoding="utf-8") as file:
            line = next(islice(file, number - 1, None), "")
        return _start_before_answer(row_from_dict(strict_loads(line)), f"{dataset.reference}#{number}")
    except (OSError, RowError, TypeError, AttributeError) as exc:
        raise ValidationError(_("Row %(number)s cannot be read.") % {"number": number}) from exc


def _start_before_answer(row: Row, origin: str) -> Start:
    """A row before its first answer: a person who plays must not see the solution."""
    answer = next((at for at, message in enumerate(row.messages) if message.role == "assistant"), None)
    if answer is None:
        return Start(row.task(), row.messages, row.tools, origin)
    key = conversation_key(row.raw) or "messages"
    prompt = [message.model_dump(exclude_none=True) for message in row.messages[:answer]]
    return Start(row.task() | {key: prompt}, row.messages[:answer], row.tools, origin)


# --- Episode --------------------------------------------------------------------------------------------------------
# One episode played by hand, as the server remembers it: what is saved is made from this, never from the browser.


@dataclass
class Played:
    """An episode so far. ``task`` is what the environment was given; ``origin`` says where it came from. ``replayed``
    turns were taken from a recorded rollout; ``past`` names it, for what is saved."""

    id: str
    environment: str
    task: dict[str, Any]
    seed: int
    origin: str = ""
    messages: list[Message] = field(default_factory=list)
    prompt_length: int = 0
    tools: list[dict[str, Any]] | None = None
    known_tools: list[dict[str, Any]] | None = None
    turns: int = 0
    replayed: int = 0
    parse_errors: int = 0
    done: bool = False
    reward: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    past: dict[str, Any] = field(default_factory=dict)

    def begin(self, prompt: list[Message], tools: list[dict[str, Any]] | None, first: Observation) -> list[Message]:
        """Take the environment's first answer; returns the opening conversation."""
        self.messages = protocols.opening(prompt, first)
        self.prompt_length = len(self.messages)
        self.tools = self.known_tools = first.tools if first.tools is not None else tools
        self._take_answer(first)
        self._count_size(self.messages)
        return list(self.messages)

    def calls(self, wanted: list[tuple[str, dict[str, Any]]]) -> list[ToolCall]:
        """The calls of the next turn with ids, made as a rollout makes them."""
        return [
            ToolCall(id=f"call_{self.turns}_{number}", name=name, arguments=arguments)
            for number, (name, arguments) in enumerate(wanted)
        ]

    def answered(self, said: Message, answer: Observation, parse_error: str | None = None) -> list[Message]:
        """Take one turn and its answer; returns the environment's messages."""
        added = protocols.heard(answer)
        self.turns += 1
        self.parse_errors += bool(parse_error or answer.info.get("parse_error"))
        self.messages += [said, *added]
        if answer.tools is not None:
            self.known_tools = answer.tools
        self._take_answer(answer)
        self._count_size([said, *added])
        return added

    def judged(self, answer: Observation) -> None:
        """Take in a verdict that no turn asked for: the episode was cut off."""
        if answer.reward is not None:
            self.reward = answer.reward
        self.parts.update(answer.reward_parts)

    @property
    def policy_turns(self) -> int:
        """Turns that the person played."""
        return self.turns - self.replayed

    def scored_as(self) -> Episode:
        """The episode as reward components see it; who plays by hand writes no tokens."""
        return Episode(
            messages=list(self.messages),
            prompt_length=self.prompt_length,
            row=self.task,
            env_reward=self.reward,
            env_parts=dict(self.parts),
            parse_errors=self.parse_errors,
            truncated=not self.done,
        )

    def _take_answer(self, answer: Observation) -> None:
        """Keep the answer's rewards, which are cumulative: they replace those of an earlier answer."""
        self.judged(answer)
        self.info, self.done = answer.info, answer.done

    def _count_size(self, messages: list[Message]) -> None:
        self.size += sum(len(message.model_dump_json()) for message in messages)


# --- Session --------------------------------------------------------------------------------------------------------

MAX_TURNS = 200
MAX_TRANSCRIPT_BYTES = 8 << 20
FULL_AGAIN_S = 0.5  # until then it has noticed that the tab left its other session
VERDICT_LIMIT_S = 5.0


class PlayRefused(Exception):
    """The command cannot be done now; the text is a sentence for the person."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Reach(NamedTuple):
    """The config by which an environment is reached, the allowed addresses and the token."""

    config: EnvironmentConfig
    access: Access


def reach_of(environment: Environment) -> Reach:
    """The reach of a registration as it is now. Raises ``OutboundRefused``, and ``PlayRefused`` for an unusable one."""
    try:
        config = EnvironmentConfig.model_validate(environment.job_values())
    except ShapeError as exc:
        sentence = _("This environment's registration is not complete; check it on the environments page.")
        raise PlayRefused("registration", sentence) from exc
    pairs = ours(environment)
    target_of(config.url, ours=pairs)  # its sentences are in the person's language; connecting checks once more
    return Reach(config, access(token_for(environment, config.url), pairs))


async def open_session(reach: Reach) -> protocols.Session:
    """The one place where the playground connects."""
    with reaching(reach.access):
        return await protocols.open_session(reach.config)


class Play:
    """One episode and its session. Only one of its methods runs at a time; the socket sees to that."""

    def __init__(self, reach: Reach, name: str) -> None:
        self._reach, self._name = reach, name
        self._session: protocols.Session | None = None
        self.episode: Played | None = None

    @property
    def is_open(self) -> bool:
        """Whether a slot of the environment is held."""
        return self._session is not None

    async def reset(self, start: Start, seed: int, *, again: bool) -> list[Message]:
        """Begin the episode on a session of its own. Raises environment errors; then nothing is open.

        ``again``: the tab has just left another session of this environment.
        """
        episode = Played(uuid.uuid4().hex, self._name, start.task, seed, start.origin)
        self._session = await self._connect(again=again)
        try:
            request = ResetRequest(task=start.task, seed=seed, episode_id=episode.id)
            first = await self._session.reset(request)
        except BaseException:
            await self.end()
            raise
        shown = episode.begin(start.messages, start.tools, _clean_observation(first))
        self.episode = episode
        if first.done:
            await self.end()
        return shown

    async def rewind(
        self, recording: Recording, turns: int, *, tools: list[dict[str, Any]] | None, origin: str, again: bool
    ) -> Rewound:
        """Begin an episode in the state of a recorded one after ``turns`` turns. Raises environment errors."""
        reset = recording.reset
        episode = Played(reset.episode_id, self._name, reset.task, reset.seed, origin)
        self._session = await self._connect(again=again)
        try:
            stateless = self._reach.config.protocol in protocols.STATELESS
            found = await rewind(_Plain(self._session), recording, turns, stateless=stateless)
        except BaseException:
            await self.end()
            raise
        episode.begin(recording.prompt, tools, found.answers[0])
        for taken, answer in zip(recording.turns, found.answers[1:], strict=False):
            episode.answered(taken.said, answer, taken.parse_error)
        episode.replayed = found.turns
        self.episode = episode
        if found.over:
            await self.end()
        return found

    async def _connect(self, *, again: bool) -> protocols.Session:
        """A session. With ``again`` a full environment is asked twice: it may not have freed the slot that we left
        yet."""
        try:
            return await open_session(self._reach)
        except EnvironmentFull:
            if not again:
                raise
        await asyncio.sleep(FULL_AGAIN_S)
        return await open_session(self._reach)

    async def step(self, command: Step) -> tuple[Message, list[Message], float]:
        """Play one turn of a person. Returns the turn, the answer's messages, and how many seconds it took."""
        episode = self.episode
        if episode is None or self._session is None:
            raise PlayRefused("no_episode", _("No episode is open. Choose a task and start one."))
        if episode.turns - episode.replayed >= MAX_TURNS:
            await self.end()
            raise PlayRefused("too_long", _("An episode of the playground ends after %(n)s turns.") % {"n": MAX_TURNS})
        said = _message_of(episode, command)
        added, seconds = await self.take(episode, Taken(said, []))
        return said, added, seconds

    async def take(self, episode: Played, turn: Taken) -> tuple[list[Message], float]:
        """Play one turn, of a person or a policy. Returns the environment's messages, and how many seconds it took.

        A fault that the environment reports leaves the episode open: it refused this turn. After any other failure
        a late answer could be taken for the next one, so the session ends.
        """
        session = self._session
        if session is None:
            raise PlayRefused("no_episode", _("No episode is open. Choose a task and start one."))
        began = time.monotonic()
        try:
            answer = _clean_observation(await session.step(turn.request))
        except TiltyardError as exc:
            if type(exc) is not EnvironmentFault:  # its subclasses mean that the episode itself is lost
                await self.end()
            raise
        seconds = time.monotonic() - began
        added = episode.answered(turn.said, answer, turn.parse_error)
        if answer.done:
            await self.end()
        elif episode.size > MAX_TRANSCRIPT_BYTES:
            await self.end()
            raise PlayRefused("too_long", _("The conversation grew beyond 8 MB, so the episode was ended."))
        return added, seconds

    async def give_up(self) -> None:
        """Ask for the verdict on what was played, as a run does of a policy whose budget is spent; then end."""
        episode, session = self.episode, self._session
        if session is not None and episode is not None and episode.reward is None:
            with suppress(TiltyardError, TimeoutError):  # then there is none
                async with asyncio.timeout(VERDICT_LIMIT_S):
                    episode.judged(_clean_observation(await session.step(StepRequest(final=True))))
        await self.end()

    async def end(self) -> None:
        """Give the slot back; what was played stays. Never raises."""
        session, self._session = self._session, None
        if session is not None:
            await asyncio.shield(session.close())


class _Plain:
    """A session whose observations are as they are recorded and shown."""

    def __init__(self, inner: protocols.Session) -> None:
        self._inner = inner
        self.latencies, self.failures = inner.latencies, inner.failures

    async def reset(self, request: ResetRequest) -> Observation:
        return _clean_observation(await self._inner.reset(request))

    async def step(self, request: StepRequest) -> Observation:
        return _clean_observation(await self._inner.step(request))

    async def close(self) -> None:
        await self._inner.close()


def _message_of(episode: Played, command: Step) -> Message:
    """The turn as it goes into the transcript. Raises ``PlayRefused`` for arguments that no environment could read."""
    try:
        wanted = [(str(clean_json(call.name)), clean_json(call.arguments)) for call in command.tool_calls]
        problem = json_problem([arguments for _name, arguments in wanted])
    except RecursionError:
        problem = "it is nested too deeply"
    if problem is not None:
        raise PlayRefused("bad_arguments", _("The arguments cannot be sent: %(reason)s.") % {"reason": problem})
    calls = episode.calls(wanted)
    return Message(role="assistant", content=clean_json(command.message), tool_calls=calls or None)


def _clean_observation(observation: Observation) -> Observation:
    """The observation without what PostgreSQL and ``JSON.parse`` refuse."""
    cleaned: dict[str, Any] = clean_json(observation.model_dump(mode="json"))
    return Observation.model_validate(cleaned)
