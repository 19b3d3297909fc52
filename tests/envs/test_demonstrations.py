"""What models imitate is right: played once more, each demonstration gets the same answers and the full reward."""

from __future__ import annotations

from typing import Any

import pytest

from envs.base import ToolEnvironment
from envs.bfcl.application import ids_of
from envs.bfcl.demonstrations import demonstration as bfcl_demonstration
from envs.bfcl.server import BfclEnvironment
from envs.webshop.demonstrations import demonstration as webshop_demonstration
from envs.webshop.generator import generated_catalogue
from envs.webshop.server import WebshopEnvironment
from envs.webshop.session import Shop
from envs.wire import Message, Observation, StepRequest


def played_again(environment: ToolEnvironment, task: dict[str, Any], conversation: list[dict[str, Any]]) -> Observation:
    """Say what the demonstration says; whatever is answered must be what it holds."""
    messages = [Message.model_validate(item) for item in conversation]
    answer = environment.reset(task, 0, "again")
    place = len(answer.messages)
    assert messages[:place] == answer.messages
    while not answer.done:
        message = messages[place]
        assert message.role == "assistant"
        answer = environment.step(StepRequest(message=message.content, tool_calls=message.tool_calls or []))
        assert messages[place + 1 : place + 1 + len(answer.messages)] == answer.messages
        place += 1 + len(answer.messages)
    assert place == len(messages)
    return answer


@pytest.mark.parametrize("speech", ["native", "text"])
def test_bfcl(speech: Any) -> None:
    for name in (*ids_of("base")[:6], *ids_of("miss_func")[:3]):
        row = bfcl_demonstration(name, speech)
        end = played_again(BfclEnvironment(), {"id": name, "speech": speech}, row["conversation"])
        assert (end.reward, end.reward_parts["format_reward"]) == (1.0, 1.0)
        assert ("tools" in row) == (speech == "native")


@pytest.mark.parametrize("speech", ["native", "text"])
def test_webshop(speech: Any) -> None:
    shop = Shop(generated_catalogue(40, 0), goals="synthetic", reward="fixed")
    for session_id in range(0, len(shop.goals), 9):
        row = webshop_demonstration(shop, session_id, speech)
        end = played_again(WebshopEnvironment(shop), {"session_id": session_id}, row["conversation"])
        assert end.reward == 1.0
