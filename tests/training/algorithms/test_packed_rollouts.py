"""Rollouts that follow each other in one row learn the same as rollouts in rows of their own, or are refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_kept_rows import watch_gradients
from tests.training.algorithms.test_micro_batches import LENGTHS, LOSSES, OTHERS, SEEN, apart, padded, scored, trained
from tests.training.helpers import TailedEngine, job_config
from tests.training.policy.families import FAMILIES, tiny_model
from training.algorithms import kept_rows, loading
from training.algorithms.grpo import run_grpo, run_ppo
from training.algorithms.micro_batches import PROBE, WINDOW, Joined, dealt_by_length, in_micro_batches, require_apart
from training.data.learned import IGNORED
from training.errors import ConfigError, ModelError
from training.model_check import check_model_folder
from training.policy import attention
from training.policy.attention import GROUPED, attend_by_rows, borders, sampling_attention

STATEFUL = {"qwen3_5_text", "qwen3_5 as published", "qwen3_next", "lfm2", "bloom"}
"""Whose layers carry something along a row; bloom's biases count columns of keys."""


def test_rows_follow_each_other_without_padding() -> None:
    joined = Joined(*padded([([5, 6, 7], [8]), ([9], [3, 4])]))
    assert joined.ids.tolist() == [[5, 6, 7, 8, 9, 3, 4]]
    assert joined.labels.tolist() == [[IGNORED] * 3 + [8, IGNORED, 3, 4]]
    assert joined.inputs["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    assert set(joined.inputs) == {"input_ids", "position_ids"}, "a mask would hide that there are several rows"
    values = torch.arange(1.0, 7.0)[None]
    assert joined.of_completions(values).tolist() == [[3.0, 0.0], [5.0, 6.0]]
    assert borders(joined.inputs["position_ids"], 7) == [0, 4, 7] and borders(None, 7) == [0, 7]


def test_rows_of_one_token_are_rows() -> None:
    assert borders(torch.tensor([[0, 0, 0, 1, 0]]), 5) == [0, 1, 2, 4, 5]


def test_a_limit_of_tokens_counts_real_ones() -> None:
    assert dealt_by_length([10, 9, 8, 7], 1, tokens=19, joined=True) == [[0, 1], [2, 3]]
    assert dealt_by_length([10, 9, 8, 7], 1, tokens=18, joined=True) == [[0, 2], [1, 3]]
    assert dealt_by_length([30, 2, 2], 1, tokens=34, joined=True) == [[0, 1, 2]], "no row is too short to be with it"
    assert dealt_by_length([40, 2], 1, tokens=34, joined=True) == [[0], [1]]
    assert dealt_by_length([5, 9, 5, 1, 7], 2, joined=True) == [[1, 4], [0, 2], [3]]


def model_of(name: str) -> Any:
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    if name not in OTHERS:
        return tiny_model(name)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG_MAPPING[name](**OTHERS[name]))


def trainer_of(model: Any) -> Any:
    from contextlib import nullcontext

    return SimpleNamespace(
        model=model, accelerator=SimpleNamespace(mixed_precision="no"), compute_loss_context_manager=nullcontext
    )


ROWS = [(20, 4), (3, 9), (7, 25), (1, 1)]


@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS])
def test_a_family_gives_each_row_what_it_has_alone_or_is_refused(name: str) -> None:
    """The trial says just the same as the rows themselves."""
    model = model_of(name)
    model.eval()
    draw = torch.Generator().manual_seed(3)
    rows = [
        (torch.randint(3, 90, (p,), generator=draw).tolist(), torch.randint(3, 90, (c,), generator=draw).tolist())
        for p, c in ROWS
    ]
    with torch.no_grad():
        ids, mask, keep = padded(rows)
        (alone,) = in_micro_batches(lambda packed: [scored(model, packed)], ids, mask, keep, rows=1, tokens=0)
        attend_by_rows(model)
        (joined,) = in_micro_batches(
            lambda packed: [joined_scores(model, packed)], ids, mask, keep, rows=4, tokens=0, joined=True
        )
    if name in STATEFUL:
        assert float((joined - alone).abs().max()) > 1e-4, "twenty times what is allowed below"
        with pytest.raises(ConfigError, match=r"optim\.packing: this model's layers would mix up rows"):
            require_apart(trainer_of(model), "optim.packing")
        return
    assert torch.allclose(joined, alone, atol=5e-6)
    require_apart(trainer_of(model), "optim.packing")
    assert not model.training, "it is left as it was"


def joined_scores(model: Any, packed: Any) -> torch.Tensor:
    logits = model(**packed.inputs, use_cache=False).logits[:, :-1].float()
    found: torch.Tensor = packed.of_completions(logits.log_softmax(-1).gather(2, packed.ids[:, 1:, None]).squeeze(2))
    return found


def test_chunks_that_are_longer_than_the_rows_of_the_trial_are_seen_all_the_same() -> None:
    """They count columns, so a rollout would be cut where another ends; with 8,192 a short trial sees nothing."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    small = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    more = {"head_dim": 8, "num_local_experts": 2, "intermediate_size": 48, "intermediate_size_mlp": 48}
    torch.manual_seed(0)
    config = CONFIG_MAPPING["llama4_text"](vocab_size=96, pad_token_id=0, **small, **more, attention_chunk_size=8192)
    model = AutoModelForCausalLM.from_config(config).float()
    attend_by_rows(model)
    assert max(PROBE) < 8192 and min(PROBE) > WINDOW
    with pytest.raises(ConfigError, match="mix up"):
        require_apart(trainer_of(model), "optim.packing")
    assert model.config.attention_chunk_size == 8192, "it is left as it was"


def test_windows_that_are_longer_than_the_rows_of_the_trial_are_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 40 tokens would not show that joined ones see beyond a window of 4,096."""
    model = model_of("mistral with a window")
    model.config.sliding_window = 4096
    for layer in model.model.layers:
        layer.self_attn.sliding_window = 4096
    attend_by_rows(model)
    require_apart(trainer_of(model), "optim.packing")
    assert model.config.sliding_window == model.model.layers[0].self_attn.sliding_window == 4096
    without = attention._mask
    monkeypatch.setattr(attention, "_mask", lambda tokens, _window, like, **how: without(tokens, None, like, **how))
    with pytest.raises(ConfigError, match="mix up"):
        require_apart(trainer_of(model), "optim.packing")


def test_noise_of_rounding_is_no_reason_to_refuse() -> None:
    model = model_of("llama").to(torch.bfloat16)
    attend_by_rows(model)
    require_apart(trainer_of(model), "optim.packing")
    model = model_of("lfm2").to(torch.bfloat16)
    attend_by_rows(model)
    with pytest.raises(ConfigError, match="mix up"):
        require_apart(trainer_of(model), "optim.packing")


def test_other_forwards_and_the_sampler_attend_as_before() -> None:
    """Masks, caches, and what the sampler swaps in."""
    torch.manual_seed(0)
    ids = torch.randint(3, 90, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    for name, own, sampling in (("mistral with a window", "sdpa", GROUPED), ("gpt_oss", "eager", "eager")):
        model = model_of(name).eval()
        assert model.config._attn_implementation == own
        with torch.no_grad():
            before = model(input_ids=ids, attention_mask=mask).logits
            attend_by_rows(model)
            ours = model.config._attn_implementation
            after = model(input_ids=ids, attention_mask=mask, use_cache=True)
            longer = model(input_ids=ids, attention_mask=mask).logits[:, -1]
            first = model(input_ids=ids[:, :-1], attention_mask=mask[:, :-1], use_cache=True)
            step = model(input_ids=ids[:, -1:], attention_mask=mask, past_key_values=first.past_key_values).logits
        assert torch.equal(after.logits[mask.bool()], before[mask.bool()])
        assert torch.allclose(step[:, 0], longer, atol=1e-5)
        assert ours not in (own, sampling)
        with sampling_attention(model):
            assert model.config._attn_implementation == sampling
        assert model.config._attn_implementation == ours


# Whole runs


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    return watch_gradients(monkeypatch)


@pytest.mark.parametrize(("name", "run", "over"), LOSSES)
def test_gradients_are_those_of_rows_of_their_own(
    make_job: MakeJob,
    gradients: list[dict[str, torch.Tensor]],
    starter_folder: Path,
    name: str,
    run: Any,
    over: dict[str, Any],
) -> None:
    """In micro batches of two, in one, and by tokens; with layers computed again too."""
    again = {"gradient_checkpointing": True} if name in ("dapo", "ppo") else {}
    apart_figures = trained(make_job, "apart", run, **over, optim={"micro_batch_size": 2})
    for kind, optim, more in (
        ("rows", {"micro_batch_size": 2}, {}),
        ("whole", {}, again),
        ("tokens", {"max_tokens_per_micro_batch": 128}, {}),
    ):
        model = {"source": str(starter_folder), **more}
        found = trained(make_job, kind, run, **over, optim={**optim, "packing": True}, model=model)
        assert apart(gradients[0], gradients[-1]) <= 1e-6, kind
        for figure in SEEN:
            if figure in apart_figures:
                assert found[figure] == pytest.approx(apart_figures[figure], rel=2e-5, abs=1e-7), (kind, figure)


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_later_updates_see_the_same_old_log_probabilities_and_figures(make_job: MakeJob, method: str) -> None:
    run, options = (run_grpo, {"loss_type": "dapo", "beta": 0.02}) if method == "grpo" else (run_ppo, {"lam": 0.9})
    over: dict[str, Any] = {"kind": method, method: {**options, "num_iterations": 2, "epsilon": 0.01}}
    over["run"] = {"max_steps": 4}
    rate = {"mini_batch_size": 4, "learning_rate": 3e-3}
    whole = trained(make_job, "whole", run, **over, optim=rate)
    packed = trained(make_job, "packed", run, **over, optim={**rate, "packing": True})
    names = [name for name in whole if name.startswith(("clip_ratio", "entropy", "kl", "value/", "grad_norm"))]
    assert 0 < whole["clip_ratio/region_mean"] < 1 and len(names) >= 7
    for name in names:
        assert packed[name] == pytest.approx(whole[name], rel=1e-3, abs=1e-6), name


def test_no_forward_has_a_cell_that_is_no_token(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed is what there is; the saved model says nothing of how it was trained."""
    cells: list[tuple[int, int]] = []
    original = kept_rows.in_micro_batches

    def watch(forward: Any, ids: torch.Tensor, mask: torch.Tensor, keep: int, **how: Any) -> Any:
        def counted(packed: Any) -> Any:
            cells.append((packed.ids.numel(), len(packed.ids)))
            return forward(packed)

        begun = len(cells)
        found = original(counted, ids, mask, keep, **how)
        assert sum(size for size, _rows in cells[begun:]) == int(mask.sum())
        return found

    monkeypatch.setattr(kept_rows, "in_micro_batches", watch)
    trained(make_job, "packed", run_grpo, optim={"packing": True, "micro_batch_size": 4}, grpo={"beta": 0.05})
    assert len(cells) >= 4 and {rows for _size, rows in cells} == {1}
    folder = make_job("packed").run_dir / "model"
    check_model_folder(folder)
    assert "tiltyard" not in (folder / "config.json").read_text()


def test_a_run_that_packs_and_was_cut_is_bitwise_the_same(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.training.algorithms.test_resume import after_update, resumed_run

    optim = {"mini_batch_size": 4, "packing": True, "max_tokens_per_micro_batch": 300, "learning_rate": 3e-3}
    resumed_run(make_job, monkeypatch, [after_update(3, "kill"), after_update(7, "stop")], optim=optim)


def test_a_run_of_a_model_with_states_is_refused_before_it_plays(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here rows are not distinguished, as by a layer that knows nothing of positions."""
    engine = TailedEngine(LENGTHS, 2)
    monkeypatch.setattr("training.policy.attention.borders", lambda positions, tokens: [0, tokens])
    with pytest.raises(ConfigError) as found:
        run_grpo(make_job(optim={"packing": True}), engine=engine)
    assert found.value.option == "optim.packing" and "Set optim.packing to false" in (found.value.hint or "")


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_other_methods_do_not_pack_rollouts(kind: str) -> None:
    with pytest.raises(ValueError, match=r"optim\.packing.*only methods that learn from rollouts"):
        job_config(kind=kind, optim={"packing": True})
    for other in ("grpo", "rloo", "ppo", "sample"):
        job_config(kind=other, optim={"packing": True})


# Attention


def test_attention_is_chosen_by_name(make_job: MakeJob) -> None:
    seen = {}
    for name in ("auto", "eager"):
        values = trained(make_job, name, run_grpo, model={"attention": name})
        seen[name] = values["loss"], values["grad_norm"]
    assert seen["eager"] == pytest.approx(seen["auto"], rel=1e-4)


def test_flash_attention_is_refused_by_name_where_it_cannot_be(
    starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"model\.attention.*needs a CUDA GPU"):
        job_config(model={"attention": "flash_attention_2"}, run={"device": "cpu"})
    config = job_config(model={"attention": "flash_attention_2"}, run={"device": "auto"})
    with pytest.raises(ConfigError, match=r"model\.attention: .* none here") as found:
        loading.load_model(config, starter_folder, "cpu")
    assert found.value.option == "model.attention"
    with pytest.raises(ConfigError, match="none here that can"):  # a GPU without bfloat16
        monkeypatch.setattr(loading, "autocast_dtype", lambda device: None)
        loading.load_model(config, starter_folder, "cuda")
    monkeypatch.setattr(loading, "autocast_dtype", lambda device: torch.bfloat16)
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs flash-attn, which is not installed"):
        loading.load_model(config, starter_folder, "cuda")
    monkeypatch.setattr(loading, "find_spec", lambda name: object())
    assert loading.attention_of(config, "cuda") == {"attn_implementation": "flash_attention_2"}


def test_an_attention_that_the_model_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    model_of("bloom").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no attention by sdpa") as found:
        loading.load_model(job_config(model={"attention": "sdpa"}), tmp_path, "cpu")
    assert found.value.option == "model.attention"
    loading.load_model(job_config(model={"attention": "eager"}), tmp_path, "cpu")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError):
        loading.load_model(job_config(model={"attention": "eager"}), tmp_path, "cpu")
