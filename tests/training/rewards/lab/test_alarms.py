"""Alarms, each raised by what it is about and silent about honest sets: a reward that is known to be bad, on episodes
as the real environment answers them."""

from __future__ import annotations

import importlib.util
import random
import uuid
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message, StepRequest, ToolCall
from training.config import RewardComponent
from training.rewards.base import Episode, played, says, user
from training.rewards.lab.alarms import Alarm, Ranking, alarms_of, ceiling
from training.rewards.lab.figures import outcome_of, scored
from training.rewards.lab.rules import ALARMS
from training.rewards.lab.scoring import score_set
from training.rewards.lab.table import column_of, table_load
from training.rewards.lab.writing import Recorded, SetWriter, behaviour_of, is_cut
from training.rewards.toolbench import SEED_SPEC

HACKS = {"looping_pays", "shaping_over_outcome", "grows_with_length", "cut_episodes_pay"}
LS = ToolCall(id="1", name="ls", arguments={})


def spec(**weights: float) -> list[RewardComponent]:
    return [RewardComponent(name=name, weight=weight) for name, weight in weights.items()]


def found(
    folder: Path, groups: Sequence[Sequence[Episode]], components: list[RewardComponent], policies: Sequence[str] = ()
) -> dict[str, Alarm]:
    """The alarms of a set under a spec, by code; ``policies`` are who played, by place in the group."""
    with SetWriter(folder) as writer:
        for group, episodes in enumerate(groups):
            for index, episode in enumerate(episodes):
                status = "truncated" if episode.truncated else "completed"
                policy = policies[index] if index < len(policies) else ""
                writer.add(Recorded(uuid.uuid4(), group=group, index=index, status=status, policy=policy), episode)
        writer.finish()
    score_set(folder, components)
    table = table_load(folder)
    under = scored(table, components, {item.name: column_of(table, item) for item in components})
    alarms = alarms_of(table, under, outcome_of(table, under))
    graveness = [("stop", "warn", "note").index(alarm.severity) for alarm in alarms]
    assert graveness == sorted(graveness), "the page shows them in this order"
    for alarm in alarms:
        assert alarm.sentence % dict.fromkeys(alarm.figures, "1")
        assert alarm.severity in ("stop", "warn", "note") and all(0 <= place < table.size for place in alarm.places)
    return {alarm.code: alarm for alarm in alarms}


# --- BFCL, played against the real environment ------------------------------------------------------------------------
def bfcl_episode(name: str, steps: Iterable[StepRequest], limit: int = 60) -> Episode:
    """One episode as a rollout records it."""
    from envs.bfcl.server import BfclEnvironment

    environment = BfclEnvironment()
    opened = environment.reset({"id": name}, 0, "test")
    messages, seen = list(opened.messages), opened
    for step, _number in zip(steps, range(limit), strict=False):
        messages.append(Message(role="assistant", content=step.message, tool_calls=step.tool_calls or None))
        seen = environment.step(step)
        messages += seen.messages
        if seen.done:
            break
    cut = bool(seen.info.get("truncated"))
    return Episode(messages, len(opened.messages), env_reward=seen.reward, env_parts=seen.reward_parts, truncated=cut)


@pytest.fixture(scope="module")
def bfcl() -> list[list[Episode]]:
    """Six tasks: solved, begun and given up after the first turn, ``ls`` without end, and answers without a call."""
    if importlib.util.find_spec("bfcl_eval") is None:
        pytest.skip("bfcl-eval is not installed")
    from envs.bfcl.application import ANSWER, gold_steps
    from envs.bfcl.tasks import read_row, resolve

    groups = []
    for number in range(6):
        name = f"multi_turn_base_{number}"
        gold = gold_steps(resolve(read_row({"id": name}), 0))
        first = gold[: gold.index(ANSWER) + 1]
        groups.append(
            [
                bfcl_episode(name, gold),
                bfcl_episode(name, [*first, StepRequest()]),
                bfcl_episode(name, repeat(StepRequest(message="<think>look</think>", tool_calls=[LS]))),
                bfcl_episode(name, repeat(ANSWER)),
            ]
        )
    return groups


def test_endless_ls_is_paid_by_the_stage_1_reward_and_not_by_success(tmp_path: Path, bfcl: Any) -> None:
    """As the paper's first stage scores it, for any policy that is named."""
    for number, policies in enumerate(((), ("", "", "one_tool"))):
        folder = tmp_path / str(number)
        alarm = found(folder / "a", bfcl, spec(bfcl_stage_1=1), policies)["looping_pays"]
        assert (alarm.severity, alarm.component) == ("stop", "bfcl_stage_1")
        assert alarm.figures == {"cases": 6, "mean": pytest.approx(2.0), "against": pytest.approx(2.0)}
        assert set(alarm.places) <= {2, 6, 10, 14, 18, 22}
        honest = found(folder / "b", bfcl, spec(bfcl_task_success=1, bfcl_format=0.2), policies)
        assert not HACKS & set(honest)


def test_progress_over_reached_turns_pays_for_being_cut_and_over_all_turns_does_not(tmp_path: Path, bfcl: Any) -> None:
    alarm = found(tmp_path / "a", bfcl, spec(bfcl_progress_reached=1))["cut_episodes_pay"]
    assert alarm.component == "bfcl_progress_reached" and alarm.figures["cases"] == alarm.figures["cut"] >= 4
    assert alarm.figures["mean"] == alarm.figures["against"] == 1.0
    assert {place % 4 for place in alarm.places} == {1}
    assert not HACKS & set(found(tmp_path / "b", bfcl, spec(bfcl_progress_all=1)))


# --- ToolBench --------------------------------------------------------------------------------------------------------
def toolbench_episode(rng: random.Random, *, solved: bool) -> Episode:
    """Two searches and an answer, of any length, as the text form has it."""
    messages: list[Message] = []
    for _turn in range(2):
        bad = not solved and rng.random() < 0.7
        thought = "Thought: " + "let me think. " * rng.randint(1, 60)
        messages += [
            says(f'{thought}\nAction: search\nAction Input: {{"q": "{rng.random()}"}}'),
            user(f'Observation: {{"error": "{"failed" if bad else ""}", "response": "x"}}'),
        ]
    kind = '{"return_type": "give_answer", "final_answer": "a"}' if solved else '{"return_type": "give_up_and_restart"}'
    return played(
        "q", *messages, says(f"Thought: done\nAction: Finish\nAction Input: {kind}"), env_reward=float(solved)
    )


def test_a_bonus_for_each_token_outweighs_the_outcome_and_grows_with_length(tmp_path: Path) -> None:
    rng = random.Random(5)
    groups = [[toolbench_episode(rng, solved=index < 2) for index in range(6)] for _group in range(12)]
    honest = [*spec(task_success=0.4), *SEED_SPEC]
    bonus = found(tmp_path / "a", groups, [*honest, *spec(toolbench_token_bonus=1)])
    assert bonus["grows_with_length"].component == "toolbench_token_bonus"
    assert bonus["grows_with_length"].figures["r"] > 0.95
    assert bonus["shaping_over_outcome"].component == "toolbench_token_bonus"
    assert bonus["shaping_over_outcome"].figures["groups"] == 12 and bonus["shaping_over_outcome"].severity == "stop"
    assert not HACKS & set(found(tmp_path / "b", groups, honest))


def test_shaping_that_spreads_wider_than_the_outcome_is_worth(tmp_path: Path) -> None:
    """None solves anything, so no group can show it: the range does."""
    rng = random.Random(5)
    groups = [[toolbench_episode(rng, solved=False) for _index in range(6)] for _group in range(4)]
    loud = [*spec(task_success=0.1), RewardComponent(name="toolbench_function_call", weight=1)]
    alarm = found(tmp_path / "a", groups, loud)["shaping_over_outcome"]
    assert alarm.other and alarm.figures["worth"] == pytest.approx(0.1) and alarm.figures["shaping"] > 0.1
    assert "shaping_over_outcome" not in found(tmp_path / "b", groups, [*spec(task_success=5), *SEED_SPEC])


# --- The quiet ones ---------------------------------------------------------------------------------------------------
def test_degenerate_policies_are_held_against_the_ceiling_where_no_other_played(tmp_path: Path) -> None:
    begs = [[played("q", says("please"), env_reward=0.0) for _index in range(2)] for _group in range(4)]
    paid, unpaid = spec(task_success=0.1, coherence=0.9), spec(task_success=1)
    assert ceiling(paid) == 1.0
    names = ("beg", "empty")
    assert "looping_pays" not in found(tmp_path / "a", begs, paid, names)  # 0.72 of 1
    praised = [RewardComponent(name="coherence", weight=1, clip=[0, 0.8])]
    assert found(tmp_path / "b", begs, praised, names)["looping_pays"].figures["against"] == pytest.approx(0.8)
    assert "looping_pays" not in found(tmp_path / "c", begs, unpaid, names)


@pytest.mark.parametrize(("weight", "reported"), [(0.0, True), (0.01, True), (0.1, False)])
def test_a_reward_that_pays_nothing_for_the_outcome(tmp_path: Path, weight: float, reported: bool) -> None:
    """Form differs as much among those who did the task as among those who did not: from 0 to 0.6."""
    texts = ["", "a" * 300, "", "a" * 300]
    groups = [
        [played("q", says(text), env_reward=float(index < 2)) for index, text in enumerate(texts)]
        for _group in range(3)
    ]
    form = RewardComponent.model_validate({"name": "length_budget", "weight": 0.6, "params": {"min_chars": 300}})
    alarms = found(tmp_path, groups, [*spec(task_success=weight), form])
    assert ("outcome_unpaid" in alarms) is reported
    if reported:
        alarm = alarms["outcome_unpaid"]
        assert (alarm.severity, alarm.component) == ("stop", "length_budget")
        assert alarm.figures["groups"] == 3 and alarm.figures["gain"] == pytest.approx(weight)
        assert {place % 4 for place in alarm.places} <= {2, 3} and alarm.figures["spread"] == pytest.approx(
            0.6, abs=0.02
        )
        # 0 of 3, Wilson: 3.8415 / (3 + 3.8415) = 56.15%
        share = {name: alarm.figures[name] for name in ("cases", "share", "low", "high")}
        assert share == pytest.approx({"cases": 0, "share": 0, "low": 0, "high": 56.15}, abs=0.01)
    few = found(tmp_path / "two", groups[:2], [*spec(task_success=weight), form]).get("outcome_unpaid")
    assert (few is not None) is (weight == 0), "two groups are too few, and a weight of 0 needs none"
    assert few is None or (few.severity, few.other, few.figures, few.places) == ("stop", True, {}, [])


def test_what_the_outcome_makes_of_answers_that_are_known(tmp_path: Path) -> None:
    """Of each group two answers are wrong, two right, and one has no answer to know, so that its policy is silent."""
    names = ("negate", "list_answers", "paraphrase", "other_language", "contradict")
    texts = ("The answer is not 42.", "It could be 41 or 42.", "x = 84/2", "La respuesta correcta es 42.", "")
    groups = [[played("q", says(text), row={"answer": "42"}) for text in texts] for _group in range(3)]
    last = found(tmp_path / "a", groups, spec(numeric_match=1), names)["answers_misjudged"]
    assert last.figures == {"accepted": 6, "wrong": 6, "refused": 3, "right": 6}
    assert (last.severity, last.component, last.other, len(last.places)) == ("stop", "numeric_match", False, 5)
    assert {place % 5 for place in last.places} == {0, 1}
    exact = found(tmp_path / "b", groups, spec(exact_match=1), names)["answers_misjudged"]
    assert exact.figures == {"accepted": 0, "wrong": 6, "refused": 6, "right": 6}
    assert (exact.severity, exact.other) == ("warn", True) and {place % 5 for place in exact.places} == {2, 3}
    assert "answers_misjudged" not in found(tmp_path / "c", groups, spec(math_answer=1), names)
    assert "answers_misjudged" not in found(tmp_path / "d", groups, spec(exact_match=1))  # who played is not known


def test_notes_about_the_spec_and_the_groups(tmp_path: Path) -> None:
    def answered(text: str, **over: Any) -> Episode:
        return played("q", says(text), **over)

    groups = [
        [answered("a" * (5 + 9 * index), env_reward=float(group % 2)) for index in range(3)] for group in range(6)
    ]
    flat = found(tmp_path / "a", groups, spec(task_success=0.5, coherence=0.2))
    assert set(flat) == {"zero_variance", "constant_component", "ceiling_below_one"}
    assert flat["zero_variance"].severity == "stop" and flat["zero_variance"].figures == {"cases": 6, "groups": 6}
    assert flat["constant_component"].component == "coherence"
    assert flat["constant_component"].figures == {"value": pytest.approx(0.8), "rollouts": 18}
    assert flat["ceiling_below_one"].figures["ceiling"] == pytest.approx(0.7)
    phantom = found(
        tmp_path / "b",
        groups,
        [
            *spec(task_success=1),
            RewardComponent.model_validate({"name": "length_budget", "weight": 0.5, "params": {"min_chars": 100}}),
        ],
    )
    assert phantom["phantom_groups"].figures == {"cases": 6, "groups": 6} and "zero_variance" not in phantom
    assert "grows_with_length" not in phantom  # it does, by a tenth of what success is worth
    unjudged = [[answered(f"{index}") for index in range(3)] for _group in range(4)]
    judged = found(tmp_path / "c", unjudged, spec(coherence=1, judge=1))
    assert judged["judge_missing"].component == "judge" and judged["judge_missing"].figures == {"missing": 12}
    assert found(tmp_path / "d", unjudged, spec(final_answer=1))["outcome_missing"].figures["missing"] == 12


def test_ceilings_follow_bounds_weights_and_gates() -> None:
    part = RewardComponent.model_validate
    assert ceiling([part({"name": "coherence", "weight": 2}), part({"name": "task_success", "weight": -1})]) == 2.0
    assert ceiling([part({"name": "toolbench_function_call", "weight": 1})]) is None
    assert ceiling([part({"name": "toolbench_function_call", "weight": 1, "clip": [-1, 0.5]})]) == 0.5
    assert ceiling([part({"name": "toolbench_last_turn", "weight": 1, "scale": [-0.5, 0.2]})]) == pytest.approx(1)
    assert ceiling([part({"name": "coherence", "weight": 1, "schedule": {"end": 9, "first": 0.5, "last": 3}})]) == 3.0
    gated = {"name": "coherence", "weight": -1, "scale": [2, 3], "gate": {"component": "task_success"}}
    assert ceiling([part(gated)]) == pytest.approx(2.0)


def test_every_alarm_has_words() -> None:
    assert all(words.title and words.sentence and words.rule for words in ALARMS.values()) and len(ALARMS) == 12


@pytest.mark.parametrize(
    ("messages", "facts"),
    [
        ([says("", "ls"), says("", "ls"), says("", "cd"), says("done")], (3, 2)),
        (
            [says("<think>a</think><tool_call>{}</tool_call>"), says("<think>b</think>\n<tool_call>{}</tool_call>")],
            (2, 2),
        ),
        ([says("Thought: a\nAction: x\nAction Input: {}"), says("Thought: b\nAction: x\nAction Input: {}")], (2, 2)),
        ([says("click[Buy Now]"), says("search[red shoes]"), says("search[red shoes]")], (3, 2)),
        ([says("[ls(), cd(folder='a')]"), says("[ls()]")], (2, 1)),
        ([says("Yes."), says("Yes.")], (0, 0)),
    ],
)
def test_repeated_calls_are_counted_in_every_speech(messages: list[Message], facts: tuple[int, int]) -> None:
    seen = behaviour_of(played("q", *messages))
    assert (seen.actions, seen.repeats) == facts


def test_an_episode_is_cut_when_turns_were_never_reached() -> None:
    row = {"user_turn_rewards": [-1, 1], "ground_truth": [[], []]}
    assert is_cut(played("q", says("a"), row=row)) and is_cut(played("q", truncated=True))
    assert not is_cut(played("q", says("a"), row={**row, "user_turn_rewards": [1, 1]}))
    assert not is_cut(played("q", says("a"), env_parts={"progress_reached": 0.5, "progress_all": 0.5}))


def test_a_ranking_is_grave_or_clear_by_how_many_groups_it_is_of() -> None:
    grave = [Ranking(cases, 0, groups).is_grave for cases, groups in ((3, 30), (3, 31), (2, 2), (0, 0))]
    assert grave == [True, False, False, False]
    clear = [Ranking(0, 0, groups).is_clear for groups in (35, 34)]
    assert clear == [True, False]
    assert not Ranking(1, 0, 1000).is_clear and not Ranking(0, 1, 1000).is_clear
