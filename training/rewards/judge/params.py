"""What a judge needs to know, shared by all judged components."""

from __future__ import annotations

from pydantic import Field

from training.addresses import AddressRefused, parse_place
from training.chat_client import Endpoint
from training.rewards.base import Params
from training.words import _, sentence


class JudgeParams(Params):
    """Where the judge is, and its limits."""

    url: str = Field(
        "",
        title=_("Judge address"),
        description=_("An OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1."),
        max_length=500,
    )
    model: str = Field("", title=_("Judge model"), description=_("The model that is asked."), max_length=200)
    key_variable: str = Field(
        "",
        title=_("Key variable"),
        description=_(
            "The environment variable of the trainer that holds the key, JUDGE_KEY or JUDGE_KEY_…; "
            "the key itself is never stored."
        ),
        max_length=64,
        pattern=r"^(JUDGE_KEY(_[A-Z0-9]{1,50})?)?$",
    )
    concurrency: int = Field(
        8, title=_("Concurrent requests"), description=_("Requests in flight at most."), ge=1, le=256
    )
    timeout_s: float = Field(
        25.0,
        title=_("Judge limit"),
        description=_(
            "Longest wait for a verdict, queue and retries included, in seconds. Keep it below the scoring limit."
        ),
        gt=0,
        le=600,
    )
    attempts: int = Field(
        2,
        title=_("Attempts"),
        description=_(
            "How many times a request is sent before it fails; a busy judge (429) is asked again until the time limit."
        ),
        ge=1,
        le=5,
    )
    max_tokens: int = Field(
        300, title=_("Verdict tokens"), description=_("Longest verdict, in tokens."), ge=16, le=8192
    )
    max_chars: int = Field(
        20_000,
        title=_("Transcript characters"),
        description=_("For longer transcripts the judge sees the beginning and the end."),
        ge=500,
        le=500_000,
    )
    price_in: float = Field(
        0.0, title=_("Price of input"), description=_("Price of a million input tokens."), ge=0, le=10_000
    )
    price_out: float = Field(
        0.0, title=_("Price of output"), description=_("Price of a million output tokens."), ge=0, le=10_000
    )

    def problems(self) -> list[str]:
        """An address and a model are needed."""
        found: list[str] = [] if self.model else [sentence(_("The judge has no model."))]
        try:
            parse_place(self.url)
        except AddressRefused as exc:
            unusable = sentence(_("The judge has no usable address: {reason}"), reason=exc.message)
            found.append(unusable if self.url else sentence(_("The judge has no address.")))
        return found

    def endpoint(self) -> Endpoint:
        """How the client is told."""
        return Endpoint(
            self.url, self.model, self.key_variable, self.concurrency, self.timeout_s, self.attempts, self.max_tokens
        )


class RubricParams(JudgeParams):
    """Parameters of ``judge``."""

    rubric: str = Field(
        "Judge how well the assistant did what the user asked. Look at what was really done, not at what is claimed.",
        title=_("Rubric"),
        description=_(
            "The judge's prompt. {question}, {answer}, {truth} and {transcript} are filled in; a rubric "
            "without {transcript} gets it appended."
        ),
        max_length=8000,
    )
    truth_field: str = Field(
        "", title=_("Answer field"), description=_("Path of the right answer in the row, for {truth}."), max_length=200
    )
    lowest: float = Field(0.0, title=_("Lowest mark"), description=_("The score that is worth 0."), ge=-1000, le=1000)
    highest: float = Field(
        10.0, title=_("Highest mark"), description=_("The score that is worth 1."), ge=-1000, le=1000
    )

    def problems(self) -> list[str]:
        """... and marks that rise."""
        marks = (
            [] if self.lowest < self.highest else [sentence(_("The judge's highest score must be above the lowest."))]
        )
        return super().problems() + marks
