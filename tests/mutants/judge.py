"""Judge one module's mutants in a copy of the tree: ``-m tests.mutants.judge MODULE SAMPLE PATIENCE_S RESULT TEST …``.

1. mutmut writes all mutants of the module into one file, where a variable chooses among them.
2. One pytest imports and collects the tests and runs each once without a mutant, which shows the functions it reaches.
3. Each mutant is a fork of that process, and runs the tests that reach its function, the quickest first, until one
   fails.
4. Last of all a fork without a mutant runs all tests again: a killed test may have left rows behind.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

from tests.mutants.forks import judged, let_go, passes, run_in_fork

SEED = 20_250  # fixed: the same mutants are drawn as long as the module stays as it is
KILLED, SURVIVED, NO_TESTS, TIMEOUT = "killed", "survived", "no tests", "timeout"


def changes(code: str) -> dict[str, tuple[str, str]]:
    """What each mutant changed: the lines that went and those that came, without their indentation."""
    lines, functions = code.splitlines(), {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = lines[node.lineno : node.end_lineno]
    found = {}
    for name, mutant in functions.items():
        if re.search(r"__mutmut_\d+$", name):
            original = functions[f"{name.rpartition('_')[0]}_orig"]
            parts = list(difflib.unified_diff(original, mutant, lineterm="", n=0))[2:]
            was, now = (" ".join(part[1:].strip() for part in parts if part[0] == sign) for sign in "-+")
            found[name] = (was, now)
    return found


class Forks:
    """A pytest plugin that takes the place of the loop over the tests. ``statuses`` is by the mutant's name."""

    def __init__(self, module: str, names: list[str], patience_s: float) -> None:
        self.module, self.names, self.patience_s = module, names, patience_s
        self.statuses: dict[str, str] = {}
        self.clean = False
        self._log = os.fdopen(os.dup(2), "w", buffering=1)  # pytest takes the other one away
        self._reach: dict[str, list[pytest.Item]] = {}
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge all mutants in place of running the tests."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        self._look(session)
        let_go()
        for name in self.names:
            items = self._reach.get(f"{self.module}.{name.rpartition('__mutmut_')[0]}", [])
            self.statuses[name] = self._fork(session, f"{self.module}.{name}", items) if items else NO_TESTS
            print(f"{len(self.statuses)}/{len(self.names)} {name} {self.statuses[name]}", file=self._log)
        self.clean = self._fork(session, "", session.items) == SURVIVED
        return True

    def _look(self, session: pytest.Session) -> None:
        """Run every test once without a mutant; note how long it takes and which functions it reaches."""
        set_mutant_under_test("stats")
        for item, following in zip(session.items, [*session.items[1:], session.items[0]], strict=True):
            state()._stats.clear()
            began = time.monotonic()
            if not passes(item, following):
                raise session.Failed(f"{item.nodeid} fails without a mutant")
            self._seconds[item.nodeid] = time.monotonic() - began
            for function in state()._stats:
                self._reach.setdefault(function, []).append(item)

    def _fork(self, session: pytest.Session, mutant: str, items: list[pytest.Item]) -> str:
        quick = sorted(items, key=lambda item: self._seconds[item.nodeid])
        limit_s = self.patience_s + 2 * sum(self._seconds[item.nodeid] for item in items)
        code = judged(lambda: run_in_fork(session, quick, lambda: set_mutant_under_test(mutant)), limit_s)
        return TIMEOUT if code is None else KILLED if code else SURVIVED


def judge(module: Path, sample: int, patience_s: float, tests: list[str]) -> dict[str, Any]:
    """Put the mutants in the module's place and run the tests against a sample of them; 0 takes all."""
    mutated = mutate_file_contents(str(module), module.read_text(encoding="utf-8"))
    names = list(mutated.mutant_names)
    chosen = random.Random(SEED).sample(names, sample) if 0 < sample < len(names) else names
    module.write_text(mutated.code, encoding="utf-8")
    forks = Forks(str(module.with_suffix("")).replace(os.sep, "."), chosen, patience_s)
    set_mutant_under_test("")
    if pytest.main(["-q", "--tb=native", *tests], plugins=[forks]) != 0 or not forks.clean:
        raise SystemExit("the tests fail without a mutant")
    changed = changes(mutated.code)
    rows = [(name, status, *changed[name]) for name, status in forks.statuses.items()]
    keys = ("name", "status", "was", "now")
    return {"possible": len(names), "judged": [dict(zip(keys, row, strict=True)) for row in rows]}


if __name__ == "__main__":
    found = judge(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[5:])
    Path(sys.argv[4]).write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
