"""The documents say what main does: settings, options, metric names, commands."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from training import metrics
from training.reference import reference

ROOT = Path(__file__).resolve().parent.parent
# Texts of training/ that look like a metric of ours: halves of names, and columns of other trainers.
OTHER_NAMES = {"timing/name", "rollouts/name/mean"}
FENCE = re.compile(r"^ *```sh\n(.*?)^ *```", re.S | re.M)
# Each command of the README and the test that runs it.
STANDALONE = (
    ".venv/bin/python -m envs.tools demonstrations --difficulty starter --careless 0.75 --output demonstrations.jsonl",
    ".venv/bin/python -m training run examples/tools-sft.yaml --run-dir runs/warm-up",
    ".venv/bin/python -m envs.tools tasks --difficulty starter --output tasks.jsonl",
    ".venv/bin/python -m envs.tools --port 8101 &",
    ".venv/bin/python -m training run examples/tools.yaml --run-dir runs/grpo",
    ".venv/bin/python manage.py import_run runs/grpo --project my-project",
)
COVERED = {
    "make demo": "tests/test_readme.py::test_a_fresh_clone_makes_the_demo",
    "make up": "tests/ops/test_up.py",
    "make test": "this suite",
    "make bench": "benchmarks/, run by hand for docs/performance.md",
    "make help": "test_make_help_lists_every_target",
    ".venv/bin/python -m envs.tools tasks --count 200 --difficulty starter --output tasks.jsonl": "tests/envs",
    **dict.fromkeys(STANDALONE, "tests/test_readme.py::test_training_without_the_web_and_import"),
}


def commands(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line.split("  #")[0].strip() for block in FENCE.findall(text) for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_every_command_of_the_readme_is_run_by_a_test(name: str) -> None:
    assert set(commands(name)) == set(COVERED)


def test_every_setting_is_documented() -> None:
    pattern = re.compile(r'(?:env_str|env_bool|env_int|env_list)\(\s*"([A-Z_]+)"|secret_key\([^)]*"([A-Z_]+)"')
    text = (ROOT / "webapp" / "settings.py").read_text(encoding="utf-8")
    names = {first or second for first, second in pattern.findall(text)}
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert len(names) > 15
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_the_page_of_options_is_current() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference()


def test_the_page_of_metrics_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == metrics.reference()


METRIC = re.compile(
    r"(rollouts|groups|env|timing|judge|sampling|updates|rewards|clip_ratio|completions)/[a-z0-9_]+(/[a-z0-9_]+)?"
)


def _written_metrics(tree: ast.AST) -> Iterator[str]:
    """Metric names among the texts of a module; what an f-string fills in is read as ``name``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "name" for part in node.values]
            text = "".join(str(part) for part in parts)
        else:
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if METRIC.fullmatch(text):
            yield text


def test_every_metric_that_training_writes_is_documented() -> None:
    """H2: this module claimed to look at metric names and did not. A name is a row of the page, or fits a pattern."""
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.M)
    known = re.compile("|".join(re.escape(row).replace("<name>", "[^/]+") for row in rows))
    written = {
        name: path.name
        for path in (ROOT / "training").rglob("*.py")
        if path.name != "metrics.py"
        for name in _written_metrics(ast.parse(path.read_text(encoding="utf-8")))
    }
    written = {name: path for name, path in written.items() if name not in OTHER_NAMES}
    assert {"updates/skipped", "timing/step", "rewards/name/mean", "judge/name"} <= set(written)
    assert {name: path for name, path in written.items() if not known.fullmatch(name)} == {}


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", text, re.M))
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert {target for target in targets if f"make {target}" not in done.stdout} == set()


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert missing == []


def test_the_command_line_of_training_prints_its_schema() -> None:
    argv = [sys.executable, "-m", "training", "schema"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert '"JobConfig"' in done.stdout
