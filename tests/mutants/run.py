"""``make mutants``: are the tests a net that holds? Small faults are put into the code, and its own tests must fail.

mutmut makes and judges the mutants of each module in ``modules.toml``, a sample of them with a fixed seed where there
are many. A survivor needs an entry with a reason in ``survivors.toml``. The faults of ``planted.toml`` that once went
unnoticed are planted as well. Every job has a PostgreSQL, a Redis and a copy of the tree of its own, so the checkout is
never touched. One JSON object a module goes to standard output and into ``--output``.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

from webapp.ops.catalogues import catalogues_compile

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = ("training", "webapp", "envs")
LOGS = [r"\blogger\."]  # the words of log lines are no behaviour
PYTEST = ["-p", "no:cacheprovider", "-p", "no:randomly"]
MODULE_LIMIT_S = 7200
NEEDED = 0.85  # share of the mutants that must die, in each module


def table(name: str) -> dict[str, Any]:
    """One of the TOML files next to this one."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def reasons(module: str) -> dict[tuple[str, str, str], str]:
    """Why survivors of a module may live, by function and what was changed; ``now`` may list several changes."""
    rows = [row for row in table("survivors.toml").get("survivor", []) if row["module"] == module]
    changes = [(row, now) for row in rows for now in ([row["now"]] if isinstance(row["now"], str) else row["now"])]
    return {(row["function"], row["was"], now): row["reason"] for row, now in changes}


def copy_tree(target: Path) -> None:
    """The checkout as git sees it, changes that are not committed included."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    catalogues_compile(target / "locale")


def settings_of(module: str) -> str:
    """``setup.cfg`` for mutmut."""
    lists = {"source_paths": SOURCES, "only_mutate": [module], "do_not_mutate_patterns": LOGS}
    return "[mutmut]\n" + "".join(
        f"{key} =\n" + "".join(f"  {value}\n" for value in values) for key, values in lists.items()
    )


def function_of(mutant: str) -> str:
    """``xǁClaimǁkeep__mutmut_3`` → ``Claim.keep``; ``x_look__mutmut_1`` → ``look``."""
    name = mutant.rpartition("__mutmut_")[0]
    return name.removeprefix("xǁ").replace("ǁ", ".") if name.startswith("xǁ") else name.removeprefix("x_")


class Job:
    """A worker with services of its own; ``folder`` is all that it writes."""

    def __init__(self, folder: Path, patience_s: float) -> None:
        from webapp.common.host import Embedded

        self.folder, self.patience_s = folder, patience_s
        self.child: subprocess.Popen[bytes] | None = None
        (folder / "services").mkdir(parents=True)
        self.services = Embedded(folder / "services")
        self.services.start()

    def environment(self) -> dict[str, str]:
        """What tests/plugin.py reads, so that forks share this job's services and start none."""
        data = self.folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        given = {
            "PYTHONHASHSEED": "0",  # the order of a mutant's tests
            "OMP_NUM_THREADS": "1",
            "TILTYARD_TEST_FOLDER": str(data),
            "TILTYARD_TEST_REDIS_URL": self.services.redis_url,
            "DATABASE_URL": self.services.database_url,
        }
        return os.environ | given

    def tree(self) -> Path:
        """A fresh copy of the checkout."""
        target = self.folder / "tree"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        copy_tree(target)
        return target

    def run(self, argv: list[str], tree: Path, log: Path) -> int:
        """Run to the end, or to the limit; the group dies with it."""
        with log.open("wb") as out:
            self.child = subprocess.Popen(
                argv, cwd=tree, env=self.environment(), stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            return self.child.wait(MODULE_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            return self.child.wait()

    def stop(self) -> None:
        """End what is still at work (after Ctrl-C), and the services."""
        if self.child is not None and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.services.stop()

    def mutants(self, module: str, tests: list[str], sample: int) -> dict[str, Any]:
        """Judge one module."""
        began, tree = time.monotonic(), self.tree()
        (tree / "setup.cfg").write_text(settings_of(module), encoding="utf-8")
        result, log = self.folder / "result.json", self.folder / "log"
        result.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "tests.mutants.judge", module, str(sample), str(self.patience_s), str(result)]
        self.run([*argv, *PYTEST, *tests], tree, log)
        if not result.exists():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            return {"module": module, "failed": "\n".join(lines[-30:])}
        found = json.loads(result.read_text(encoding="utf-8"))
        counts = summary(module, found["judged"]) | {"possible": found["possible"], "sampled": sample > 0}
        return counts | {"seconds": round(time.monotonic() - began)}

    def planted(self, fault: dict[str, Any], tests: list[str]) -> dict[str, Any]:
        """Plant one fault of ``planted.toml``; its tests must fail."""
        tree = self.tree()
        path = tree / fault["module"]
        path.write_text(path.read_text(encoding="utf-8").replace(fault["was"], fault["now"]), encoding="utf-8")
        return {"planted": fault["name"], "killed": self.pytest(tests, tree) == 1}

    def pytest(self, tests: list[str], tree: Path) -> int:
        argv = [sys.executable, "-m", "pytest", "-x", "-q", *PYTEST, *tests]
        return self.run(argv, tree, self.folder / "log")


def summary(module: str, judged: list[dict[str, str]]) -> dict[str, Any]:
    """Counts, and the survivors that no entry of ``survivors.toml`` explains."""
    known = reasons(module)
    alive = [row for row in judged if row["status"] not in {"killed", "timeout"}]
    timeouts = [row for row in judged if row["status"] == "timeout"]
    lines = list(map(_changed, alive))
    listed = [row for row in lines if (row["function"], row["was"], row["now"]) in known]
    return {
        "module": module,
        "mutants": len(judged),
        "killed": len(judged) - len(alive) - len(timeouts),
        "timeout": len(timeouts),
        "survived": len(alive),
        "listed": len(listed),
        "share": round(1 - len(alive) / len(judged), 3),
        "unlisted": [row for row in lines if row not in listed],
        "timed_out": list(map(_changed, timeouts)),  # each of them an endless wait, or a machine that was busy
    }


def _changed(row: dict[str, str]) -> dict[str, str]:
    return {"function": function_of(row["name"]), "was": row["was"], "now": row["now"]}


def good(row: dict[str, Any]) -> bool:
    """Whether the net holds there."""
    if "planted" in row:
        return bool(row["killed"])
    return "failed" not in row and row["share"] >= NEEDED and not row["unlisted"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only modules whose path contains one of these; 'planted' for those")
    parser.add_argument("--sample", type=int, default=60, help="mutants a module, drawn with a fixed seed; 0 for all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=30, help="seconds for a mutant besides twice its tests'")
    parser.add_argument("--output", type=Path, help="a file for the results as a JSON list")
    return parser.parse_args()


def work_of(names: list[str]) -> list[tuple[str, Any]]:
    """What is asked for: ("module", path) and ("planted", fault)."""
    modules = [("module", path) for path in table("modules.toml") if not names or any(name in path for name in names)]
    faults = [("planted", fault) for fault in table("planted.toml")["fault"] if not names or "planted" in names]
    return faults + modules


def main() -> int:
    """Judge all that is asked for; 0 where the net holds everywhere."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started ends as well
    asked, tests = parse(), {path: row["tests"] for path, row in table("modules.toml").items()}
    waiting: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    for piece in work_of(asked.names):
        waiting.put(piece)
    rows: list[dict[str, Any]] = []

    def work(job: Job) -> None:
        while True:
            try:
                kind, what = waiting.get_nowait()
            except queue.Empty:
                return
            if kind == "module":
                row = job.mutants(what, tests[what], asked.sample)
            else:
                row = job.planted(what, what.get("tests") or tests[what["module"]])
            rows.append(row)
            print(json.dumps(row, ensure_ascii=False), flush=True)

    folder = Path(tempfile.mkdtemp(prefix="tiltyard-mutants-"))
    jobs = [Job(folder / str(number), asked.patience) for number in range(asked.jobs)]
    try:
        threads = [threading.Thread(target=work, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for job in jobs:
            job.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if asked.output:
        asked.output.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    return 0 if rows and all(map(good, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
