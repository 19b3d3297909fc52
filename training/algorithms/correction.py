"""Importance correction: the loss of what another than the trainer's own arithmetic has sampled.

vLLM, and bfloat16 where rows are batched otherwise, draw from a distribution that is close to the trainer's and not the
same. TRL weighs such samples by the ratio of both (truncated importance sampling: Yao et al. 2025), but only where it
runs vLLM itself. It samples through ``rollout_func`` here, so it is told that samples are like those of its vLLM; what
it would do with its own (hand over weights) is done by our engine.
"""

from __future__ import annotations

from typing import Any

from training.algorithms.kept_rows import KeptRowsTrainer, Rows

TRUNCATED = "sampling/truncated_share"


class _OurEngineDoes:
    """In the place of TRL's own vLLM."""

    def sync_weights(self) -> None:
        """``Engine.weights_changed`` has its own place, before the turns of a step."""


class CorrectedTrainer(KeptRowsTrainer):
    """A trainer that corrects for its sampler once it is told to."""

    def correct(self) -> None:
        """From now on what is sampled is weighed by the ratio of trainer and sampler."""
        self.use_vllm = True
        self.vllm_generation: Any = _OurEngineDoes()
        self._last_loaded_step = -1  # TRL 1.16 sets it with its own vLLM only

    def _generate_and_score_completions(self, inputs: Any) -> Rows:
        output = super()._generate_and_score_completions(inputs)
        most, mode = self.vllm_importance_sampling_clip_max, self.vllm_importance_sampling_mode
        share = truncated_share(output, most, mode) if most is not None else None
        if share is not None:
            self.callback.extra[TRUNCATED] = share
        return output


def truncated_share(output: Rows, most: float, mode: str) -> float | None:
    """The share of ratios that were above ``most``; None where nothing was corrected or nothing was sampled.

    A ratio that was left out is 0, one that counts as the limit is ``most``. Ratios are (rows, tokens), or (rows, 1) of
    whole rollouts; those of ids that the model did not sample are no ratios.
    """
    ratio = output.get("importance_sampling_ratio")
    if ratio is None:
        return None
    mask = (output["completion_mask"] * output.get("tool_mask", 1)).bool()
    kept = ratio[mask] if mode.startswith("token") else ratio[mask.any(-1)].flatten()
    if not kept.numel():
        return None
    above = kept == 0 if mode.endswith("mask") else kept >= most
    return float(above.float().mean())
