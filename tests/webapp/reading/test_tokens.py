"""The token view: columns as the trainer kept them, and why there are none where there are none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client

from tests.growth import assert_quick
from tests.webapp.reading.conftest import TALK
from training.token_file import FOLDER, LEARNED, SAMPLED, SEEN, SPELLING, Spelling, TokenValues, write_step
from webapp.common.storage import attempt_dir
from webapp.people.teams.models import User
from webapp.reading.turns import _column_lists, tokens_view
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

Make = Callable[..., Any]


@pytest.fixture
def rollout(trained: Make, play: Make) -> Rollout:
    run = trained()
    return play(run, 3, 1, 2, talk=TALK, success=1.0, advantage=1.25)


def keep(rollout: Rollout, count: int = 3, advantage: Any = 1.25) -> Path:
    """Values of a step's rollout: two tokens of the model's, then the environment's."""
    folder = attempt_dir(rollout.run_id, rollout.attempt)
    own = np.ones(count, np.uint8)
    own[-1] = 0
    values = TokenValues(
        prompt=np.array([900, 901], np.uint32),
        ids=np.arange(count, dtype=np.uint32) + 10,
        flags=own * 7,
        logprob=-0.5 * own.astype(np.float32),
        entropy=1.5 * own.astype(np.float32),
        ratio=np.where(own == 1, 2.0, 1.0).astype(np.float32),
        advantage=advantage,
    )
    path = write_step(folder, rollout.step, [(rollout.group, rollout.index, values)])
    words = {900: "天".encode(), 901: b"\xe5\xa4", 10: b" It", 11: b" is", 12: b" 45"}
    Spelling(folder, lambda number: words.get(number, b"x")).tell([900, 901, *range(10, 10 + count)])
    return path


def ask(client: Client, rollout: Rollout) -> dict[str, Any]:
    answer = client.get(f"/api/v1/rollouts/{rollout.pk}/tokens")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_the_columns_are_what_the_trainer_kept(rollout: Rollout, rita: User, client_for: Make) -> None:
    keep(rollout)
    found = ask(client_for(rita), rollout)
    assert found["why"] == "" and found["advantage"] == 1.25
    assert (found["prompt"], found["ids"]) == ([900, 901], [10, 11, 12])
    assert found["sampled"] == found["learned"] == [1, 1, 0]
    assert found["logprob"][:2] == pytest.approx([-0.5, -0.5], abs=0.02) and found["logprob"][2] is None
    assert found["entropy"][:2] == pytest.approx([1.5, 1.5], abs=0.02) and found["entropy"][2] is None
    assert found["ratio"][:2] == pytest.approx([2.0, 2.0], rel=0.012) and found["ratio"][2] is None
    assert found["spelling"] == {
        "900": ["天", True],
        "901": ["e5a4", False],
        "10": [" It", True],
        "11": [" is", True],
        "12": [" 45", True],
    }


def test_an_advantage_of_each_token(rollout: Rollout, rita: User, client_for: Make) -> None:
    keep(rollout, advantage=np.array([1.0, -0.5, 0.0], np.float32))
    assert ask(client_for(rita), rollout)["advantage"] == pytest.approx([1.0, -0.5, 0.0], abs=0.01)


def test_strangers_and_anonymous_visitors_see_none(
    rollout: Rollout, alice: User, client: Client, client_for: Make
) -> None:
    keep(rollout)
    path = f"/api/v1/rollouts/{rollout.pk}/tokens"
    stranger = User.objects.create_user("stranger", password="x")
    assert client_for(stranger).get(path).status_code == 404
    assert client.get(path).status_code == 401
    assert client_for(alice).post(path).status_code == 405
    assert client_for(alice).get(path.replace(str(rollout.pk), "1")).status_code == 404


def test_why_there_are_none(rollout: Rollout, rita: User, client_for: Make, play: Make) -> None:
    client = client_for(rita)
    assert ask(client, rollout) == {
        "why": "The values of this step are not kept: a run keeps those of its newest steps, up to 256 MiB "
        "(run.keep_tokens_mib), and of steps that were trained to their end.",
    }
    Run.objects.update(step=2)
    assert ask(client, rollout)["why"] == "The values are written once the step is trained on."
    held_out = play(rollout.run, 3, 0, 0, held_out=True)
    keep(held_out)  # a rollout of the same step that is learned from has this place
    assert ask(client, held_out)["why"] == "Only rollouts that a run learns from have values of tokens."
    run = Run.objects.get()
    run.resolved["run"]["keep_tokens_mib"] = 0
    run.save()
    assert "run.keep_tokens_mib is 0" in ask(client, rollout)["why"]
    Run.objects.update(imported_from="trl")
    assert ask(client, rollout)["why"].startswith("The run was imported")


def test_files_that_cannot_be_read_are_no_values(rollout: Rollout, rita: User, client_for: Make) -> None:
    path = keep(rollout)
    (path.parent / SPELLING).write_bytes(b"[1\n\xff\xfe")
    assert ask(client_for(rita), rollout)["spelling"] == {}
    path.write_bytes(b"PK torn")
    assert ask(client_for(rita), rollout)["why"]
    assert path.parent.name == FOLDER


def test_32_000_tokens_of_as_many_words_take_less_than_half_a_second(rollout: Rollout) -> None:
    keep(rollout, 32_000, np.linspace(-1, 1, 32_000).astype(np.float32))
    assert len(tokens_view(rollout)["ids"]) == 32_000
    assert_quick(lambda: json.dumps(tokens_view(rollout)), 0.5, clock=time.process_time)


def test_the_page_has_a_view_of_tokens(rollout: Rollout, rita: User, client_for: Make) -> None:
    text = client_for(rita).get(f"/p/joust/rollouts/{rollout.pk}/?view=tokens").content.decode()
    assert 'id="tokens"' in text and "rollout_tokens.js" in text and 'id="transcript"' not in text
    assert "rollout_tokens.js" not in client_for(rita).get(f"/p/joust/rollouts/{rollout.pk}/").content.decode()


def test_each_column_says_its_own_flag() -> None:
    """An own token that was learned from and seen, an own one that was neither, an environment's, one only seen."""
    flags = np.array([SAMPLED + LEARNED + SEEN, SAMPLED, 0, SEEN], np.uint8)
    column = np.array([-0.5, -0.25, 0.0, -1.0], np.float32)
    values = TokenValues(
        prompt=np.array([7], np.uint32), ids=np.arange(4, dtype=np.uint32), flags=flags,
        logprob=column, entropy=-column, ratio=1 - column, advantage=column,
    )  # fmt: skip
    columns = _column_lists(values)
    assert columns["sampled"] == [1, 1, 0, 0] and columns["learned"] == [1, 0, 0, 0]
    assert columns["logprob"] == [-0.5, -0.25, None, None]
    assert columns["entropy"] == [0.5, None, None, 1.0] and columns["ratio"] == [1.5, None, None, 2.0]
    assert columns["advantage"] == [-0.5, -0.25, 0.0, -1.0]
