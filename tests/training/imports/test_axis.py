"""One axis for all rows of an import's tables, whatever their order; figures that are not finite stay what they are."""

from __future__ import annotations

import itertools
import json
import math
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.training.imports.test_readers import of, read
from tests.training.imports.test_trainers import BEGINS, _event, _simple, figures
from training.imports.axis import Steps

EVALUATED = {"_step": 0, "_timestamp": 1767000000.0, "eval/reward": 0.1, "heldout/reward": 0.1}
TRAINED = [
    {"_step": 3, "_timestamp": 1767000010.0, "train/global_step": 10, "train/reward": 0.2},
    {"_step": 6, "_timestamp": 1767000020.0, "train/global_step": 20, "train/reward": 0.4},
]


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def events_of(tmp_path: Path, name: str, *files: tuple[str, bytes]) -> tuple[Any, list[Any]]:
    folder = tmp_path / name
    folder.mkdir()
    return read(folder, *files)


def test_the_same_rows_in_any_order_give_the_same_run(tmp_path: Path) -> None:
    """The first row once chose the axis: the run was at W&B's own counter, or lost its evaluations."""
    later = {"_step": 7, "_timestamp": 1767000030.0, "eval/reward": 0.3, "heldout/reward": 0.3}
    seen = set()
    for number, order in enumerate(itertools.permutations([EVALUATED, *TRAINED, later])):
        report, events = events_of(tmp_path, str(number), ("history.jsonl", lines(*order)))
        seen.add(json.dumps([[e.step, e.t, e.values] for e in of(events, "metrics")], sort_keys=True))
        assert report.verdict == "ok" and report.files[0].notes == [
            "Steps are those of train/global_step; 2 rows without it were placed by the rows that have both."
        ]
    assert len(seen) == 1
    found = {step: {name: v for name, v in row.items() if name != "_step"} for step, row in figures(events).items()}
    assert found == {
        0: {"eval/reward": 0.1, "heldout/reward": 0.1},
        10: {"train/reward": 0.2, "reward": 0.2},
        20: {"train/reward": 0.4, "reward": 0.4, "eval/reward": 0.3, "heldout/reward": 0.3},
    }


@pytest.mark.parametrize(
    ("numbers", "step"),
    [(2, 900.0), (3, 1000.0), (4, 1000.0), (5.5, 1000.0), (6, 1100.0), (9, 1100.0), (0, 900.0)],
)
def test_a_row_is_placed_at_the_last_step_before_it(numbers: float, step: float) -> None:
    steps = Steps()
    for at, trained in ((3, 1000), (6, 1100)):
        steps.add({"_step": at, "trainer/global_step": trained}, ["reward"], None)
    steps.add({"_step": int(numbers)}, ["eval"], None)
    axis = steps.axis(0, 3)
    assert (axis.column, axis.steps.tolist(), axis.placed) == ("trainer/global_step", [1000.0, 1100.0, step], 1)


def test_a_step_that_few_rows_have_is_not_what_the_others_are_put_on(tmp_path: Path) -> None:
    """Nine of ten figures would be lost: they would be at one step."""
    rows: list[dict[str, Any]] = [{"_step": n, "loss": n / 10} for n in range(1, 21)]
    for n in (9, 19):
        rows[n]["train/global_step"] = n
    report, events = read(tmp_path, ("h.jsonl", lines(*rows)))
    assert sorted(figures(events)) == list(range(1, 21)) and figures(events)[7]["loss"] == 0.7
    assert report.files[0].notes == ["Steps are those of _step."]


def test_a_table_whose_columns_agree_says_nothing_of_its_axis(tmp_path: Path) -> None:
    report, _events = read(tmp_path, ("h.csv", b"step,_step,loss\n1,1,0.5\n2,2,0.25\n"))
    assert report.files[0].notes == []


def test_two_tables_have_one_axis(tmp_path: Path) -> None:
    """What links the columns may be in the other file."""
    other = b"_step,eval/loss\n3,0.5\n5,0.25\n"
    report, events = read(tmp_path, ("a.csv", other), ("b.jsonl", lines(*TRAINED)))
    found = figures(events)
    assert sorted(found) == [10, 20] and found[10]["eval/loss"] == 0.25 and report.last_step == 20
    assert "2 rows without it were placed" in next(file for file in report.files if file.name == "a.csv").notes[0]


def test_a_table_that_nothing_links_stays_at_its_own_steps(tmp_path: Path) -> None:
    report, events = read(
        tmp_path, ("a.csv", b"step,loss\n1,0.5\n2,0.25\n3,0.1\n"), ("b.csv", b"iteration,kl\n2,0.5\n")
    )
    assert figures(events)[2] == {"loss": 0.25, "kl": 0.5}
    assert report.files[1].notes == ["1 row has no step and no link to it: it keeps its own step."]


def test_rows_out_of_order_are_put_in_order_and_the_later_word_counts(tmp_path: Path) -> None:
    rows = [{"step": 2, "_timestamp": 1767000000.0 + at, "loss": at / 10} for at in range(5)]
    random.Random(7).shuffle(rows)
    _report, events = read(tmp_path, ("h.jsonl", lines({"step": 3, "loss": 9}, *rows, {"step": 1, "loss": 8})))
    assert [event.step for event in of(events, "metrics")] == [1, 2, 2, 2, 2, 2, 3, 3]
    assert [event.values["loss"] for event in of(events, "metrics")][1:6] == [0.0, 0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("order", [1, -1])
def test_a_column_is_judged_by_all_of_its_cells(tmp_path: Path, order: int) -> None:
    rows = [{"step": n, "loss": n, "note": "x" if n < 4 else 5, "kl": 0.1 if n < 4 else "-"} for n in range(1, 5)]
    report, events = read(tmp_path, ("h.jsonl", lines(*rows[::order])))
    assert report.files[0].left_out == {"note": "its values are not numbers"}
    assert figures(events)[3] == {"loss": 3.0, "kl": 0.1}
    assert [bad.reason for bad in report.bad] == ["'-' is not a number, under 'kl'"]


NAN, INF = float("nan"), float("inf")
CONSOLE = b"{'loss': nan, 'grad_norm': inf, 'reward': '-inf', 'epoch': 0.5}\n"
STATE = '{"log_history": [{"step": 1, "loss": %s, "grad_norm": %s, "reward": %s}]}'
NOT_FINITE = {
    "state": ("s.json", (STATE % ("NaN", "Infinity", "-Infinity")).encode()),
    "state in texts": ("s.json", (STATE % ('"NaN"', '"Infinity"', '"-Infinity"')).encode()),
    "state by overflow": ("s.json", (STATE % ('"nan"', "1e999", "-1e999")).encode()),
    "lines": ("h.jsonl", b'{"step": 1, "loss": NaN, "grad_norm": Infinity, "reward": -Infinity}\n'),
    "lines in texts": ("h.jsonl", b'{"step": 1, "loss": "NaN", "grad_norm": "Infinity", "reward": "-Infinity"}\n'),
    "lines by overflow": ("h.jsonl", b'{"step": 1, "loss": NaN, "grad_norm": 1e400, "reward": -1e400}\n'),
    "csv": ("h.csv", b"step,loss,grad_norm,reward\n1,nan,inf,-inf\n"),
    "csv of W&B": ("h.csv", b'"Step","loss","grad_norm","reward"\n"1","NaN","Infinity","-Infinity"\n'),
    "long": ("h.csv", b"step,name,value\n1,loss,nan\n1,grad_norm,inf\n1,reward,-Infinity\n"),
    "trainer's console": ("log", CONSOLE),
    "verl's console": ("log", b"step:1 - loss:nan - grad_norm:np.float64(inf) - reward:-inf\n"),
    "tensorboard": ("tf", BEGINS + _event(1, _simple("loss", NAN), _simple("grad_norm", INF), _simple("reward", -INF))),
}


@pytest.mark.parametrize("kind", NOT_FINITE)
def test_figures_that_are_not_finite_stay_so_and_are_counted(tmp_path: Path, kind: str) -> None:
    """A run that blew up was once imported as a healthy one, with gaps that were not visible."""
    report, events = read(tmp_path, NOT_FINITE[kind])
    values = figures(events)[1]
    assert math.isnan(values["loss"]) and (values["grad_norm"], values["reward"]) == (INF, -INF)
    assert report.verdict == "ok" and report.files[0].notes[-1] == (
        "3 figures are not finite (NaN or infinite), the first at step 1: grad_norm (1), loss (1), reward (1). "
        "They are gaps in their curves."
    )


def test_the_first_of_them_is_that_of_the_lowest_step(tmp_path: Path) -> None:
    report, _events = read(tmp_path, ("log", b"step:7 - loss:nan\nstep:3 - loss:nan\nstep:9 - loss:nan\n"))
    assert "the first at step 3: loss (3)" in report.files[0].notes[0]


@pytest.mark.parametrize(("step", "kept"), [(2**31 - 1, True), (2**31, False), (-1, False), (1.5, False)])
def test_a_step_is_a_whole_number_of_31_bits(tmp_path: Path, step: float, kept: bool) -> None:
    report, _events = read(tmp_path, ("h.jsonl", lines({"step": 1, "loss": 1}, {"step": step, "loss": 1})))
    assert report.bad_rows == (not kept) and (kept or "not a whole number from 0" in report.bad[0].reason)


def test_missing_is_no_gap_and_a_number_that_is_too_large_for_a_double_is_none(tmp_path: Path) -> None:
    report, events = read(tmp_path, ("h.csv", b"step,loss,kl\n1,,0.5\n2,1e308,\n3,nan,1\n"))
    assert figures(events)[1] == {"kl": 0.5} and figures(events)[2] == {"loss": 1e308}
    assert report.files[0].notes == [
        "1 figure is not finite (NaN or infinite), at step 3: loss (1). It is a gap in its curve."
    ]


def test_the_floats_of_an_event_file_are_what_they_are(tmp_path: Path) -> None:
    largest = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
    _report, events = read(tmp_path, ("tf", BEGINS + _event(1, _simple("loss", largest))))
    assert figures(events)[1]["loss"] == largest
