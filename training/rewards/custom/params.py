"""Parameters of custom code. The hash stands beside the code wherever it is stored, and a wrong one is refused."""

from __future__ import annotations

import hashlib

from pydantic import Field, model_validator

from training.rewards.base import Params
from training.words import OptionError, _, sentence

MAX_CODE_CHARS = 20_000


def code_hash(code: str) -> str:
    """The name of a piece of code: its SHA-256."""
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


class CustomParams(Params):
    """Parameters of ``custom_python``."""

    code: str = Field(
        "",
        title=_("Code"),
        description=_("Python that defines reward(episode) and returns a number; it runs in a sandbox."),
        max_length=MAX_CODE_CHARS,
        json_schema_extra={"widget": "code"},
    )
    sha256: str = Field(
        "",
        title=_("SHA-256 of the code"),
        description=_("Filled in from the code; another value is refused."),
        max_length=64,
        pattern=r"^([0-9a-f]{64})?$",
        json_schema_extra={"widget": "code"},
    )
    low: float | None = Field(
        None, title=_("Lowest value"), description=_("A lower value is an error; empty allows any."), ge=-1e6, le=1e6
    )
    high: float | None = Field(
        None, title=_("Highest value"), description=_("A higher value is an error; empty allows any."), ge=-1e6, le=1e6
    )
    limit_s: float = Field(
        2.0,
        title=_("Time limit"),
        description=_("Longest computation for one rollout, in seconds. Keep it below the scoring limit."),
        gt=0,
        le=60,
    )

    @model_validator(mode="after")
    def _name_the_code(self) -> CustomParams:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise OptionError("low", sentence(_("the lowest value is above the highest one")))
        found = code_hash(self.code) if self.code else ""
        if self.sha256 and self.sha256 != found:
            raise ValueError(sentence(_("sha256: the code does not match this hash")))
        self.sha256 = found
        return self

    def problems(self) -> list[str]:
        """Code is needed."""
        return [] if self.code.strip() else [sentence(_("There is no code."))]
