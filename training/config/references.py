"""How a config names an object of the web interface: ``model:math``, ``dataset:tasks@2``. The prefixes are here only.

Whatever else a config has in such a place (``starter``, ``none``, a path, an id of Hugging Face) is no reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

ReferenceKind = Literal[
    "dataset",  # <name>@<version>
    "model",  # <name>
    "run",  # <name>: its final model
    "endpoint",  # <name>
    "environment",  # <name>
    "reward",  # <name>@<version>
    "rollout",  # <id>@<turn>, where an evaluation continues from
    "checkpoint",  # <id>, whom a chat asks
    "policy",  # <name> of a scripted policy, who plays a suite
]
_KINDS = frozenset(get_args(ReferenceKind))


@dataclass(frozen=True, slots=True)
class Reference:
    """What a reference says; ``str()`` writes it. ``name`` is all that follows the colon: ``tasks@2``."""

    kind: ReferenceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Reference | None:
        """The reference that a text is; ``None`` for any other text. Its name may be empty."""
        kind, colon, name = text.partition(":")
        return cls(cast(ReferenceKind, kind), name) if colon and kind in _KINDS else None


def kind_in(text: str) -> ReferenceKind | None:
    """The kind of the object that a text names; ``None`` for a text that is no reference."""
    found = Reference.parse(text)
    return found.kind if found is not None else None


def name_in(kind: ReferenceKind, text: str) -> str:
    """The name in a reference of this kind; any other text as it is."""
    return text.removeprefix(f"{kind}:")
