"""Dataset rows: how a row names its visit, and how rows are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from envs.base import rows as base_rows
from envs.webshop.session import Session, Shop
from envs.wire import Message

SYSTEM_PROMPT = (
    "You are shopping on a text website. The instruction says what to buy. Each turn, think briefly and then do one "
    "action, as a tool call or as the last line of your message:\n"
    "Action: search[keywords]\n"
    "Action: click[value]\n"
    "A value is something on the page that can be clicked: a button, a product's number or an option. Open a product, "
    "choose the options that the instruction asks for, and end with click[Buy Now]."
)
MAX_MESSAGES = 200
MAX_CONTENT_LENGTH = 65536
MAX_DIGITS = 9


class _Named(BaseModel):
    """Something that names a visit; unknown fields are other people's."""

    model_config = ConfigDict(extra="ignore")

    session_id: int | None = None

    @field_validator("session_id", mode="before")
    @classmethod
    def _a_number(cls, value: Any) -> Any:
        """Tables write 12 as ``"12"`` or ``12.0``; a flag is no number."""
        if isinstance(value, bool):
            raise ValueError("must be a number")
        return value


class _ExtraInfo(BaseModel):
    model_config = ConfigDict(extra="ignore")

    interaction_kwargs: _Named | None = None


class TaskRow(_Named):
    """A row as this environment reads it: our own, one of verl or one of AgentGym.

    ``catalogue`` is the name of the data that ``session_id`` belongs to; a server with other data refuses the row.
    """

    catalogue: str | None = None
    interaction_kwargs: _Named | None = None
    extra_info: _ExtraInfo | None = None
    item_id: str | None = Field(default=None, pattern=rf"^webshop_[0-9]{{1,{MAX_DIGITS}}}$")
    conversation: list[Message] | None = Field(
        default=None, max_length=MAX_MESSAGES, validation_alias=AliasChoices("conversation", "messages", "prompt")
    )

    @field_validator("conversation", mode="before")
    @classmethod
    def _plain_prompt(cls, value: Any) -> Any:
        """Some rows have their prompt as text."""
        return [{"role": "user", "content": value}] if isinstance(value, str) else value

    @property
    def wanted_session(self) -> int | None:
        """The session id that the row names first; ``None`` where the seed decides."""
        inner = self.extra_info.interaction_kwargs if self.extra_info else None
        for named in (self, self.interaction_kwargs, inner):
            if named is not None and named.session_id is not None:
                return named.session_id
        return int(self.item_id.removeprefix("webshop_")) if self.item_id else None


def read_row(task: dict[str, Any]) -> TaskRow:
    """Check a row; raises ``EnvironmentRefusal`` with a sentence about the first fault."""
    # AgentGym's lists hold "conversations": null and other dialogues of theirs; only the id matters.
    row = base_rows.read_row(TaskRow, task)
    base_rows.check_lengths(row.conversation or [], MAX_CONTENT_LENGTH)
    return row


def opening(row: TaskRow, page: str) -> list[Message]:
    """The row's own messages, or ours, and then the first page as the user's turn, unless it is there already."""
    messages = list(row.conversation or []) or [Message(role="system", content=SYSTEM_PROMPT)]
    last = messages[-1]
    if last.role != "user":
        return [*messages, Message(role="user", content=page)]
    if last.content.endswith(page):
        return messages
    # Chat templates want the roles to take turns.
    return [*messages[:-1], last.model_copy(update={"content": f"{last.content}\n\n{page}"})]


def task_rows(shop: Shop, count: int, start: int = 0) -> Iterator[dict[str, Any]]:
    """Rows for ``count`` session ids from ``start``, with the opening that a reset repeats; fewer where goals end."""
    name = shop.catalogue.name
    for session_id in range(start, min(start + count, len(shop.goals))):
        first = opening(TaskRow(), Session(shop, shop.goals[session_id]).page.observation)
        messages = [{"role": message.role, "content": message.content} for message in first]
        row = {"id": f"webshop-{name}-{session_id}", "session_id": session_id, "catalogue": name}
        yield row | {"messages": messages}
