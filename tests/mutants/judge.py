"""Judge one module's mutants with mutmut: ``judge.py MODULE SAMPLE RESULT``, in a copy of the tree made by ``run.py``.

A process of its own, because mutmut reads its settings (``setup.cfg``) from the working directory and puts the mutated
tree in place of it on ``sys.path``.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path

from mutmut.__main__ import _run
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.runners.harness import BadTestExecutionCommandsException, PytestRunner
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name
from mutmut.workers import isolation

SEED = 20_250  # fixed: the same mutants are drawn as long as the module stays as it is


def _database_as_it_is(*_args: object, **_options: object) -> None:
    """In place of ``migrate``: the tests without a mutant made the tables. Rows that a killed test left go."""
    from django.core.management import call_command

    from webapp.teams.models import Team

    if Team.objects.exists():
        call_command("flush", interactive=False, verbosity=0)


class FastFirst(PytestRunner):
    """The quickest tests first, as mutmut does without its fork server: most mutants then cost no long test."""

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Run them, and stop at the first that fails."""
        from django.core.management.commands import migrate

        migrate.Command.handle = _database_as_it_is  # else most of a mutant's time
        quick = sorted(tests, key=lambda test: state().duration_by_test.get(test, 0.0))
        try:
            return super().run_tests(mutant_name=mutant_name, tests=quick)
        except BadTestExecutionCommandsException:  # a test that cannot be named; without names all are run
            return super().run_tests(mutant_name=mutant_name, tests=[])


def _changed(name: str, module: Path) -> tuple[str, str]:
    """What the mutant changed: the lines that went and those that came, without their indentation."""
    lines = get_diff_for_mutant(name, path=module).splitlines()[2:]
    return tuple(" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")  # type: ignore[return-value]


def judge(module: Path, sample: int) -> dict[str, object]:
    """Run the tests against a sample of the module's mutants; 0 takes all of them."""
    names = [
        get_mutant_name(module, name) for name in mutate_file_contents(str(module), module.read_text()).mutant_names
    ]
    chosen = random.Random(SEED).sample(names, sample) if 0 < sample < len(names) else names
    isolation.PytestRunner = FastFirst  # type: ignore[misc]
    # The run that notes which test reaches which function has passed without a mutant; once is enough.
    isolation.ForkServerRunner.run_clean_tests = lambda *_args, **_more: 0  # type: ignore[method-assign]
    isolation.ForkServerRunner.run_forced_fail = lambda *_args: 1  # type: ignore[method-assign]
    _run(chosen, max_children=1)
    data = SourceFileMutationData(path=module)
    data.load()
    judged = []
    for name in chosen:
        status = status_by_exit_code[data.exit_code_by_key[name]]
        was, now = ("", "") if status == "killed" else _changed(name, module)
        judged.append({"name": name.rpartition(".")[2], "status": status, "was": was, "now": now})
    return {"possible": len(names), "judged": judged}


if __name__ == "__main__":
    result = judge(Path(sys.argv[1]), int(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(result, ensure_ascii=False, indent=1), encoding="utf-8")
