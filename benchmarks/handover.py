"""Does the sampler check find weights that did not arrive? ``python benchmarks/handover.py [--updates N] [--rates …]``.

The demo model, taught its tools task by imitation, is trained by GRPO with float32 weights; after each update they are
kept. Then a sampler in bfloat16 (autocast) that has the weights of ``k`` updates before draws turns, which are checked
against the forward of the newest ones in bfloat16, after a first, right handover:

*healthy* (k = 0): how many of all handovers give an alarm, and the mean gap over the first one's.
*found_by_gap*: the share of checks that find weights k updates old by the mean gap alone.
*found_by_echo*: the share that finds a sampler which answers as before the last update. Prints JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch  # noqa: E402

from benchmarks.environment import environment_server  # noqa: E402
from benchmarks.learning import DEMONSTRATIONS, TASKS, make_data, train  # noqa: E402
from training.algorithms.base import JournalCallback  # noqa: E402
from training.errors import SamplerDisagrees  # noqa: E402
from training.policy.check import SamplerCheck, draw_probes, forward_logprobs, tolerance_for  # noqa: E402
from training.policy.engine import SamplingParams  # noqa: E402
from training.policy.transformers_engine import TransformersEngine  # noqa: E402

STALE = (1, 2, 4, 8, 16, 32, 64)
HALF = torch.bfloat16


def weights_of(folder: Path, updates: int, rate: float) -> tuple[Any, Any, list[dict[str, Any]]]:
    """The demo model and tokenizer, and its float32 weights before the first and after each update."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tests.training.helpers import job_config
    from training.algorithms.grpo import run_grpo
    from training.algorithms.job import Job
    from training.journal import Journal

    kept: list[dict[str, Any]] = []
    at_begin, at_end = JournalCallback.on_train_begin, JournalCallback.on_step_end

    def keep(callback: Any) -> None:
        kept.append({name: value.clone() for name, value in callback.trainer.model.state_dict().items()})

    JournalCallback.on_train_begin = lambda self, *given, **named: (keep(self), at_begin(self, *given, **named))[1]  # type: ignore[method-assign]
    JournalCallback.on_step_end = lambda self, *given, **named: (keep(self), at_end(self, *given, **named))[1]  # type: ignore[method-assign]
    source = folder / "tools-demo-sft" / "model"
    try:
        with environment_server("tools") as server:
            config = job_config(
                model={"source": str(source)},
                data={"train": str(folder / "tasks.jsonl")},
                environment={"name": "tools", "url": server.url},
                rollout={"prompts_per_step": 2, "num_generations": 8, "max_turns": 4},
                optim={"learning_rate": rate},
                run={"max_steps": updates, "seed": 42},
            )
            run = folder / f"grpo-{rate:g}"
            run_grpo(Job(config, run, Journal(run), threading.Event(), 1))
    finally:
        JournalCallback.on_train_begin, JournalCallback.on_step_end = at_begin, at_end  # type: ignore[method-assign]
    return AutoModelForCausalLM.from_pretrained(source).eval(), AutoTokenizer.from_pretrained(source), kept


class Pair:
    """A sampler and a trainer, both in bfloat16, each with weights of its own."""

    def __init__(self, model: Any, tokenizer: Any, prompts: list[list[int]]) -> None:
        self.trainer, self._own, self._prompts = model, copy.deepcopy(model), prompts
        self._engine = TransformersEngine(
            self._own, stop_ids=[tokenizer.eos_token_id], params=SamplingParams(), autocast=HALF
        )
        self.logprobs = forward_logprobs(self.trainer, temperature=1.0, autocast=HALF)

    def check(self) -> SamplerCheck:
        """A check of an attempt, before its first handover."""
        return SamplerCheck(
            self.logprobs, tolerance_for(self.trainer, HALF, vllm=True), lambda _event: None, copies=True
        )

    def made(self, check: SamplerCheck, sampler: Any, trainer: Any) -> dict[str, float]:
        """One check with these weights. Raises ``SamplerDisagrees``."""
        self._own.load_state_dict(sampler)
        self.trainer.load_state_dict(trainer)
        self._engine.weights_changed()
        check.renew()
        with self._engine.sampling():
            probes = draw_probes(self._engine, self._prompts)
        found = check(1, probes)
        check.prove(1, probes)
        return found


def measured(pair: Pair, kept: list[dict[str, Any]]) -> dict[str, Any]:
    """Alarms of healthy handovers, and what share of stale ones is found, by how many updates they are old."""
    check, means, alarms = pair.check(), [], 0
    for weights in kept:
        try:
            means.append(pair.made(check, weights, weights)["sampling/logprob_gap_mean"])
        except SamplerDisagrees:
            alarms += 1
    by_gap, by_echo = {}, {}
    for old in (old for old in STALE if old < len(kept)):
        places = range(old, len(kept), max(1, (len(kept) - old) // 12))
        by_gap[old] = found_share(pair, kept, places, old, echo=False)
        by_echo[old] = found_share(pair, kept, places, old, echo=True)
    return {
        "handovers": len(kept),
        "false_alarms": alarms,
        "first_mean": round(means[0], 5),
        "largest_mean_over_first": round(max(means) / means[0], 2),
        "found_by_gap": by_gap,
        "found_by_echo": by_echo,
    }


def found_share(pair: Pair, kept: list[Any], places: range, old: int, *, echo: bool) -> float:
    """Of checks of a sampler that is ``old`` updates behind, after a right handover. With ``echo`` that handover was
    the one that it still has; else the first of all, so that only the gap can tell."""
    found = 0
    for place in places:
        check = pair.check()
        before = kept[place - old] if echo else kept[0]
        pair.made(check, before, before)
        if not echo:
            check._echo = type(check._echo)(pair.logprobs)
        try:
            pair.made(check, kept[place - old], kept[place])
        except SamplerDisagrees:
            found += 1
    return round(found / len(places), 2)


def main() -> int:
    """Print the figures."""
    from envs.wire import Message
    from training.data.reader import load_rows
    from training.rollout.tokens import ChatTemplate

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-5, 2e-4])
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_data("demonstrations", DEMONSTRATIONS, folder / "demonstrations.jsonl")
        make_data("tasks", TASKS, folder / "tasks.jsonl")
        train("tools-demo-sft", folder, 42, {"data": {"train": str(folder / "demonstrations.jsonl")}})
        rows = load_rows(folder / "tasks.jsonl")[:8]
        for rate in options.rates:
            model, tokenizer, kept = weights_of(folder, options.updates, rate)
            template = ChatTemplate(tokenizer)
            prompts = [
                template.prompt_ids([Message(role=m.role, content=m.content) for m in row.messages], row.tools)
                for row in rows
            ]
            figures[f"{rate:g}"] = measured(Pair(model, tokenizer, prompts), kept)
    print(json.dumps({"bfloat16": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
