"""What a training step keeps in memory besides weights and gradients, found by running it on tensors without content.

PyTorch's fake tensors have shapes and no bytes: the model's own forward, TRL's own head and autograd's own backward run
in milliseconds at any size, and every tensor that would have been made is counted while it would have lived. So no
formula has to follow each family of models, LoRA, checkpointing or mixed precision.

At one moment memory grows by the same bytes with each layer, and beyond a few thousand tokens with each row. So two
depths and at most two numbers of rows are run: a model of 64 layers costs no more than one of four. The most at any
time is no such line: the end of the forward, where autocast holds a copy of every weight, passes the layer that is
computed again only once there are enough layers. So each of ``MOMENTS`` has a line of its own, and the largest counts.
"""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from training.data.learned import IGNORED
from training.errors import ModelError
from training.memory.devices import Weight
from training.policy.attached import value_head_of
from training.policy.memory import RowCost, measure_row
from training.policy.value_head import attach_value_head, values_read

TOKENS = 8192
"""Two tiles of TRL's head. Beyond a few tiles everything grows by the same bytes with each row."""


MOMENTS = ("forward", "head", "layers", "embeddings")
"""The forward with the loss, and the backward of the head, of the layers and of the embeddings. The head's tiles are as
large for few rows as for many, the layer that is computed again is not: together they would be no line."""


class Shape(NamedTuple):
    """The longest micro batch: rows of ``prompt`` and ``completion`` tokens."""

    rows: int
    prompt: int
    completion: int


class Precision(NamedTuple):
    """The type of the weights, and what the forward computes in where that is another."""

    weights: torch.dtype
    autocast: torch.dtype | None = None


class How(NamedTuple):
    """How the model learns: ``lora`` is a ``peft.LoraConfig``, ``recompute`` gradient checkpointing, ``values`` a value
    head, ``on_gpu`` whether TRL's head has its kernels for one."""

    lora: Any = None
    recompute: bool = False
    values: bool = False
    on_gpu: bool = False


ALL_WEIGHTS = How()


class StepBytes(NamedTuple):
    """What a forward and backward hold besides weights and gradients. ``whole`` is the most at any time, ``layers`` its
    part that grows with the depth, and ``head`` the rest: the head's tiles, the loss, embeddings, masks, and with
    checkpointing the one layer that is computed again."""

    layers: int
    head: int

    @property
    def whole(self) -> int:
        """Bytes at the moment of most."""
        return self.layers + self.head


class _Living(TorchDispatchMode):
    """Counts the bytes of the tensors that live, as they come and go."""

    def __init__(self, there: Iterable[torch.Tensor]) -> None:
        """``there``: what lives already, and is not counted where a view of it is made."""
        super().__init__()
        self.changes: list[tuple[int, int]] = []
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in there}
        self._number = 0
        self._marks: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor):
                self._born(tensor.untyped_storage())
        return made

    def _born(self, storage: Any) -> None:
        place = storage._cdata
        if place in self._sizes:
            return
        self._number += 1
        self._sizes[place] = self._number
        self.changes.append((self._number, storage.nbytes()))
        weakref.finalize(storage, self._gone, place, storage.nbytes())

    def _gone(self, place: int, size: int) -> None:
        self.changes.append((self._sizes.pop(place), -size))

    def numbers_of(self, tensors: Iterator[torch.Tensor]) -> set[int]:
        """The numbers under which these tensors came."""
        return {self._sizes.get(tensor.untyped_storage()._cdata, 0) for tensor in tensors}

    def mark(self) -> None:
        """A moment of ``MOMENTS`` ends here."""
        self._marks.append(len(self.changes))

    def most(self, without: set[int]) -> tuple[int, ...]:
        """The most bytes of each moment, some tensors left out."""
        now, found = 0, []
        for begin, end in itertools.pairwise([0, *self._marks, len(self.changes)]):
            most = now
            for number, size in self.changes[begin:end]:
                if number not in without:
                    now += size
                    most = max(most, now)
            found.append(most)
        return (*found, *[now] * (len(MOMENTS) - len(found)))


def step_bytes(config: Any, shape: Shape, precision: Precision, how: How = ALL_WEIGHTS) -> StepBytes:
    """The memory that one micro batch needs. ``config`` is the model's (transformers)."""
    few = max(1, TOKENS // (shape.prompt + shape.completion))
    if shape.rows <= 2 * few:
        return max(_at(config, shape, precision, how), key=_whole)
    one, two = (_at(config, shape._replace(rows=rows), precision, how) for rows in (few, 2 * few))
    times = (shape.rows - few) / few
    return max((_on_line(low, high, times) for low, high in zip(one, two, strict=True)), key=_whole)


def _on_line(one: StepBytes, two: StepBytes, times: float) -> StepBytes:
    """Beyond ``one`` by so many times the way from it to ``two``."""
    return StepBytes(*(round(low + (high - low) * times) for low, high in zip(one, two, strict=True)))


def _whole(found: StepBytes) -> int:
    return found.whole


@contextmanager
def _traced() -> Iterator[None]:
    """Turns all that a model's own code raises on tensors without content into ``ModelError``."""
    try:
        yield
    except Exception as exc:
        detail = f"{type(exc).__name__}: {str(exc)[:200]}"
        raise ModelError(f"The memory of this model cannot be told beforehand: {detail}") from exc


def _at(config: Any, shape: Shape, precision: Precision, how: How) -> list[StepBytes]:
    """Each moment's bytes at the model's own depth."""
    low, high, depth = _depths(config)
    with _traced():
        few, more = (_any_most(_cut(config, layers), shape, precision, how) for layers in (low, high))
    each = [(two - one) / (high - low) if high > low else 0.0 for one, two in zip(few, more, strict=True)]
    return [StepBytes(round(slope * depth), round(one - slope * low)) for slope, one in zip(each, few, strict=True)]


def _depths(config: Any) -> tuple[int, int, int]:
    """Two numbers of layers to run, and how many there are."""
    text = config.get_text_config()
    depth, period = text.num_hidden_layers, _period(text)
    if 2 * period <= depth:
        return period, 2 * period, depth
    return max(1, depth // 2), depth, depth


def _period(text: Any) -> int:
    """After how many layers the kinds of layers begin again."""
    kinds = list(getattr(text, "layer_types", None) or [])
    for period in range(1, len(kinds) // 2 + 1):
        if all(kind == kinds[place % period] for place, kind in enumerate(kinds)):
            return max(2, period)
    return max(2, len(kinds) if kinds else 2)


def _cut(config: Any, layers: int) -> Any:
    """The same model with fewer layers."""
    shorter = copy.deepcopy(config)
    text = shorter.get_text_config()
    if getattr(text, "layer_types", None):
        text.layer_types = list(text.layer_types)[:layers]
    text.num_hidden_layers = layers
    return shorter


def adapter_size(config: Any, lora: Any) -> int:
    """Weights of a LoRA adapter."""
    low, high, depth = _depths(config)
    few, more = (_trained(_cut(config, layers), lora) for layers in (low, high))
    return few + (more - few) * (depth - low) // max(1, high - low)


def _trained(config: Any, lora: Any) -> int:
    model = empty_model(config, Precision(torch.float32), lora=lora)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def trained_weights(config: Any, lora: Any, itemsize: int) -> list[Weight]:
    """The tensors of a model that are trained, or those of its adapter; ``itemsize`` is that of their values."""
    model = empty_model(config, Precision(torch.float32), lora=lora)
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
    return [Weight(tuple(each.shape), itemsize, id(each) in tables) for each in trained]


def empty_model(config: Any, precision: Precision, *, lora: Any = None) -> Any:
    """The model as a trainer would have it, on the device ``meta``: shapes and types, no content."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=precision.weights)
        if lora is not None:
            from peft import get_peft_model

            model = get_peft_model(model, copy.deepcopy(lora))  # it writes the names that it found into it
    return model


def _any_most(config: Any, shape: Shape, precision: Precision, how: How) -> tuple[int, ...]:
    """The same of any precision. Without content, mixtures of experts multiply bfloat16 only: that is half the bytes of
    float32, and under autocast what the weights are cast to comes on top.
    """
    try:
        return _most(config, shape, precision, how)
    except RuntimeError:
        if precision.weights != torch.float32:
            raise
        found = _most(config, shape, _in_bf16(precision), how)
    if precision.autocast is None:
        return tuple(2 * moment for moment in found)
    copies = 2 * sum(p.numel() for p in empty_model(config, precision).parameters())
    return tuple(moment + copies for moment in found)


def _in_bf16(precision: Precision) -> Precision:
    return precision._replace(weights=torch.bfloat16)


def _most(config: Any, shape: Shape, precision: Precision, how: How) -> tuple[int, ...]:
    """The most bytes of each moment, of a model as deep as it is."""
    from trl.trainer.utils import add_fused_lm_head

    model = empty_model(config, precision, lora=how.lora)
    base = model.get_base_model() if how.lora is not None else model
    add_fused_lm_head(base, outputs=("log_probs", "entropy"))
    if how.values:
        attach_value_head(model, torch.device("meta"))
    model.train()
    if how.recompute:
        model.gradient_checkpointing_enable()
        if how.lora is not None:
            model.enable_input_require_grads()
    with FakeTensorMode(allow_non_fake_inputs=True), _head_in_place() if how.on_gpu else nullcontext():
        model.to_empty(device="cpu")  # PEFT cannot place its adapters on fake tensors
        base.tie_weights()
        living = _Living(itertools.chain(model.parameters(), model.buffers()))
        with living:
            base.base_model.register_forward_hook(_at_its_gradient(living.mark))
            base.get_input_embeddings().register_forward_hook(_at_its_gradient(living.mark))
            loss = _loss(model, shape, precision)
            living.mark()
            loss.backward()
            gradients = (p.grad for p in model.parameters() if p.grad is not None)
            own = living.numbers_of(gradients)
        return living.most(without=own)


@contextmanager
def _head_in_place() -> Iterator[None]:
    """TRL's head as its kernels for a GPU have it: they read and write a tile where it lies, and matrix products add
    up in float32 without copies of their factors. Its functions for other devices make some seven tiles more."""
    from trl.kernels import chunked_logprob

    with ExitStack() as patches:
        for name in ("_forward_tile", "_backward_tile", "_addmm_fp32"):
            patches.enter_context(mock.patch.object(chunked_logprob, name, _in_place))
        yield


def _in_place(*_given: Any, **_named: Any) -> None:
    """Makes no tensor."""


def _at_its_gradient(act: Callable[[], None]) -> Callable[..., None]:
    """A forward hook that has ``act`` called once the gradient of what the module gave is there."""

    def hook(_module: Any, _given: Any, made: Any) -> None:
        tensor = getattr(made, "last_hidden_state", made)
        if tensor.requires_grad:
            tensor.register_hook(lambda _gradient: act())

    return hook


def row_cost(config: Any, precision: Precision) -> RowCost:
    """The memory of a rollout in flight in the sampler's cache."""
    low, high, depth = _depths(config)
    with _traced():
        if high == depth:  # maybe too few layers to have one of each kind in half of them
            return _row(config, precision)
        few, more = (_row(_cut(config, layers), precision) for layers in (low, high))
    times = (depth - low) / (high - low)
    return RowCost(*(round(a + (b - a) * times) for a, b in zip(few, more, strict=True)))


def _row(config: Any, precision: Precision) -> RowCost:
    try:
        return _prefilled(config, precision)
    except RuntimeError:
        if precision.weights != torch.float32:
            raise
        column, state = _prefilled(config, _in_bf16(precision))
        times = 2 if precision.autocast is None else 1
        return RowCost(times * column, times * state)


def _prefilled(config: Any, precision: Precision) -> RowCost:
    model = empty_model(config, precision)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), _autocast(precision):
        model.to_empty(device="cpu").eval()
        return measure_row(model, torch.device("cpu"), precision.autocast)


def _autocast(precision: Precision) -> torch.autocast:
    """As accelerate and the sampler compute on a GPU; fake tensors take the processor's."""
    return torch.autocast("cpu", precision.autocast or torch.bfloat16, enabled=precision.autocast is not None)


def _loss(model: Any, shape: Shape, precision: Precision) -> torch.Tensor:
    """As TRL's trainers compute it: log-probabilities of the completion, in tiles of the head."""
    length = shape.prompt + shape.completion
    ids = torch.zeros(shape.rows, length, dtype=torch.long)
    mask = torch.ones_like(ids)
    labels = ids.clone()
    labels[:, : shape.prompt] = IGNORED
    with _autocast(precision):
        return loss_like(model, shape.completion, input_ids=ids, attention_mask=mask, labels=labels)


def loss_like(model: Any, completion: int, **inputs: torch.Tensor) -> torch.Tensor:
    """A number that keeps what the loss keeps: of log-probabilities, and of values where the model has a head."""
    if value_head_of(model) is None:
        found: torch.Tensor = model(**inputs, fused_lm_head=True).log_probs.sum()
        return found
    with values_read(model, lambda values: values[:, -completion:], reaches_base=True) as values:
        found = model(**inputs, fused_lm_head=True).log_probs.sum()
    return found + values[0].sum()
