"""Remarks of the doctor and the checks before a launch, drawn by themselves: what they offer, and when."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

from tests.markup import drawn, words
from webapp.runs.models import Run

PK = uuid.UUID(int=1)


def _advisory(can: tuple[str, ...] = (), **item: Any) -> str:
    whole = {"code": "kl", "title": "KL", "severity": "warn", "open": True, "first": 3, "last": 5, "kept": None}
    context = {"branch_url": item.pop("branch_url", "/b?x=1"), "can": dict.fromkeys(can, True)}
    return drawn("runs/_advisory.html", run=Run(pk=PK), item={**whole, "acts": [], **item}, **context)


def test_a_remark_is_loud_only_while_it_holds() -> None:
    def kind(**item: Any) -> str:
        return _advisory(**item).split('data-kind="')[1].partition('"')[0]

    assert [kind(severity=each) for each in ("stop", "warn", "note")] == ["error", "warning", "info"]
    assert kind(severity="stop", open=False) == "quiet"


def test_a_remark_says_when_it_held_and_what_was_done() -> None:
    assert words(_advisory()).startswith("KL since step 3 What it means")
    assert words(_advisory(open=False)).startswith("KL steps 3 to 5 What")
    assert words(_advisory(open=False, last=3)).startswith("KL step 3 What")
    kept = "The checkpoint of step 0 is kept."
    assert kept in words(_advisory(kept=0)) and "A rule of the project" not in _advisory(kept=0)
    assert "A rule of the project paused the run here. What" in words(_advisory(paused=True))
    assert kept not in words(_advisory())


def test_a_remark_offers_what_the_run_allows_while_it_holds() -> None:
    every = ("lab", "pause", "stop", "branch")

    def acts(can: tuple[str, ...] = every, **item: Any) -> str:
        return words(_advisory(can, **{"acts": ["lab", "stop"], **item}).split('class="advisory-acts">')[1])

    assert acts() == "Open in the lab Pause Stop Resume with changes"
    assert acts(()) == "" and acts(acts=[]) == "" and acts(open=False) == ""
    assert acts(("lab",)) == "Open in the lab" and acts(("pause",)) == "Pause" and acts(("stop",)) == "Stop"
    assert acts(branch_url="") == "Open in the lab Pause Stop"
    before = SimpleNamespace(pk=PK, step=2)
    assert acts(("branch",), before=before) == "Roll back to step 2 and change"
    assert acts(("branch",), before=before, open=False) == "Roll back to step 2 and change"
    assert acts(("branch",), before=before, acts=["slower"]) == "Roll back to step 2 with half the learning rate"
    assert acts(("branch",), before=before, acts=["lab"]) == "" and acts(("branch",), acts=["slower"]) == ""


def test_a_remark_leads_to_the_rollouts_that_show_it() -> None:
    rollout = {"id": PK, "step": 5, "group": 1, "index": 2}
    found = words(_advisory(acts=["rollouts"], rollouts=[rollout]))
    assert found.endswith("Rollout 5.1.2 Rollouts of step 5")
    assert words(_advisory(rollouts=[rollout])).endswith("Rollout 5.1.2")
    assert "Rollouts of step" not in words(_advisory(acts=["rollouts"]))


def _check(**check: Any) -> str:
    context = {"can_edit": check.pop("can_edit", True)}
    return drawn("runs/_launch_check.html", run=Run(pk=PK), check={"shown": True, "state": "done", **check}, **context)


FINDING = {"sentence": "Too long.", "level": "problem"}


def test_a_draft_is_launched_anyway_only_where_nothing_blocks_it() -> None:
    assert words(_check()) == "A draft, not launched yet Launch Change options"
    doubtful = _check(findings=[FINDING])
    assert words(doubtful).startswith("Not launched yet: your decision is needed")
    assert words(doubtful).endswith("Launch anyway Check again Change options")
    blocked = words(_check(findings=[FINDING], blocked=True))
    assert blocked.startswith("This run needs a change") and blocked.endswith("Check again Change options")
    assert "Launch anyway" not in blocked
    assert "<form" not in _check(findings=[FINDING], can_edit=False)
    assert 'class="button button-primary" id="check-again"' in _check()
    assert 'class="button button-primary" id="edit-draft"' in doubtful


def test_a_check_that_is_not_done_asks_again() -> None:
    page = _check(open=True, seconds=3, findings=[])
    assert words(page).startswith("Checking before the launch for 3 s") and "<form" not in page
    assert "hx-get" in page and 'aria-busy="true"' in page
    assert "hx-get" not in _check() and 'aria-busy="false"' in _check()
    folded = words(_check(shown=False, findings=[FINDING], remarks=2))
    assert folded.startswith("Checked before the launch 2 remarks")
    assert "remark" not in words(_check(shown=False, findings=[FINDING]))
    assert words(_check(shown=False)) == ""


def _memory(table: dict[str, Any] | None = None, can_edit: bool = True, yaml_tab: bool = False, **memory: Any) -> str:
    given = {"state": "done", "table": table, **memory}
    return drawn("runs/_memory.html", memory=given, can_edit=can_edit, yaml_tab=yaml_tab)


TABLE = {"level": "fits", "verdict": "It fits.", "edge": 80, "used": 40}
CHANGE = {"options": ["batch 4"], "size": "8 GB", "values": "{}"}


def test_memory_that_does_not_fit_offers_the_smallest_change() -> None:
    assert words(_memory(TABLE)) == "It fits." and 'role="status"' in _memory(TABLE)
    page = _memory({**TABLE, "level": "short", "change": CHANGE, "note": "n", "hint": "h"})
    expected = "It fits. n The smallest change that fits batch 4 Then it needs about 8 GB. Set these options"
    assert words(page) == expected and 'data-set="{}"' in page
    of_yaml = _memory({**TABLE, "change": CHANGE}, yaml_tab=True)
    assert 'name="set" value="{}"' in of_yaml and "data-set" not in of_yaml
    assert "Set these options" not in _memory({**TABLE, "change": CHANGE}, yaml_tab=True, can_edit=False)
    assert "Set these options" not in _memory({**TABLE, "change": {**CHANGE, "values": ""}})
    old = _memory({**TABLE, "change": CHANGE}, state="open", row={"pk": PK})
    assert "Set these options" not in old and 'data-old aria-busy="true"' in old and "hx-get" in old
    assert words(_memory({**TABLE, "hint": "Use less."})) == "It fits. Use less."


def test_memory_that_is_not_known_says_what_to_do() -> None:
    unknown = words(_memory(state="unknown", sentence="No such model.", hint="Register it."))
    assert unknown == "No such model. Register it. Register a model"
    assert words(_memory(can_edit=False, state="unknown", sentence="No such model.")) == "No such model."
    for state in ("failed", "dropped"):
        assert words(_memory(state=state, sentence="It failed.")) == "It failed. Try again"
    wrong = words(_memory(state="wrong", problems=["too large"]))
    assert wrong == "Memory is shown once these options are correct: too large"
    seconds = [words(_memory(state="open", row={"pk": PK}, seconds=each)) for each in (0.9, 1)]
    assert [text.endswith("some seconds. 1 s") for text in seconds] == [False, True]


def test_the_parts_of_memory_name_the_largest() -> None:
    line = {"title": "weights", "width": 5, "size": "1 GB", "why": "w"}
    parts = [{"key": "kept", "title": "Kept", "sum": "1 GB", "lines": [line], "largest": True}]
    page = _memory({**TABLE, "parts": [*parts, {"key": "step", "title": "A step", "sum": "2 GB"}]})
    assert words(page).endswith("Kept 1 GB weights 1 GB w A step 2 GB in all") and page.count("data-largest") == 1
