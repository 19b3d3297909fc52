"""What the environment said after each turn, as a rollout keeps it."""

from __future__ import annotations

from envs.wire import Message, Observation
from tests.training.rollout.test_player import EOS, Engine, Session, play
from training.policy.engine import Sample


def says(*rewards: float | None, over: bool = True) -> list[Observation]:
    messages = [Message(role="tool", content="5")]
    found = [Observation(messages=messages, reward=reward) for reward in rewards]
    return [*found[:-1], found[-1].model_copy(update={"done": over, "messages": []})]


def test_each_answer_s_reward_has_its_turn_s_place() -> None:
    found, *_ = play(Session(Observation(reward=0.5), *says(None, 0.75, None, 0.25)))
    assert found.turns == 4 and found.turn_rewards == [0.5, None, 0.75, None, 0.25] == found.rewards_by_turn
    assert found.turn_starts == [0, 4, 8, 12] and found.env_reward == 0.25
    assert [found.mask[place] for place in found.turn_starts] == [1] * 4
    found.fail()
    assert found.rewards_by_turn is None and found.env_reward == 0.0


def test_a_turn_without_an_answer_has_no_reward() -> None:
    cut = Engine(Sample([7, EOS], [-0.5, -0.25], True), Sample([7, 7], [-0.5, -0.25], False))
    session = Session(Observation(), *says(0.75, over=False)[:1])
    session.answers[0] = session.answers[0].model_copy(update={"messages": [Message(role="tool", content="5")]})
    found, *_ = play(session, engine=cut)
    assert found.status == "truncated" and found.rewards_by_turn == [None, 0.75, None]
    asked = Session(Observation(), Observation(messages=[Message(role="tool", content="5")]), Observation(reward=0.25))
    found, *_ = play(asked, engine=Engine(*cut.turns))
    assert found.rewards_by_turn == [None, None, 0.25]  # its verdict, once the budget was spent
    found, *_ = play()
    assert found.rewards_by_turn is None and found.turn_starts == [0]
