"""The documents say what main does: settings, options, metric names, commands."""

from __future__ import annotations

import ast
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest

from tests import docs_code, inspector_docs
from tests.webapp.ops.test_migrations import RELEASE
from training import metrics
from training.data import problems
from training.data.problems import IGNORED
from training.presets import presets
from training.reference import reference
from training.sandbox.problems import SENTENCES
from webapp.api import urls  # noqa: F401 - adds the operations
from webapp.api.base import api
from webapp.common.errors import MESSAGES, error_body
from webapp.site.workers import PROBLEMS

ROOT = Path(__file__).resolve().parent.parent
# Texts of training/ that look like a metric of ours: halves of names, and columns of other trainers.
OTHER_NAMES = {"timing/name", "rollouts/name/mean", "timing/step_total"}  # the last one is of OpenRLHF
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
TERMINAL = (
    "pip install ./client",
    "tiltyard login http://127.0.0.1:8000",
    "tiltyard dataset upload tasks.jsonl --name tasks",
    "tiltyard dataset upload exam.jsonl --name exam",
    "tiltyard run launch -f job.yaml --name night-1 --watch",
    "tiltyard evaluate night-1 --dataset exam --tries 4 --watch",
    "tiltyard compare night-1-evaluate baseline-evaluate",
    "tiltyard model download night-1",
)
COVERED = {
    "make demo": "tests/test_readme.py::test_a_fresh_clone_makes_the_demo",
    "make up": "tests/webapp/ops/test_up.py",
    "make quick": "tests/test_quick.py",
    "make test": "this suite",
    "make bench": "benchmarks/, run by hand for docs/performance.md",
    "make help": "test_make_help_lists_every_target",
    ".venv/bin/python -m envs.tools tasks --count 200 --seed 1 --output tasks.jsonl": "tests/envs",
    **dict.fromkeys(TERMINAL, "tests/client/test_journey.py, with other names and numbers"),
    **dict.fromkeys(STANDALONE, "tests/test_readme.py::test_training_without_the_web_and_import"),
}


def commands(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line.split("  #")[0].strip() for block in FENCE.findall(text) for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_every_command_of_the_readme_is_run_by_a_test(name: str) -> None:
    assert set(commands(name)) == set(COVERED)


def test_both_readmes_have_the_same_parts_links_and_numbered_steps() -> None:
    def parts(name: str) -> dict[str, object]:
        text = (ROOT / name).read_text(encoding="utf-8")
        links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "README" not in link and "img/" not in link]
        kinds = [line.split()[0] for line in text.splitlines() if re.match(r"#|\d\. |- |\| ", line)]
        return {"links": links, "kinds": kinds, "code": commands(name)}

    assert parts("README.md") == parts("README.zh.md")


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_list_of_documents_is_whole(name: str) -> None:
    text = page(name)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md", "README.zh.md"}
    assert pages == set(re.findall(r"^- \[[^]]+\]\(([\w-]+\.md)\)$", text, re.M))
    assert f"(docs/{name})" in (ROOT / name).read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    """Also those that are read elsewhere than in settings.py, by trainers and environment servers."""
    pattern = re.compile(r'(?:env_str|env_bool|env_int|env_list)\(\s*"([A-Z_]+)"|secret_key\([^)]*"([A-Z_]+)"')
    text = (ROOT / "webapp" / "settings.py").read_text(encoding="utf-8")
    names = {first or second for first, second in pattern.findall(text)}
    for source in docs_code.sources("webapp", "training", "envs").values():
        names |= set(re.findall(r"\bTILTYARD_[A-Z_]*[A-Z]\b", source))
        names |= set(re.findall(r'environ(?:\.get\(|\[)"([A-Z][A-Z_]+)"', source))
    assert len(names) > 40 and {"TILTYARD_DISK_RESERVE_MB", "TILTYARD_REWARD_MODELS", "HF_HOME"} <= names
    documented = page("settings.md")
    unneeded = {"TOKENIZERS_PARALLELISM"}  # set for a child, not read
    assert {name for name in names - unneeded if f"`{name}`" not in documented} == set()


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
    """This module claimed to look at metric names and did not. A name is a row of the page, or fits a pattern."""
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


# --- errors and promises ---------------------------------------------------------------------------------------------
def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    below = text[text.index(f"{heading}\n") :].splitlines()
    start = next(number for number, line in enumerate(below) if line.startswith("|"))
    table = itertools.takewhile(lambda line: line.startswith("|"), below[start + 2 :])
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def test_every_error_code_is_documented_with_its_boundary_and_what_it_does_to_a_run() -> None:
    """Fifteen codes were on no page."""
    documented = {row[0].strip("`"): row[1:3] for row in rows_of(page("errors.md"), "## Of runs and rollouts")}
    classes = {(c.code, c.boundary.value, "yes" if c.pauses else "no") for c in docs_code.error_classes()}
    written = {(code, boundary, "no") for code, boundary in docs_code.written_codes()}
    assert len(classes) > 20 and {"run_file", "lease_lost"} <= {code for code, _where, _pauses in classes}
    assert len(written) > 8 and {"trainer_died", "attempt_ended"} <= {code for code, _where, _pauses in written}
    assert {code: [where, pauses] for code, where, pauses in written | classes} == documented


def test_every_code_of_the_api_the_sandbox_and_the_playground_is_documented() -> None:
    text = page("errors.md")
    documented = {row[0].strip("`") for row in rows_of(text, "## Answers of the API and of pages that scripts ask")}
    assert documented == set(MESSAGES)
    others = {*SENTENCES, *PROBLEMS, *docs_code.first_words("PlayRefused"), "throttled", "journal_line"}
    others |= docs_code.first_words("FrameError")
    assert {code for code in others if f"`{code}`" not in text} == set()


def test_codes_of_rows_and_columns_are_documented() -> None:
    assert {code for code in problems.PROBLEMS if f"`{code}`" not in page("data.md")} == set()
    assert {code for code in IGNORED if f"`{code}`" not in page("errors.md")} == set()


def test_the_codes_that_pause_are_listed_with_the_rule() -> None:
    documented = {row[0].strip("`") for row in rows_of(page("reliability.md"), "## One rule for failures")}
    assert documented == {found.code for found in docs_code.error_classes() if found.pauses}


def test_every_promise_names_tests_that_exist() -> None:
    text = page("reliability.md")
    promises = [
        f"{letter}{n}" for letter, count in zip("RDLEIW", (20, 9, 6, 5, 2, 2), strict=True) for n in range(1, count + 1)
    ]
    assert [name for name in promises if f"\n| {name} |" not in text] == []
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 90
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).is_file()
        or (test and not re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(encoding="utf-8"), re.M))
    ]
    assert missing == []


def test_no_promise_is_without_a_test() -> None:
    rows = [line for line in page("reliability.md").splitlines() if re.match(r"\| [RDLEIW]\d+ \|", line)]
    assert len(rows) == 52
    assert [row[:6] for row in rows if "`tests/" not in row] == []


def test_the_way_back_is_written_as_it_is_tested() -> None:
    documented = re.findall(r"manage\.py migrate (\w+) (\w+)$", page("operations.md"), re.M)
    assert documented == list(RELEASE.items())


# --- the map ----------------------------------------------------------------------------------------------------------
SPOKEN_PATHS = re.compile(r"`([\w./-]+/|[\w./-]*[\w-]+\.(?:py|md|js|yaml|yml|in|lock|toml))(?:: (\w+))?(?:::(\w+))?`")
MADE_AT_RUN_TIME = {"config.yaml", "dist/"}


@pytest.mark.parametrize("name", ["docs/architecture.md", "docs/INVARIANTS.md", "CONTRIBUTING.md"])
def test_every_file_that_the_map_names_exists_and_holds_what_it_says(name: str) -> None:
    """A short path is one that some file ends with, such as `engine/attempts.py`."""
    spoken = SPOKEN_PATHS.findall((ROOT / name).read_text(encoding="utf-8"))
    assert len(spoken) > (40 if "architecture" in name else 1)
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    files = done.stdout.split()
    missing = []
    for path, symbol, test in spoken:
        found = [
            file for file in files if f"/{file}".endswith(f"/{path}") or (path[-1] == "/" and f"/{path}" in f"/{file}")
        ]
        word = symbol or test
        there = bool(found) or path in MADE_AT_RUN_TIME
        if not there or (word and not any(_defines(ROOT / file, word) for file in found)):
            missing.append(f"{path}: {word}" if word else path)
    assert missing == []


def test_every_whole_path_in_any_document_exists() -> None:
    rooms = re.compile(
        r"`((?:webapp|training|envs|tests|benchmarks|static|templates|examples)/(?:[\w./-]*/|[\w./-]*\.\w+))[`: ]"
    )
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{page.name}: {path}"
        for page in pages
        if page.name != "CHANGELOG.md" and "adr" not in page.parts
        for path in rooms.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    ]
    assert missing == []


def _defines(file: Path, word: str) -> bool:
    return bool(
        re.search(rf"^\s*(?:async )?(?:def|class) {word}\b|^{word}\b.*=", file.read_text(encoding="utf-8"), re.M)
    )


# --- addresses and command lines -------------------------------------------------------------------------------------
def test_every_endpoint_of_the_api_is_documented_and_no_other() -> None:
    documented = set(re.findall(r"^\| ([A-Z]+) \| `(/[^`]+)` \|", page("api.md"), re.M))
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    served = {(method.upper(), path.removeprefix("/api/v1")) for path, all_of in paths.items() for method in all_of}
    assert len(served) > 20
    assert documented == served


def test_the_shape_of_errors_is_the_documented_one() -> None:
    example = json.loads(re.findall(r"```json\n(.*?)```", page("api.md"), re.S)[0])
    assert set(example) == set(error_body(None, "invalid"))


def test_the_page_of_command_lines_is_current() -> None:
    """Made by `python -m tests.docs_code > docs/cli.md`."""
    made = docs_code.command_lines()
    assert "--resume-from" in made and "manage.py up" in made and "python -m envs.webshop" in made
    assert page("cli.md") == made


def test_the_tables_of_the_inspector_are_current() -> None:
    """Made by `python -m tests.inspector_docs`."""
    made = inspector_docs.written(page("inspector.md"))
    assert "`part_<component>_from`" in made and page("inspector.md") == made


def test_the_page_of_command_lines_has_every_command_of_ours() -> None:
    ours = {path.stem for path in ROOT.glob("webapp/**/management/commands/[a-z]*.py")}
    assert ours == set(docs_code.COMMANDS)
    programs = {f"envs.{path.parent.name}.__main__" for path in ROOT.glob("envs/*/__main__.py")}
    assert programs == {name for name in docs_code.PROGRAMS if name.startswith("envs.")}


# --- what pages show -------------------------------------------------------------------------------------------------
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]")
TITLES_OF_PAPERS = {"algorithms.md"}  # its italics name papers; it names no page of the site


def labels(text: str) -> set[str]:
    """What a document says in italics with a capital: the texts that pages show, each step of a path by itself."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    found = re.findall(r"(?<![*\w])\*([A-Z][^*]+)\*(?!\*)", prose)
    return {step.rstrip(".…") for path in found for step in " ".join(path.split()).split(" → ")}


def shown() -> set[str]:
    """English texts of the catalogue, with N and M for the numbers in them, and titles of presets."""
    texts = polib.pofile(str(ROOT / "locale/zh_Hans/LC_MESSAGES/django.po"))
    english = {text.rstrip(".…") for entry in texts for text in (entry.msgid, entry.msgid_plural) if not entry.obsolete}
    numbers = {PLACEHOLDER.sub("M", PLACEHOLDER.sub("N", text, count=1)) for text in english}
    return english | numbers | {preset.title.en for preset in presets().values()}


def test_the_readmes_name_what_the_pages_show() -> None:
    texts = polib.pofile(str(ROOT / "locale/zh_Hans/LC_MESSAGES/django.po"))
    chinese = {entry.msgstr.rstrip("。…") for entry in texts}
    named = labels((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(named) > 15 and named - shown() == set()
    quoted = set(re.findall(r"“([^”]+)”", (ROOT / "README.zh.md").read_text()))
    assert len(quoted) > 10 and quoted <= chinese


def test_the_documents_name_what_the_pages_show() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name not in TITLES_OF_PAPERS]
    named = {(path.name, label) for path in pages for label in labels(path.read_text(encoding="utf-8"))}
    assert {("doctor.md", "Run doctor"), ("runs.md", "Roll back and change")} <= named
    assert len(named) > 120
    texts = shown()
    assert {(name, label) for name, label in named if label not in texts} == set()


def test_a_label_that_no_page_shows_is_found() -> None:
    text = "*Runs → New run*, *What\n  came of it*; *demo*, `*Code*`, **Bold**; *Roll back to step N and change*."
    assert labels(text) - shown() == {"What came of it"}


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "static").rglob("*.md")])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_each_row_of_a_table_has_the_cells_of_its_head(path: Path) -> None:
    """A bar within a cell ends it, in code too, and what comes after the last column is not shown."""
    cells = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        found = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (found and cells) or found == cells, f"{path.name}:{number}"
        cells = found
