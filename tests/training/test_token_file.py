"""Values of tokens: what is read is what was written, within the codes' steps; small, and never half a file."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from training.token_file import (
    LEARNED,
    SAMPLED,
    SEEN,
    Spelling,
    TokenValues,
    flags_of,
    keep_newest,
    read_rollout,
    spelled,
    step_file,
    write_step,
)


def rollout(count: int = 4, **over: object) -> TokenValues:
    values: dict[str, object] = {
        "prompt": np.array([151_643, 7, 0], np.uint32),
        "ids": np.arange(count, dtype=np.uint32) * 40_000,
        "flags": np.full(count, SAMPLED + LEARNED + SEEN, np.uint8),
        "logprob": np.full(count, -0.5, np.float32),
        "entropy": np.full(count, 1.5, np.float32),
        "ratio": np.full(count, 1.0, np.float32),
        "advantage": -1.25,
    }
    return TokenValues(**(values | over))  # type: ignore[arg-type]


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    logprob = np.array([0.0, -0.001, -1.0, -30.0], np.float32)
    entropy = np.array([0.0, 0.01, 2.0, 11.9], np.float32)
    ratio = np.array([1.0, 0.9, 3.0, 100.0], np.float32)
    given = rollout(logprob=logprob, entropy=entropy, ratio=ratio, flags=np.array([7, 0, 1, 5], np.uint8))
    path = write_step(tmp_path, 12, [(0, 1, rollout()), (3, 0, given)])
    assert path == tmp_path / "tokens" / "step-000012.zip"
    found = read_rollout(tmp_path, 12, 3, 0)
    assert found is not None and found.advantage == -1.25
    assert found.prompt.tolist() == [151_643, 7, 0] and found.ids.tolist() == [0, 40_000, 80_000, 120_000]
    assert found.flags.tolist() == [7, 0, 1, 5]
    assert found.logprob == pytest.approx([0.0, -0.001, -1.0, -20.0], abs=0.04)
    assert abs(found.logprob[1] + 0.001) < 0.0005
    assert found.entropy == pytest.approx([0.0, 0.01, 2.0, 11.9], abs=0.04)
    assert found.ratio == pytest.approx([1.0, 0.9, 3.0, 16.0], rel=0.012)
    assert found.ratio[0] == 1.0  # nothing is said to differ where nothing does


def test_advantages_of_single_tokens_keep_their_signs(tmp_path: Path) -> None:
    given = np.array([0.0, 0.25, -1.0, 4.0], np.float32)
    write_step(tmp_path, 1, [(0, 0, rollout(advantage=given)), (0, 1, rollout(advantage=np.zeros(4, np.float32)))])
    found, flat = read_rollout(tmp_path, 1, 0, 0), read_rollout(tmp_path, 1, 0, 1)
    assert found is not None and isinstance(found.advantage, np.ndarray)
    assert found.advantage == pytest.approx([0.0, 0.25, -1.0, 4.0], abs=0.03)
    assert flat is not None and isinstance(flat.advantage, np.ndarray) and not flat.advantage.any()


def test_a_rollout_without_an_advantage_or_a_token(tmp_path: Path) -> None:
    write_step(tmp_path, 1, [(0, 1, rollout(3)), (0, 0, rollout(0, advantage=None))])
    found = read_rollout(tmp_path, 1, 0, 0)
    assert found is not None and found.advantage is None and len(found.ids) == 0 and len(found.prompt) == 3


def test_a_token_costs_less_than_six_bytes(tmp_path: Path) -> None:
    """A rollout of 32,000 tokens drawn as a language's are: few often, many seldom."""
    rng, count = np.random.default_rng(1), 32_000
    ids = np.minimum(rng.zipf(1.2, count), 151_000).astype(np.uint32)
    surprise = rng.exponential(0.5, count).astype(np.float32)
    given = rollout(
        count,
        ids=ids,
        flags=np.full(count, 7, np.uint8),
        logprob=-surprise,
        entropy=rng.exponential(0.4, count).astype(np.float32),
        ratio=np.exp(rng.normal(0, 0.05, count)).astype(np.float32),
        advantage=rng.normal(0, 1, count).astype(np.float32),
    )
    path = write_step(tmp_path, 1, [(0, 0, given)])
    assert path.stat().st_size <= 6 * count, path.stat().st_size / count


@pytest.mark.parametrize("step, group, index", [(1, 1, 0), (2, 0, 0), (1, 0, 1)])
def test_what_was_not_kept_is_not_there(tmp_path: Path, step: int, group: int, index: int) -> None:
    write_step(tmp_path, 1, [(0, 0, rollout())])
    assert read_rollout(tmp_path, step, group, index) is None


def test_a_file_that_is_torn_or_not_ours_is_no_values(tmp_path: Path) -> None:
    path = write_step(tmp_path, 1, [(0, 0, rollout(2000))])
    whole = path.read_bytes()
    rng = random.Random(3)
    for cut in (0, 10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:cut])
        assert read_rollout(tmp_path, 1, 0, 0) is None
    for _ in range(200):
        torn = bytearray(whole)
        torn[rng.randrange(len(torn))] ^= 1 << rng.randrange(8)
        path.write_bytes(torn)
        read_rollout(tmp_path, 1, 0, 0)  # whatever it says, it does not raise
    lies = (
        "[]",
        "{}",
        "3",
        '[{"index": 0}]',
        '[{"index": 0, "prompt": -1, "tokens": -1}]',
        '[{"prompt": "x"}]',
        "[[]]",
    )
    contents = (len(text).to_bytes(4, "little") + text.encode() for text in lies)
    for content in (b"", b"\xff\xff\xff\xff{}", b"\x02\0\0\0[]x", *contents):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("0", content)
        assert read_rollout(tmp_path, 1, 0, 0) is None


def test_the_newest_steps_are_kept_within_the_limit(tmp_path: Path) -> None:
    sizes = [write_step(tmp_path, step, [(0, 0, rollout(500))]).stat().st_size for step in range(1, 6)]
    assert keep_newest(tmp_path, 10**9) == sum(sizes)
    assert keep_newest(tmp_path, sum(sizes[-2:]) + 1) == sum(sizes[-2:])
    assert [step_file(tmp_path, step).exists() for step in range(1, 6)] == [False, False, False, True, True]
    assert keep_newest(tmp_path, 0) == 0
    assert not list((tmp_path / "tokens").glob("step-*"))


def test_spellings_are_written_once_and_halves_of_characters_as_bytes(tmp_path: Path) -> None:
    words = {5: "天气".encode(), 6: "天".encode()[:2], 7: b"a\nb"}
    asked: list[int] = []
    spelling = Spelling(tmp_path, lambda number: asked.append(number) or words[number])  # type: ignore[func-returns-value]
    spelling.tell([7, 5])
    spelling.tell([5, 6, 7])
    Spelling(tmp_path, lambda number: b"never").tell([5, 6])  # another process continues the same file
    assert asked == [5, 7, 6]
    assert spelled(tmp_path) == {5: ("天气", True), 6: ("e5a4", False), 7: ("a\nb", True)}
    assert spelled(tmp_path, {6}) == {6: ("e5a4", False)}
    path = tmp_path / "tokens" / "spelling.jsonl"
    path.write_text(path.read_text() + '[8, "ha')
    assert set(spelled(tmp_path)) == {5, 6, 7}
    assert [json.loads(line)[0] for line in path.read_text().splitlines()[:3]] == [5, 7, 6]
    assert spelled(tmp_path / "nowhere") == {}


def test_flags() -> None:
    assert flags_of([1, 0, 1], 1, 1).tolist() == [7, 0, 7]
    assert flags_of([1, 0, 1], [1, 1, 0], 0).tolist() == [3, 0, 1]
    assert flags_of([1, 1], 0, 1).tolist() == [5, 5]
