"""``reward.py`` of a job for verl: what its reward function is called with, in the version that the export is for."""

from __future__ import annotations

import json

from training.exports.verl_options import VERL
from training.rows import TRUTH_FIELDS

_HEAD = """\
\"\"\"The reward of this job in verl {version}, made by Tiltyard.

1 where an answer is the row's right one, else 0: the last number of the answer where the right one is a number, else
the last line of the answer, without case, marks and white space. Change it as you like; Tiltyard's other components
are named in README.txt.
\"\"\"

import re

FIELDS = {fields}
NUMBER = re.compile(r"-?\\d[\\d,]*(?:\\.\\d+)?|-?\\.\\d+")


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_others):
"""
_REFUSING = """\
    raise NotImplementedError(
        "{unanswered} rows of this job have no right answer, and what judged them in Tiltyard does not exist in verl: "
        "write their reward here."
    )
"""
_JUDGING = """\
    right = str(_right(ground_truth, extra_info or {{}})).rpartition("####")[2].strip()
    number, said = _number(right), NUMBER.findall(solution_str)
    if number is not None:
        return float(bool(said) and abs(_number(said[-1]) - number) <= 1e-6)
    lines = [line for line in solution_str.splitlines() if line.strip()] or [""]
    return float(_plain(lines[-1]) == _plain(right))


def _right(ground_truth, row):
    for field in FIELDS if ground_truth is None else ():
        value = row
        for key in field.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            ground_truth = value
            break
    if isinstance(ground_truth, (list, tuple)) and ground_truth:
        ground_truth = ground_truth[0]
    if ground_truth is None:
        raise ValueError("This row has no right answer.")
    return ground_truth


def _number(text):
    text = text.replace(",", "")
    return float(text) if NUMBER.fullmatch(text) else None


def _plain(text):
    return re.sub(r"[\\W_]+", " ", text).strip().casefold()
"""


def reward_text(*, unanswered: int) -> str:
    """The file: it judges by the rows' right answers; where ``unanswered`` rows have none it stops the job by name."""
    body = _REFUSING if unanswered else _JUDGING
    return (_HEAD + body).format(version=VERL, fields=json.dumps(list(TRUTH_FIELDS)), unanswered=unanswered)
