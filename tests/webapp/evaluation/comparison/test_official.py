"""Benchmarks by their own names: values planted by hand, and BFCL's recorded episodes through a real evaluation."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from tests.envs.bfcl.test_goldens import GOLDENS
from webapp.evaluation.comparison.boards import official_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

pytestmark = pytest.mark.django_db
SPLITS = ("base", "miss_func", "miss_param", "long_context")


@pytest.fixture
def bfcl(make_dataset: Callable[..., Any], evaluation: Callable[..., Run]) -> Callable[..., Run]:
    """``bfcl({id: "" or an error})``: an evaluation with these verdicts, one try an entry."""

    def make(verdicts: dict[str, str | None]) -> Run:
        lines = [
            {
                "id": name,
                "split": name.removeprefix("multi_turn_").rpartition("_")[0],
                "messages": [{"role": "user", "content": name}],
            }
            for name in verdicts
        ]
        data = make_dataset(lines, name="entries")
        tries = {n: [None if error is None else float(not error)] for n, error in enumerate(verdicts.values())}
        run = evaluation("exam", tries, dataset=data)
        for n, error in enumerate(verdicts.values()):
            parts = {"bfcl_valid": float(not error)} | ({f"bfcl_error/{error}": 1.0} if error else {})
            Rollout.objects.filter(run=run, row=n).exclude(status="excluded").update(env_parts=parts)
        return run

    return make


def shown(run: Run) -> dict[str, str]:
    official = official_of(run)
    assert official is not None
    return {column.name: item.text for column, item in zip(official.columns, official.cells, strict=True)}


def test_bfcl_is_shown_by_split_and_its_overall_is_the_mean_of_four(bfcl: Callable[..., Run]) -> None:
    verdicts = {
        f"multi_turn_{split}_{n}": ("" if n < good else "instance_state_mismatch")
        for split, good in zip(SPLITS, (4, 2, 1, 0), strict=True)
        for n in range(4)
    }
    assert shown(bfcl(verdicts)) == {
        "overall": "43.8%",
        "base": "100%",
        "miss_func": "50%",
        "miss_param": "25%",
        "long_context": "0%",
    }


def test_without_all_splits_there_is_no_overall_and_the_page_says_why(
    bfcl: Callable[..., Run], client_for: Any, rita: Any
) -> None:
    run = bfcl({"multi_turn_base_1": "", "multi_turn_base_2": "force_terminated", "multi_turn_base_3": None})
    assert shown(run) == {"base": "50%"}  # what failed outside the policy is no entry that failed
    official = official_of(run)
    assert official is not None and official.notes == [
        "The overall accuracy is the mean of four splits; played were: base."
    ]
    page = client_for(rita).get(reverse("run-detail", args=[run.project.slug, run.pk])).content.decode()
    assert "BFCL multi-turn accuracy" in page and "played were: base" in page and "bfcl-scores.zip" in page


def score_files(client: Any, run: Run) -> dict[str, list[dict[str, Any]]]:
    answer = client.get(reverse("run-score-files", args=[run.project.slug, run.pk]))
    assert answer.status_code == 200 and "bfcl-scores.zip" in answer["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        return {
            name: [json.loads(line) for line in archive.read(name).decode().splitlines()] for name in archive.namelist()
        }


def test_the_score_file_has_the_accuracy_and_then_each_failure(
    bfcl: Callable[..., Run], client_for: Any, rita: Any
) -> None:
    run = bfcl(
        {"multi_turn_base_7": "", "multi_turn_base_9": "execution_response_mismatch", "multi_turn_miss_func_2": ""}
    )
    files = score_files(client_for(rita), run)
    assert files["BFCL_multi_turn_miss_func_score.json"] == [{"accuracy": 1.0, "correct_count": 1, "total_count": 1}]
    assert files["BFCL_multi_turn_base_score.json"] == [
        {"accuracy": 0.5, "correct_count": 1, "total_count": 2},
        {
            "id": "multi_turn_base_9",
            "model_name": "exam",
            "test_category": "multi_turn_base",
            "valid": False,
            "error": {"error_type": "multi_turn:execution_response_mismatch"},
        },
    ]


def test_other_evaluations_have_no_benchmark_and_no_files(
    evaluation: Callable[..., Run], client_for: Any, rita: Any
) -> None:
    run = evaluation("plain", {0: [1]})
    assert official_of(run) is None
    assert client_for(rita).get(reverse("run-score-files", args=[run.project.slug, run.pk])).status_code == 302


def test_webshop_has_a_score_of_a_hundred_and_a_success_rate(evaluation: Callable[..., Run]) -> None:
    run = evaluation("shop", {0: [1, 0], 1: [0, 0]})
    for place, score in (((0, 0), 1.0), ((0, 1), 0.5), ((1, 0), 0.25), ((1, 1), 0.75)):
        parts = {"score": score, "r_type": 1.0, "task_success": float(score == 1)}
        Rollout.objects.filter(run=run, row=place[0], index=place[1]).update(env_parts=parts)
    assert shown(run) == {"score": "62.5", "success_rate": "25%"}


def test_toolbench_has_a_pass_rate_only_with_its_judge(evaluation: Callable[..., Run]) -> None:
    env = {"finish": 1.0, "valid_turns": 1.0, "function_call": 0.1}
    plain = evaluation("tools", {0: [1]})
    Rollout.objects.filter(run=plain).update(env_parts=env)
    official = official_of(plain)
    assert official is not None and not official.columns and "needs the component toolbench_pass" in official.notes[0]
    components = [{"name": "toolbench_pass", "weight": 1.0, "params": {}}]
    judged = evaluation("judged", {0: [1], 1: [1]}, components=components, parts=lambda _s: {"toolbench_pass": 0.5})
    Rollout.objects.filter(run=judged).update(env_parts=env)
    Rollout.objects.filter(run=judged, row=0).update(parts={"toolbench_pass": 1.0})
    assert shown(judged) == {"pass_rate": "75%"}


def test_the_goldens_as_an_evaluation_give_the_official_checkers_score_file(
    bfcl: Callable[..., Run], client_for: Any, rita: Any
) -> None:
    """Upstream's recorded episodes, played in the environment; the oracle is ``bfcl-eval``'s own checker."""
    if not GOLDENS.is_file():
        pytest.skip(f"{GOLDENS} is not on this machine")
    from tests.envs.bfcl.test_official import official, replayed

    rows = [json.loads(line) for line in GOLDENS.read_text(encoding="utf-8").splitlines()]
    for policy in sorted({row["policy"] for row in rows}):
        chosen = {row["id"]: row for row in rows if row["policy"] == policy}
        errors_of, oracle = {}, {}
        for name, row in chosen.items():
            seen, turns, forced = replayed(row)
            errors = [key.removeprefix("bfcl_error/") for key in seen.reward_parts if key.startswith("bfcl_error/")]
            errors_of[name] = errors[0] if errors else ""
            oracle[name] = "force_terminated" if forced else official(name, turns, f"files_{policy}")
        Rollout.objects.all().delete()
        Run.objects.all().delete()
        from webapp.datasets.models import Dataset

        Dataset.objects.filter(name="entries").delete()
        files = score_files(client_for(rita), bfcl(errors_of))
        for split in SPLITS:
            names = [name for name in chosen if name.startswith(f"multi_turn_{split}_")]
            if not names:
                continue
            head, *failures = files[f"BFCL_multi_turn_{split}_score.json"]
            good = sum(not oracle[name] for name in names)
            assert head == {"accuracy": good / len(names), "correct_count": good, "total_count": len(names)}
            wrong = {item["id"]: item["error"]["error_type"].removeprefix("multi_turn:") for item in failures}
            assert wrong == {name: oracle[name] for name in names if oracle[name]}
