"""The words of the pages: plain English in the field's terms, and one Chinese word for each notion.

Comments and docstrings are in plain English too: none names the code of a paper that a reader does not have. The tables
below are this file's own: they are not read from the code that they judge.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import polib
import pytest

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"

RIDDLES = (
    "everything else stands at a sensible default",
    "The document's own values, for a GPU.",
    "What is followed, and why",
    "asks how to read it",
    "Rows to mend",
    "what another row says already",
    "Make of it",
    "Read it so and check all rows",
    "recognised by itself where nothing is chosen",
    "At work",
    "no spread: teaches nothing",
    "As it is",
    "This server was started elsewhere, so its log is there too.",
    "What only administrators decide, for all teams.",
    "Each dangerous act leaves a row here that nobody can change.",
    "or that it only plays",
    "goes on from",
    "went on from",
    "stands twice",
    "stands against",
    "has nothing to say",
    "had nothing to say",
    "a last word",
)
"""Sentences and turns of phrase that readers did not understand; the catalogue said each of them once."""

MEND = re.compile(r"\bmend(s|ed|ing)?\b", re.IGNORECASE)
"""The field says fix, correct or repair."""

HAN = "\u4e00-\u9fff"
HALF_WIDTH = re.compile(rf"(?<=[{HAN}”’）】])[,;:?!]|[,;:?!](?=[{HAN}“‘])|(?<=[{HAN}])\([^()]*\)")
"""Latin punctuation in a Chinese sentence. One space after it makes it part of a quoted term, such as `Thought: 或`."""

FORBIDDEN = {
    "词元": "token is written token",
    "登记": "register is 注册",
    "对局": "episode is 回合 (a turn is 轮次 or 轮)",
    "整局": "episode is 回合",
    "每局": "episode is 回合",
    "一局": "episode is 回合",
    "裁判": "judge is 评审",
    "评判": "judge is 评审",
    "奖励配置": "reward spec is 奖励方案",
    "数据目录": "data folder is 数据文件夹",
    "您": "the reader is 你",
    "Tiltyard": "the product is 演武场",
}

ONE_WORD = (
    (r"\b(the|this|a|no|any|another|new) runs?\b", "训练任务"),
    (r"\b(runs of|run (that|was|is|has|pauses|continues))\b", "训练任务"),
    (r"\bepisodes?\b", "回合"),
    (r"\breward specs?\b", "奖励方案"),
    (r"\bcheckpoints?\b", "检查点"),
    (r"\bregister(s|ed|ing)?\b|\bregistration\b", "注册"),
    (r"\breplicas?\b", "副本"),
)
"""An English noun and the one Chinese word for it."""

CODE = r"(?<![\w-])(?:[A-Z]{1,2}\d{1,2}|[A-Z]-[a-z])(?![\w-]|\.\d)"
"""A letter and a number, or two letters with a hyphen: a reader cannot know what it means."""

REAL_NAMES = {"BF16", "BM25", "FP8", "NF4", "S3", "T4"}
"""These look like codes, and the field knows them. A part of a longer name, such as Search-R1, is no code either."""


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    found = []
    for entry in polib.pofile(str(CATALOGUE)):
        chinese = " ".join([entry.msgstr, *entry.msgstr_plural.values()])
        found.append((f"{entry.msgid}\n{entry.msgid_plural}".strip(), chinese))
    return tuple(found)


def _quoted_apart(text: str) -> str:
    return re.sub(r"`[^`]*`|<[^>]+>|reward\(episode\)", "", text)


@pytest.mark.parametrize("riddle", RIDDLES)
def test_a_riddle_that_was_solved_does_not_come_back(riddle: str) -> None:
    whole = riddle[0].isupper() and " " in riddle and len(riddle) < 12  # a short label is compared as a whole
    found = [english for english, _ in _texts() if (english == riddle if whole else riddle in english)]
    assert not found


def test_nothing_is_mended() -> None:
    assert not [english for english, _ in _texts() if MEND.search(english)]
    folders = ["webapp", "training", "envs", "templates", "static", "docs", "README.md", "CONTRIBUTING.md"]
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if name.endswith((".py", ".html", ".js", ".md", ".yaml", ".css")):
            line = MEND.search((ROOT / name).read_text(encoding="utf-8"))
            assert line is None, f"{name}: {line.group()}"


def test_chinese_sentences_have_chinese_punctuation() -> None:
    assert not [chinese for _, chinese in _texts() if HALF_WIDTH.search(chinese)]


@pytest.mark.parametrize("word", FORBIDDEN)
def test_a_second_chinese_word_for_one_notion_is_refused(word: str) -> None:
    assert not [chinese for _, chinese in _texts() if word in chinese], FORBIDDEN[word]
    if re.search(f"[{HAN}]", word):  # a Latin name is in links and commands too
        pages = [ROOT / "README.zh.md", *(ROOT / "training" / "presets").glob("*.yaml")]
        assert len(pages) > 10
        assert not [page.name for page in pages if word in page.read_text(encoding="utf-8")], FORBIDDEN[word]


@pytest.mark.parametrize(("english", "chinese"), ONE_WORD)
def test_a_notion_has_one_chinese_word(english: str, chinese: str) -> None:
    noun = re.compile(english, re.IGNORECASE)
    wrong = [(text, shown) for text, shown in _texts() if noun.search(_quoted_apart(text)) and chinese not in shown]
    assert not wrong


def _remarks(name: str, text: str) -> Iterator[str]:
    """The comments and docstrings of a file, and what looks like a reference in its other strings."""
    yield from re.findall(rf" \({CODE}(?:, {CODE})*\)|[\"'`]{CODE}: ", text)
    if not name.endswith(".py"):
        yield from re.findall(r"(?://|/\*|^\s*\*|\{?#\s|<!--).*", text, re.MULTILINE)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_comments_and_docstrings_say_rules_without_codes() -> None:
    """A code of a paper that is not in the repository is a riddle."""
    kinds = ("*.py", "*.js", "*.css", "*.html", "*.toml", "*.yaml", "*.yml", "*.sh", "Makefile", "*Dockerfile")
    done = subprocess.run(["git", "ls-files", "-z", *kinds], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in done.stdout.decode().split("\0") if name and "/vendor/" not in name]
    assert len(names) > 1000
    found = []
    for name in names:
        text = (ROOT / name).read_text(encoding="utf-8")
        if {*re.findall(CODE, text)} <= REAL_NAMES:  # most files: nothing to parse
            continue
        codes = {code for remark in _remarks(name, text) for code in re.findall(CODE, remark)} - REAL_NAMES
        found += [f"{name}: {', '.join(sorted(codes))}"] if codes else []
    assert not found


NOT_HERE = {
    "told, tells": r"told|tells",
    "stands in, stands at": r"stands",
    "beside": r"beside",
    "goes on": r"goes on|went on",
    "hang on": r"hangs? on",
    "anew": r"anew",
    "nobody, somebody, whoever": r"nobody|somebody|whoever",
    "for ever": r"for ever",
    "without spread": r"(?:without|no) spread",
    "rests, until the hand rests": r"the hand rests",
}
"""The words of CONTRIBUTING.md that are not used here."""

LEFT = {
    "webapp": 88,
    "training": 52,
    "envs": 0,
    "client": 0,
    "static": 3,
    "templates": 5,
    "docs": 4,
    "benchmarks": 2,
    "tests": 142,
}
"""How often they are still there, names of stored keys included. New text may not add to it."""


def test_the_table_of_contributing_is_counted() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("| not here | plain |\n|---|---|\n")[1]
    assert [line.split("|")[1].strip() for line in table.split("\n\n")[0].split("\n")] == list(NOT_HERE)


@pytest.mark.parametrize("folder", LEFT)
def test_words_that_are_not_used_here_become_fewer(folder: str) -> None:
    words = re.compile(rf"\b(?:{'|'.join(NOT_HERE.values())})\b", re.IGNORECASE)
    done = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in done.stdout.split("\0") if name.endswith((".py", ".js", ".html", ".md"))]
    names = [name for name in names if "/vendor/" not in name and name != "tests/test_words.py"]
    found = sum(len(words.findall((ROOT / name).read_text(encoding="utf-8"))) for name in names)
    assert found <= LEFT[folder], "Write the plain words of CONTRIBUTING.md."
