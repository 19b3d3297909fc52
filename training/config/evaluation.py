"""How a contestant is evaluated."""

from __future__ import annotations

from typing import Literal

from training.config.option import Group, option
from training.config.rollout import POLICY_CHOICES, Policy
from training.words import _


class EvaluateConfig(Group):
    """Playing tasks without learning from them: jobs of kind `evaluate`, and training on rollouts every few steps."""

    every: int = option(
        0,
        title=_("Evaluate every"),
        help=_(
            "In a run that learns from rollouts: steps between evaluations on tasks that are held out, before the "
            "first step and after the last one too; 0 is off. The checkpoint with the highest held-out success is kept."
        ),
        unit=_("steps"),
        ge=0,
        le=1_000_000,
    )
    share: float = option(
        0.0,
        title=_("Held-out share"),
        help=_(
            "Part of the dataset that is not trained on and evaluations play: 0.1 is a tenth, 0 holds nothing "
            "out. A row is chosen by its task's text, so equal tasks stay together, and it stays held out when the "
            "dataset grows."
        ),
        ge=0,
        le=0.5,
    )
    data: str = option(
        "",
        title=_("Held-out dataset"),
        help=_(
            "In a run that learns from rollouts: another dataset whose tasks are played, instead of a share of its "
            "own. Tasks that are in the training dataset too are left out."
        ),
        widget="dataset",
        max_length=500,
    )
    samples: int = option(
        1,
        title=_("Tries of a held-out task"),
        help=_(
            "In a run that learns from rollouts. A job of kind `evaluate` plays each task `rollout.num_generations` "
            "times."
        ),
        unit=_("rollouts"),
        ge=1,
        le=64,
    )
    tasks: int = option(
        0,
        title=_("Evaluated tasks"),
        help=_(
            "Tasks that are played, drawn from the dataset by the seed; 0 plays all of them. Where the environment "
            "draws the tasks, 0 means 100."
        ),
        unit=_("tasks"),
        basic=True,
        ge=0,
        le=1_000_000,
    )
    replays: int = option(
        2,
        title=_("Replays"),
        help=_(
            "How often a rollout that fails outside the policy is played again, with the same seeds, before it is "
            "shown as missing. It is never counted as 0."
        ),
        ge=0,
        le=20,
    )
    continue_from: str = option(
        "",
        title=_("Continues from"),
        help=_(
            "A turn of a recorded rollout that rollouts continue from: `rollout:<id>@<turn>`. Set by “Continue” on "
            "the page of a rollout's branches. Only jobs of kind `evaluate`."
        ),
        max_length=500,
    )
    policy: Literal["none", Policy] = option(
        "none",
        title=_("Scripted policy"),
        help=_("A degenerate policy that plays instead of the model, as a floor. Only jobs of kind `evaluate`."),
        choices={"none": _("the model plays"), **POLICY_CHOICES},
    )


def cost_of(read: int, written: int, price_in: float, price_out: float) -> float:
    """Money for tokens that an endpoint read and wrote; prices are of a million."""
    return (read * price_in + written * price_out) / 1e6


class EndpointConfig(Group):
    """An OpenAI-compatible endpoint that plays instead of the model; one of the project is chosen as the model."""

    name: str = option(
        "",
        title=_("Endpoint"),
        help=_("Name of the project's endpoint; filled in from it, as its currency."),
        widget="registration",
        max_length=80,
    )
    currency: str = option(
        "",
        title=_("Currency"),
        help=_("The currency of prices and limits; filled in from the project's endpoint."),
        widget="registration",
        max_length=3,
    )

    url: str = option(
        "",
        title=_("Endpoint URL"),
        help=_(
            "Address of an OpenAI-compatible server up to and including its version, such as http://gpu-1:8000/v1. "
            "Empty: the model above plays."
        ),
        max_length=500,
        pattern=r"^(https?://\S+)?$",
    )
    model: str = option("", title=_("Endpoint model"), help=_("The name of the model on the endpoint."), max_length=200)
    key_variable: str = option(
        "",
        title=_("Key variable"),
        help=_("Environment variable that holds the key; empty sends none."),
        max_length=100,
        pattern=r"^[A-Z][A-Z0-9_]*$|^$",
    )
    tool_format: Literal["native", "text"] = option(
        "native",
        title=_("Tool calls"),
        help=_("How tools are described to the endpoint and how it calls them."),
        choices={
            "native": _("by the API, as structured tool calls"),
            "text": _("in the text, in the Hermes dialect, for servers without tool calls"),
        },
    )
    concurrency: int = option(
        8, title=_("Concurrent requests"), help=_("Requests at once at most."), unit=_("requests"), ge=1, le=256
    )
    timeout_s: float = option(
        120.0, title=_("Answer within"), help=_("Time limit of one request, retries included."), unit="s", gt=0, le=3600
    )
    patience_s: float = option(
        600.0,
        title=_("Endpoint's patience"),
        help=_(
            "How long the run waits and tries again while the endpoint is down or too busy; then it pauses. 0 never "
            "waits."
        ),
        unit=_("seconds"),
        ge=0,
        le=86400,
    )
    price_in: float = option(
        0.0,
        title=_("Price of input"),
        help=_("Per million prompt tokens, in your currency; 0 in both says that no price is set."),
        ge=0,
        le=1_000_000,
    )
    price_out: float = option(
        0.0, title=_("Price of output"), help=_("Per million sampled tokens, in your currency."), ge=0, le=1_000_000
    )
    max_cost: float = option(
        0.0,
        title=_("Cost at most"),
        help=_("The run pauses once this much is spent; 0 sets no limit. Needs prices."),
        ge=0,
        le=1_000_000,
    )
    max_tokens: int = option(
        0,
        title=_("Tokens at most"),
        help=_("The run pauses once so many tokens, prompts included, are used; 0 sets no limit."),
        unit=_("tokens"),
        ge=0,
        le=10**12,
    )

    @property
    def priced(self) -> bool:
        """Whether money can be counted: without a price nothing costs 0."""
        return bool(self.price_in or self.price_out)
