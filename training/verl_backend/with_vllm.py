"""What verl 0.9.1 needs to sample with vLLM 0.31.

Named in ``VERL_USE_EXTERNAL_MODULES``, so verl loads it in every process, those of vLLM among them.

1. vLLM has another name for the mapping that adapters are loaded with.
2. verl hands weights over through a socket, and waits without end for a vLLM that has failed to take them.
"""

from __future__ import annotations

from typing import Any

from training.errors import SamplerDied
from training.verl_backend.patches import change_after
from training.words import _, sentence

TAKE_S = 300
"""How long a vLLM may need to take one part of the weights, some hundred megabytes."""
NOT_TAKEN = _("A vLLM did not take the new weights within {seconds} s.")
HINT = "The end of the run's output has the error of vLLM."


def _mapping(_utils: Any) -> None:
    from vllm.model_executor.models.utils import WeightsMapper

    if not hasattr(WeightsMapper, "get_unstacked_mapper"):
        WeightsMapper.get_unstacked_mapper = WeightsMapper.get_rename_mapper


def _handover(transfer: Any) -> None:
    import zmq

    sender = transfer.BucketedWeightSender
    connect, send = sender._init_socket, sender.async_send_weights

    def connect_limited(self: Any) -> None:
        connect(self)
        for limit in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            self.socket.setsockopt(limit, TAKE_S * 1000)
        self.socket.setsockopt(zmq.LINGER, 0)

    async def send_limited(self: Any, weights: Any) -> None:
        try:
            await send(self, weights)
        except zmq.Again as exc:
            raise SamplerDied(sentence(NOT_TAKEN, seconds=TAKE_S), hint=HINT) from exc

    sender._init_socket, sender.async_send_weights = connect_limited, send_limited


change_after(
    {
        "verl.utils.vllm.utils": _mapping,
        "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer": _handover,
    }
)
