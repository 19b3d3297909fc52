"""Converting: ToolBench's own converter reproduced, verl's parquet with any row, and operations on datasets."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.__main__ import main
from training.data.files.parquet import read_values, write_parquet
from training.data.files.sources import resolved
from training.data.making import ConvertOptions, convert, operations
from training.data.options import FilterOptions, FilterRule, MixOptions, SplitOptions, SubsetOptions
from training.data.reader import load_rows
from training.errors import DataError

pq = pytest.importorskip("pyarrow.parquet")
SOURCE = "seed0_toolbench/derived/toolllama_conversations_from_data_example.json"


def guide_row(record: dict[str, Any], index: int) -> dict[str, Any]:
    """What ToolBench's guide says a row is."""
    turns = [turn for turn in record["conversations"] if turn["value"]]
    return {
        "prompt": [{"role": turn["from"], "from": turn["from"], "content": turn["value"]} for turn in turns],
        "data_source": "toolbench",
        "reward_model": {"style": "function", "ground_truth": None},
        "extra_info": {"index": index, "sample_id": record["id"], "category": "G1_category"},
    }


@pytest.mark.parametrize(("samples", "ratio"), [(None, 0.9), (20, 0.9), (7, 0.5)])
def test_the_guides_split_is_reproduced(
    seed_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], samples: int | None, ratio: float
) -> None:
    words = ["data", "convert", "--input", str(seed_data / SOURCE), "--split", "--train_ratio", str(ratio)]
    words += ["--train_output", str(tmp_path / "train.parquet"), "--val_output", str(tmp_path / "val.parquet")]
    assert main([*words, *(["--max_samples", str(samples)] if samples else [])]) == 0
    data = json.loads((seed_data / SOURCE).read_text())[:samples]
    random.seed(42)
    random.shuffle(data)
    at = int(len(data) * ratio)
    for name, records in (("train", data[:at]), ("val", data[at:])):
        table = pq.read_table(tmp_path / f"{name}.parquet")
        assert table.column_names == ["prompt", "data_source", "reward_model", "extra_info"]
        assert table.to_pylist() == [guide_row(record, index) for index, record in enumerate(records)]
    report = json.loads(capsys.readouterr().out)
    assert report["rows_in"] == report["rows"] == len(data) and report["bad_rows"] == 0
    assert report["lineage"]["operation"] == "split" and report["lineage"]["rows_out"] == [at, len(data) - at]


@pytest.mark.parametrize(("cut", "last"), [("query", "user"), ("last_turn", None)])
def test_the_guides_rows_can_be_cut(seed_data: Path, tmp_path: Path, cut: str, last: str | None) -> None:
    words = ["data", "convert", "--input", str(seed_data / SOURCE), "--output", str(tmp_path / "t.parquet")]
    assert main([*words, "--cut", cut]) == 0
    for row in pq.read_table(tmp_path / "t.parquet").to_pylist():
        assert row["prompt"][-1]["role"] in ({last} if last else {"user", "function"})
        assert cut != "query" or all(message["role"] != "assistant" for message in row["prompt"])


def test_rows_in_are_rows_kept_and_rows_listed(tmp_path: Path) -> None:
    good = {"messages": [{"role": "user", "content": "a"}], "ground_truth": 1}
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join([json.dumps(good), "bad", "{}", json.dumps(good)]))
    done = convert(path, ConvertOptions(output=tmp_path / "deep" / "out.jsonl", to="verl"))
    assert (done.rows_in, done.rows, done.bad_rows) == (4, 2, 2)
    assert [finding.line for finding in done.bad] == [2, 3] and done.outputs == {str(tmp_path / "deep/out.jsonl"): 2}
    row = json.loads((tmp_path / "deep" / "out.jsonl").read_text().splitlines()[0])
    assert list(row) == ["data_source", "prompt", "ability", "reward_model", "extra_info"]
    assert row["reward_model"] == {"style": "rule", "ground_truth": 1}


def test_gsm8k_becomes_helloagents_rows(seed_data: Path, tmp_path: Path) -> None:
    source = seed_data / "seed3_helloagents_gsm8k" / "gsm8k_test.jsonl"
    for target, keys in (
        ("helloagents_sft", ["prompt", "completion", "text"]),
        ("helloagents_rl", ["prompt", "ground_truth", "question", "full_answer"]),
    ):
        convert(source, ConvertOptions(output=tmp_path / target, to=target, max_samples=3))
        rows = [json.loads(line) for line in (tmp_path / target).read_text().splitlines()]
        assert [list(row) for row in rows] == [keys] * 3
        assert len(load_rows(tmp_path / target)) == 3
    assert rows[0]["ground_truth"] == "18" and rows[0]["prompt"].endswith("step by step:")


_leaf = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | (st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4))
)
_value = st.recursive(
    _leaf,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)
_info = st.fixed_dictionaries({"x": _value, "y": _value, "interaction_kwargs": st.fixed_dictionaries({"c": _value})})


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(infos=st.lists(_info, min_size=1, max_size=4))
def test_parquet_holds_any_value(tmp_path: Path, infos: list[dict[str, Any]]) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": "a"}], "extra_info": info, "free": info["x"], "n": number}
        for number, info in enumerate(infos)
    ]
    path = tmp_path / "any.parquet"
    assert write_parquet(path, lambda: rows) == len(rows)
    again = [raw.value for raw in read_values(path)]
    exact = [json.dumps(value, sort_keys=True) for value in (again, rows)]  # 1, 1.0 and True are not one value
    assert again == rows and exact[0] == exact[1]


def test_a_split_is_whole_and_the_same_every_time() -> None:
    made = operations.split(1000, SplitOptions(train_ratio=0.75))
    assert sorted(made.train + made.validation) == list(range(1000)) and len(made.train) == 750
    assert made == operations.split(1000, SplitOptions(train_ratio=0.75))
    assert made.train != operations.split(1000, SplitOptions(train_ratio=0.75, seed=1)).train
    empty = operations.split(0, SplitOptions())
    assert empty.train == empty.validation == [] and empty.lineage.rows_out == [0, 0]


def test_a_subset_is_the_first_rows_or_a_draw() -> None:
    assert operations.subset(400, SubsetOptions(rows=75)).numbers == list(range(75))
    drawn = operations.subset(400, SubsetOptions(rows=75, seed=7))
    assert len(set(drawn.numbers)) == 75 and drawn.numbers == sorted(drawn.numbers) != list(range(75))
    assert drawn.lineage.model_dump() == {
        "operation": "subset",
        "options": {"rows": 75, "seed": 7},
        "rows_in": [400],
        "rows_out": [75],
    }
    assert len(operations.subset(3, SubsetOptions(rows=75)).numbers) == 3


def test_filters_are_data_not_code() -> None:
    rows: list[dict[str, Any]] = [
        {
            "messages": [{"role": "user", "content": "weather"}],
            "category": "a",
            "n": 1,
            "extra_info": {"split": "train"},
        },
        {"messages": [{"role": "user", "content": "x"}] * 3, "category": "b", "n": True, "tags": ["__import__('os')"]},
        {"messages": [], "category": None},
    ]

    def kept(**rule: Any) -> list[int]:
        chosen = operations.Filter(rows, FilterOptions(rules=[FilterRule(**rule)]))
        return [rows.index(row) for row in chosen]

    assert kept(field="category", equals="a") == [0]
    assert kept(field="category", equals=None) == [2]
    assert kept(field="n", equals=1) == [0]
    assert kept(field="category", equals="a", negate=True) == [1, 2]
    assert kept(field="extra_info.split", contains="rai") == [0]
    assert kept(field="text", contains="weather") == [0]
    assert kept(field="turns", min_length=1, max_length=2) == [0]
    assert [kept(field="turns", min_length=3), kept(field="turns", min_length=4)] == [[1], []]
    assert [kept(field="turns", max_length=0), kept(field="category", max_length=1)] == [[2], [0, 1]]
    assert kept(field="tags", contains="__import__('os')") == [1]
    assert kept(field="absent.path.of.it", max_length=5) == []
    with pytest.raises(ValueError, match="give a value that the field must equal"):
        FilterRule(field="x")
    both = operations.Filter(rows, FilterOptions(rules=[FilterRule(field="turns", min_length=1)]))
    assert len(list(both)) == 2 and both.lineage.rows_in == [3] and both.lineage.rows_out == [2]


def test_a_mix_keeps_to_its_weights_and_repeats_itself() -> None:
    def rows(name: str, count: int) -> list[dict[str, Any]]:
        return [{"from": name, "n": n} for n in range(count)]

    def mixed(**options: Any) -> tuple[list[dict[str, Any]], operations.Mix]:
        mix = operations.Mix([rows("a", 5000), rows("b", 5000)], MixOptions(**options))
        return list(mix), mix

    first, mix = mixed(weights=[3, 1], rows=2000)
    assert first == mixed(weights=[3, 1], rows=2000)[0] != mixed(weights=[3, 1], rows=2000, seed=1)[0]
    taken = mix.lineage.rows_in
    assert sum(taken) == 2000 and abs(taken[0] - 1500) < 80
    assert [row["n"] for row in first if row["from"] == "b"] == list(range(taken[1]))
    whole, mix = mixed(weights=[1, 1])
    assert max(mix.taken) == 5000 and len(whole) == sum(mix.taken)
    with pytest.raises(ValueError, match="one weight"):
        operations.Mix([[]], MixOptions(weights=[1, 2]))


def test_what_cannot_be_reached_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def offline(*_: Any, **__: Any) -> None:
        raise httpx.ConnectError("no network")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", offline)
    with (
        pytest.raises(DataError, match="gsm8k of Hugging Face cannot be reached"),
        resolved("openai/gsm8k"),
    ):
        pass
    (tmp_path / "data").mkdir()
    with resolved(str(tmp_path)) as found:
        assert found == tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "absent.json", "--output", "x.jsonl"], "cannot be opened"),
        (["--input", "in.jsonl"], "No output is given"),
        (["--input", "in.jsonl", "--split"], "needs two outputs"),
        (["--input", "in.jsonl", "--output", "x", "--to", "pickle"], "cannot be written"),
        (["--input", "in.jsonl", "--output", "x", "--train_ratio", "7"], "train_ratio"),
        (["--input", "in.jsonl", "--output", "x", "--mapping", "{"], "not JSON"),
        (["--input", "in.jsonl", "--output", "x", "--mapping", '{"a": "b"}'], "mapping.a"),
    ],
)
def test_wrong_words_end_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}')
    assert main(["data", "convert", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_page_of_datasets_is_current() -> None:
    from training.data.reference import reference

    page = Path(__file__).resolve().parents[3] / "docs" / "data.md"
    assert page.read_text(encoding="utf-8") == reference()
