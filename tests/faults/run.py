"""``make faults ARGS="webapp/datasets --tests tests/webapp/datasets"``: which small faults do the tests notice?

Plants faults (``planting.py``) into a copy of the checkout, a sample of them in each module, and judges each in a fork
with those of the given tests that pass its place, the quickest first. A line of JSON for each fault that lives or at
which a test waits until its limit of time, then one with the counts. Browser and slow tests are not run. ``make
mutants`` holds the core modules to a bar; this finds what is weak anywhere else, also in views, which mutmut leaves out
for their decorators.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import switch
from tests.faults.planting import Fault, plant
from tests.mutants.forks import judged, let_go, passes, run_in_fork
from tests.mutants.run import ROOT, copy_tree

KINDS = ("limit", "equal", "part", "guard", "drop", "extreme", "order", "query", "arithmetic", "number")
MARKS = "not slow and not docker and not gpu and not vllm and not verl and not browser"
NOT_PLANTED = ("apps.py", "urls.py")
KILLED, LIVES, TIMEOUT, NO_TESTS = "killed", "lives", "timeout", "no tests"


def modules(tree: Path, places: list[str]) -> list[Path]:
    """The modules below these places of the tree that faults are planted into."""
    found = {path for place in places for path in [tree / place, *(tree / place).rglob("*.py")] if path.suffix == ".py"}
    return sorted(path for path in found if "migrations" not in path.parts and path.name not in NOT_PLANTED)


def planted(tree: Path, places: list[str]) -> list[list[Fault]]:
    """Plant all faults; those of each module."""
    groups: list[list[Fault]] = []
    for path in modules(tree, places):
        text, found = plant(path.read_text(encoding="utf-8"), str(path.relative_to(tree)), sum(map(len, groups)))
        path.write_text(text, encoding="utf-8")
        groups.append(found)
    return groups


def chosen(groups: list[list[Fault]], kinds: set[str], sample: int, seed: int) -> list[Fault]:
    """A sample of each module's faults of these kinds."""
    drawn, wanted = random.Random(seed), ([one for one in group if one.kind in kinds] for group in groups)
    return [one for group in wanted for one in (drawn.sample(group, sample) if sample < len(group) else group)]


class Judge:
    """A pytest plugin that takes the place of the loop over the tests."""

    def __init__(self, faults: list[Fault], limit_s: float) -> None:
        self._faults, self._limit_s = faults, limit_s
        self._reach: dict[int, list[pytest.Item]] = {}
        self._seconds: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self._out = os.fdopen(os.dup(1), "w", buffering=1)  # pytest takes the other one away

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge all faults in place of running the tests."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        self._look(session)
        let_go()
        for one in self._faults:
            outcome = self._judge(session, one)
            self.counts[outcome] += 1
            if outcome != KILLED:
                print(json.dumps({"outcome": outcome, **one._asdict()}, ensure_ascii=False), file=self._out)
        noticed = self.counts[KILLED] + self.counts[TIMEOUT]
        reached = noticed + self.counts[LIVES]
        share = round(noticed / reached, 3) if reached else None
        print(json.dumps({**self.counts, "share": share}), file=self._out)
        return True

    def _look(self, session: pytest.Session) -> None:
        """Run every test once without a fault; note how long it takes and which faults' places it passes."""
        for item, following in zip(session.items, [*session.items[1:], session.items[0]], strict=True):
            switch.reached, began = set(), time.monotonic()
            if not passes(item, following):  # it reads the source, or needs what a copy lacks
                print(json.dumps({"outcome": "left out", "test": item.nodeid}), file=self._out)
                continue
            self._seconds[item.nodeid] = time.monotonic() - began
            for number in switch.reached:
                self._reach.setdefault(number, []).append(item)
        switch.reached = None

    def _judge(self, session: pytest.Session, one: Fault) -> str:
        items, spent = [], 0.0
        for item in sorted(self._reach.get(one.number, []), key=lambda item: self._seconds[item.nodeid]):
            if spent > self._limit_s:
                break
            items.append(item)
            spent += self._seconds[item.nodeid]
        if not items:
            return NO_TESTS
        code = judged(lambda: run_in_fork(session, items, lambda: switch.turn_on(one.number)), 20 + 3 * spent)
        return TIMEOUT if code is None else KILLED if code else LIVES


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("places", nargs="+", help="folders and modules to plant faults in")
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--sample", type=int, default=12, help="faults a module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--limit", type=float, default=30, help="seconds of tests a fault")
    parser.add_argument("--here", action="store_true", help="this is the copy")
    return parser.parse_args()


def main() -> int:
    """In a copy of the checkout; the checkout is never touched."""
    asked = parse()
    if not asked.here:
        with tempfile.TemporaryDirectory(prefix="tiltyard-faults-") as folder:
            copy_tree(Path(folder))
            argv = [sys.executable, "-m", "tests.faults.run", "--here", *sys.argv[1:]]
            return subprocess.run(argv, cwd=folder).returncode
    groups = planted(ROOT, asked.places)
    judge = Judge(chosen(groups, set(asked.kinds), asked.sample, asked.seed), asked.limit)
    options = ["-q", "--tb=native", "--disable-warnings", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", MARKS]
    return int(pytest.main([*options, *asked.tests], plugins=[judge]))


if __name__ == "__main__":
    sys.exit(main())
