"""What a job needs on a device, term by term, and when each term is there."""

from __future__ import annotations

from typing import NamedTuple

from training.memory.devices import GIB, Device
from training.words import Sentence, _

NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Half a byte; for each 64 weights a constant of a byte, and for each 256 of those one of four (QLoRA, section 3)."""
PROGRAM = {"cuda": round(0.75 * GIB), "cpu": round(0.45 * GIB)}
"""The libraries' own memory: on a GPU their context, on a processor what is resident before a model is loaded."""
TITLES = {
    "weights": _("Weights of the model"),
    "lora": _("LoRA adapter"),
    "gradients": _("Gradients"),
    "optimizer": _("Optimiser"),
    "reference": _("Reference model"),
    "values": _("Value head and values"),
    "activations": _("Activations"),
    "head": _("Output head, loss and the layer at work"),
    "holes": _("Holes that the allocator keeps"),
    "cache": _("Key-value cache of the rollouts"),
    "copy": _("Weights in the precision of sampling"),
    "vllm": _("vLLM"),
    "vllm_awake": _("vLLM while it samples"),
    "program": _("Program and libraries"),
}
LEARNING, SAMPLING = ("gradients", "activations", "head", "holes"), ("cache", "copy", "vllm_awake")


class Term(NamedTuple):
    """One line of the table. ``why`` says what it is made of; ``spare`` is what of it is taken where there is room,
    and needed by nothing."""

    key: str
    bytes: int
    why: Sentence
    spare: int = 0

    @property
    def title(self) -> str:
        """Its name, to be translated where it is shown."""
        return TITLES[self.key]

    @property
    def part(self) -> str:
        """When it is there: ``learning``, ``sampling``, or ``kept`` for the whole run."""
        return "learning" if self.key in LEARNING else "sampling" if self.key in SAMPLING else "kept"


class Need(NamedTuple):
    """What a job needs on a device."""

    device: Device
    terms: tuple[Term, ...]

    def bytes_of(self, *keys: str) -> int:
        """The sum of these terms."""
        return sum(term.bytes for term in self.terms if term.key in keys)

    @property
    def fixed(self) -> int:
        """What stays for the whole run."""
        return sum(term.bytes for term in self.terms if term.key not in (*LEARNING, *SAMPLING))

    @property
    def learning(self) -> int:
        """At the moment of most in a forward and backward."""
        return self.fixed + self.bytes_of(*LEARNING)

    @property
    def sampling(self) -> int:
        """While all rollouts that may be in flight are at their longest."""
        return self.fixed + self.bytes_of(*SAMPLING)

    @property
    def whole(self) -> int:
        """Bytes that it needs at the moment of most: with less it cannot run."""
        return max(self.learning, self.sampling - sum(term.spare for term in self.terms))

    @property
    def most(self) -> int:
        """Bytes that it takes at most where there is room."""
        return max(self.learning, self.sampling)

    @property
    def fits(self) -> bool:
        """Whether the device has as much."""
        return self.whole <= self.device.bytes
