"""JobConfig: the only place where a job's options, units, defaults, limits and help texts stand.

The form, YAML import and export, the REST API, the command line and docs/configuration.md are made from it.
Every option is made by ``option()``; titles and help texts go through ``_`` so that the web interface can show
them in Chinese. Sources of defaults: TRL 1.16 ``GRPOConfig`` unless the help text says otherwise.

Objects of the web interface are named by references (``dataset:<name>@<version>``, ``model:<name>``, ``run:<name>``,
``environment:<name>``, ``reward:<name>@<version>``). Launching resolves them into paths, URLs and components, so the
trainer only ever sees plain values; a standalone YAML writes those directly.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.errors import ConfigError

CONFIG_VERSION = 1
Kind = Literal["grpo", "sft", "sample"]


def _(text: str) -> str:
    """Mark a text for translation; the web interface translates it when it shows it."""
    return text


def option(
    default: Any = ...,
    *,
    title: str,
    help: str,
    unit: str = "",
    basic: bool = False,
    widget: str = "",
    choices: dict[str, str] | None = None,
    **limits: Any,
) -> Any:
    """One option of a job: a pydantic field with what a form needs beside it.

    ``basic`` options are shown first, all others folded by group. ``widget`` names a special control
    (``dataset``, ``model``, ``environment``, ``reward``); those of ``registration`` are filled in when an environment
    is chosen, so no form shows them. ``choices`` maps values to their one-line meaning.
    """
    extra: dict[str, Any] = {"unit": unit, "basic": basic, "widget": widget, "choices": choices or {}}
    if callable(default):
        return Field(default_factory=default, title=title, description=help, json_schema_extra=extra, **limits)
    return Field(default, title=title, description=help, json_schema_extra=extra, **limits)


class Group(BaseModel):
    """A group of options: one fold of the form, one mapping of the YAML."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, protected_namespaces=())


class ModelConfig(Group):
    """Which model is trained and how it is held in memory."""

    source: str = option(
        "starter",
        title=_("Base model"),
        help=_(
            "The model to train: `starter` builds a tiny one from scratch, or a registered model, "
            "a Hugging Face id, or a local folder with safetensors weights."
        ),
        basic=True,
        widget="model",
        min_length=1,
        max_length=500,
    )
    revision: str = option(
        "",
        title=_("Revision"),
        help=_("Commit of a Hugging Face model. Empty takes the newest one and records which it was."),
        max_length=64,
        pattern=r"^[A-Za-z0-9._/-]*$",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = option(
        "auto",
        title=_("Number format"),
        help=_(
            "How weights are held. `auto` is float32, except below a LoRA adapter on a GPU, where it is bfloat16: "
            "updates of all weights at a small learning rate would be lost in bfloat16's rounding."
        ),
    )
    gradient_checkpointing: bool = option(
        False,
        title=_("Gradient checkpointing"),
        help=_("Recompute activations in the backward pass: about 30% slower, far less memory."),
    )
    lora_rank: int = option(
        0,
        title=_("LoRA rank"),
        help=_("Rank of a LoRA adapter trained instead of all weights; 0 trains all weights."),
        ge=0,
        le=512,
    )
    lora_alpha: int = option(
        32, title=_("LoRA alpha"), help=_("Scale of the adapter, used when the rank is above 0."), ge=1, le=1024
    )
    lora_dropout: float = option(
        0.0, title=_("LoRA dropout"), help=_("Share of the adapter's inputs that is dropped in training."), ge=0, lt=1
    )
    lora_targets: str = option(
        "all-linear",
        title=_("LoRA targets"),
        help=_("Layers that get an adapter: `all-linear`, or names with commas between, such as `q_proj,v_proj`."),
        min_length=1,
        max_length=500,
        pattern=r"^[A-Za-z0-9_.-]+(,[A-Za-z0-9_.-]+)*$",
    )


class DataConfig(Group):
    """What the model is trained on."""

    train: str = option(
        "",
        title=_("Training dataset"),
        help=_("One task a row. A registered dataset, or the path of a JSONL file of conversations."),
        basic=True,
        widget="dataset",
        max_length=500,
    )
    max_rows: int = option(
        0,
        title=_("Rows used at most"),
        help=_("Only the first rows are used; 0 uses all."),
        unit=_("rows"),
        ge=0,
    )
    shuffle: bool = option(True, title=_("Shuffle"), help=_("Draw the rows in a random order set by the seed."))


Protocol = Literal["openenv", "openenv-mcp", "openenv-text", "agentgym", "virtual", "mcp"]


class EnvironmentConfig(Group):
    """Which environment server plays the episodes, and how long each stage may take."""

    name: str = option(
        "",
        title=_("Environment"),
        help=_("The environment server that answers tool calls. A registered one, or its name with a URL below."),
        basic=True,
        widget="environment",
        max_length=200,
    )
    url: str = option(
        "",
        title=_("Server URL"),
        help=_("http:// or https:// address of the server; filled in from the registration."),
        widget="registration",
        max_length=500,
    )
    protocol: Protocol = option(
        "openenv",
        title=_("Protocol"),
        help=_("How the server is spoken to; filled in from the registration."),
        widget="registration",
        choices={
            "openenv": _("OpenEnv with Tiltyard's own actions"),
            "openenv-mcp": _("OpenEnv with MCP tools (list_tools, call_tool)"),
            "openenv-text": _("OpenEnv with a text action"),
            "agentgym": _("AgentGym over HTTP"),
            "virtual": _("StableToolBench's /virtual"),
            "mcp": _("an MCP server over streamable HTTP"),
        },
    )
    options: dict[str, Any] = option(
        dict,
        title=_("Protocol options"),
        help=_("What the protocol needs to know beside the address."),
        widget="registration",
    )
    replicas: list[str] = option(
        list,
        title=_("Replicas"),
        help=_("Addresses of more servers of the same environment; episodes go where most slots are free."),
        widget="registration",
        max_length=64,
    )
    deterministic: bool = option(
        False,
        title=_("Deterministic"),
        help=_("Task, seed and actions fix the episode, so one that lost its server is replayed on another."),
        widget="registration",
    )
    connect_timeout_s: float = option(
        10.0, title=_("Connect limit"), help=_("Longest wait for a connection."), unit=_("seconds"), gt=0, le=600
    )
    reset_timeout_s: float = option(
        60.0, title=_("Reset limit"), help=_("Longest wait for a new episode."), unit=_("seconds"), gt=0, le=3600
    )
    step_timeout_s: float = option(
        30.0, title=_("Call limit"), help=_("Longest wait for one answer."), unit=_("seconds"), gt=0, le=3600
    )
    episode_timeout_s: float = option(
        600.0, title=_("Episode limit"), help=_("Longest whole episode."), unit=_("seconds"), gt=0, le=86400
    )
    attempts: int = option(
        2,
        title=_("Connection attempts"),
        help=_("How often an episode is begun before its rollout is excluded as an environment failure."),
        ge=1,
        le=10,
    )


class RewardGate(BaseModel):
    """Counts a component only where another one's raw value is above a bound."""

    model_config = ConfigDict(extra="forbid")

    component: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    above: float = Field(default=0.0, ge=-1e6, le=1e6, allow_inf_nan=False)


class RewardSchedule(BaseModel):
    """A factor of a weight that changes over the run's steps: ``first`` up to ``begin``, ``last`` from ``end`` on.

    Between them ``linear`` goes in a straight line, and ``step`` stays at ``first``.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["linear", "step"] = "linear"
    begin: int = Field(default=0, ge=0, le=1_000_000)
    end: int = Field(ge=0, le=1_000_000)
    first: float = Field(default=1.0, ge=-100, le=100, allow_inf_nan=False)
    last: float = Field(ge=-100, le=100, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_order(self) -> RewardSchedule:
        if self.end < self.begin:
            raise ValueError("end: the schedule ends before it begins")
        return self


Bounds = Annotated[
    list[Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]], Field(min_length=2, max_length=2)
]


class RewardComponent(BaseModel):
    """One named part of the reward: a registered function, its weight and its own parameters.

    ``function`` says which function, where the name does not: two components may use one function with different
    parameters.

    The raw value is clipped to ``clip``, mapped so that ``scale`` becomes 0 to 1, left out where its ``gate`` is
    closed, and multiplied by the weight and the ``schedule``'s factor, in this order. It is computed only for rows of
    its ``categories``; none means all rows. These five are for YAML and the API; the form keeps them as they are.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    function: str = Field(default="", pattern=r"^([a-z][a-z0-9_]{0,63})?$")
    weight: float = Field(ge=-100, le=100, allow_inf_nan=False)
    params: dict[str, Any] = Field(default_factory=dict)
    clip: Bounds | None = None
    scale: Bounds | None = None
    gate: RewardGate | None = None
    schedule: RewardSchedule | None = None
    categories: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default_factory=list, max_length=100)

    @property
    def registered(self) -> str:
        """The name under which its function is registered."""
        return self.function or self.name

    @model_validator(mode="after")
    def _check_bounds(self) -> RewardComponent:
        if self.clip and self.clip[0] > self.clip[1]:
            raise ValueError("clip: the lower bound is above the upper one")
        if self.scale and self.scale[0] >= self.scale[1]:
            raise ValueError("scale: the lower bound must be below the upper one")
        return self


class RewardsConfig(Group):
    """What is rewarded. Raw component values are stored for each rollout, weights applied on top."""

    spec: str = option(
        "",
        title=_("Reward spec"),
        help=_("A registered reward spec; its components are filled in below when the run is launched."),
        basic=True,
        widget="reward",
        max_length=200,
    )
    components: list[RewardComponent] = option(
        list, title=_("Components"), help=_("Named components with weights, instead of a registered spec.")
    )
    score_timeout_s: float = option(
        30.0, title=_("Scoring limit"), help=_("Longest scoring of one rollout."), unit=_("seconds"), gt=0, le=600
    )
    aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = option(
        "sum_then_normalize",
        title=_("Aggregation"),
        help=_("How components become the advantage of a rollout within its group."),
        choices={
            "sum_then_normalize": _("weighed and summed, then compared within the group"),
            "normalize_then_sum": _("each compared within the group, then weighed and summed"),
        },
    )


Dialect = Literal["auto", "hermes", "toolbench", "bfcl", "webshop", "text"]


class RolloutConfig(Group):
    """How trajectories are sampled."""

    prompts_per_step: int = option(
        8,
        title=_("Prompts per step"),
        help=_("Different tasks tried in one step."),
        unit=_("prompts"),
        basic=True,
        ge=1,
        le=4096,
    )
    num_generations: int = option(
        8,
        title=_("Generations per prompt"),
        help=_("Rollouts of one task: they form the group whose mean is the baseline. GRPO needs at least 2."),
        unit=_("rollouts"),
        basic=True,
        ge=2,
        le=256,
    )
    max_turns: int = option(
        4,
        title=_("Turns at most"),
        help=_("Model turns in one episode; the episode is truncated after them."),
        unit=_("turns"),
        basic=True,
        ge=1,
        le=200,
    )
    max_turn_tokens: int = option(
        96, title=_("Tokens per turn at most"), help=_("Longest single model turn."), unit=_("tokens"), ge=1, le=32768
    )
    max_completion_tokens: int = option(
        512,
        title=_("Tokens per episode at most"),
        help=_("All that follows the prompt: model turns and environment messages together."),
        unit=_("tokens"),
        ge=8,
        le=262144,
    )
    max_prompt_tokens: int = option(
        1024,
        title=_("Prompt tokens at most"),
        help=_("Rows with a longer prompt are reported and left out."),
        unit=_("tokens"),
        ge=8,
        le=262144,
    )
    dialect: Dialect = option(
        "auto",
        title=_("Dialect"),
        help=_("How the model writes its calls. What it writes is only read; the chat template shows it how."),
        choices={
            "auto": _("by the environment: text where the action is a text, Hermes elsewhere"),
            "hermes": _("Hermes and Qwen: JSON in tool_call tags"),
            "toolbench": _("ToolBench: Thought, Action, Action Input"),
            "bfcl": _("BFCL: a list of Python calls"),
            "webshop": _("WebShop: search[words] and click[value]"),
            "text": _("no calls: the whole text is the answer"),
        },
    )
    temperature: float = option(
        1.0, title=_("Temperature"), help=_("Randomness of sampling; higher explores more."), gt=0, le=5
    )
    top_p: float = option(
        1.0, title=_("Top p"), help=_("Sample from the smallest set with this probability; 1 is off."), gt=0, le=1
    )
    top_k: int = option(0, title=_("Top k"), help=_("Sample from the k likeliest tokens; 0 is off."), ge=0, le=1000)
    failure_pause_share: float = option(
        0.5,
        title=_("Failure limit"),
        help=_("The run ends with a reason when more than this share of rollouts failed outside the policy…"),
        unit=_("share"),
        gt=0,
        le=1,
    )
    failure_pause_steps: int = option(
        3, title=_("Failure steps"), help=_("… over this many steps in a row."), unit=_("steps"), ge=1, le=100
    )


class GrpoConfig(Group):
    """The loss. TRL's GRPOTrainer computes it."""

    beta: float = option(
        0.0,
        title=_("KL weight β"),
        help=_(
            "Pull towards the base model; 0 keeps no reference model in memory. The seed of tool calling uses 0.04."
        ),
        ge=0,
        le=10,
    )
    epsilon: float = option(0.2, title=_("Clip ε"), help=_("Clipping range of the policy ratio."), gt=0, lt=1)
    epsilon_high: float = option(
        0.0,
        title=_("Clip ε above"),
        help=_("Clipping range above 1, where it is another than below (clip higher); 0 takes ε for both."),
        ge=0,
        lt=10,
    )
    delta: float = option(
        0.0,
        title=_("Ratio limit δ"),
        help=_("The policy ratio counts at most this much, also for bad rollouts (dual clip); 0 is off."),
        ge=0,
        le=1000,
    )
    entropy_coef: float = option(
        0.0,
        title=_("Entropy weight"),
        help=_("Rewards a policy that stays undecided; 0 is off."),
        ge=0,
        le=1,
    )
    importance_sampling: Literal["token", "sequence"] = option(
        "token",
        title=_("Ratio of"),
        help=_("What the policy ratio is taken over."),
        choices={"token": _("each token (GRPO)"), "sequence": _("the whole rollout (GSPO)")},
    )
    num_iterations: int = option(
        1, title=_("Iterations per batch"), help=_("Optimiser passes over each batch (μ)."), ge=1, le=16
    )
    loss_type: Literal["dapo", "grpo", "bnpo", "dr_grpo"] = option(
        "dapo",
        title=_("Loss"),
        help=_("How token losses are averaged."),
        choices={
            "dapo": _("over all tokens of the step (TRL's default)"),
            "grpo": _("per rollout, then over rollouts"),
            "bnpo": _("over the tokens of the local batch"),
            "dr_grpo": _("over a constant length: no length bias"),
        },
    )
    scale_rewards: Literal["group", "batch", "none"] = option(
        "group",
        title=_("Advantage scale"),
        help=_("What the advantage is divided by."),
        choices={
            "group": _("the group's standard deviation"),
            "batch": _("the batch's standard deviation"),
            "none": _("nothing"),
        },
    )
    mask_truncated: bool = option(
        False, title=_("Mask truncated"), help=_("Leave rollouts that were cut off out of the loss.")
    )


class OptimConfig(Group):
    """The optimiser (AdamW) and its batch."""

    learning_rate: float = option(
        1e-6,
        title=_("Learning rate"),
        help=_("Step size. About 1e-6 for GRPO on a pretrained model; the tiny starter model takes 1e-3."),
        basic=True,
        gt=0,
        le=1,
    )
    micro_batch_size: int = option(
        0,
        title=_("Micro batch"),
        help=_("Rollouts in one forward and backward pass; 0 takes the whole step. Smaller needs less memory."),
        unit=_("rollouts"),
        ge=0,
        le=4096,
    )
    mini_batch_size: int = option(
        0,
        title=_("Mini batch"),
        help=_(
            "Rollouts of one update of the weights; 0 takes the whole step. A smaller one makes several updates of one "
            "step's rollouts, and each counts as a step of the run."
        ),
        unit=_("rollouts"),
        ge=0,
        le=1_048_576,
    )
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = option(
        "constant", title=_("Schedule"), help=_("How the learning rate changes over the run.")
    )
    warmup_steps: int = option(
        0, title=_("Warm-up"), help=_("Steps over which the learning rate rises."), unit=_("steps"), ge=0, le=100000
    )
    warmup_share: float = option(
        0.0,
        title=_("Warm-up share"),
        help=_("The warm-up as a share of all steps, where no number of steps is set above."),
        unit=_("share"),
        ge=0,
        lt=1,
    )
    weight_decay: float = option(0.0, title=_("Weight decay"), help=_("Decay of AdamW."), ge=0, le=1)
    max_grad_norm: float = option(
        1.0, title=_("Gradient limit"), help=_("Gradients are scaled down to this norm."), gt=0, le=1000
    )


class SftConfig(Group):
    """Supervised fine-tuning, used by jobs of kind `sft`."""

    batch_size: int = option(
        64, title=_("Batch size"), help=_("Conversations in one step."), unit=_("rows"), ge=1, le=4096
    )
    max_length: int = option(
        512,
        title=_("Row tokens at most"),
        help=_("Longer conversations are left out and counted."),
        unit=_("tokens"),
        ge=16,
        le=262144,
    )


Policy = Literal["empty", "repeat", "copy_prompt", "one_tool", "claim_success", "beg"]


class SampleConfig(Group):
    """Playing and scoring without training, used by jobs of kind `sample`."""

    policies: list[Policy] = option(
        list,
        title=_("Scripted policies"),
        help=_(
            "Degenerate policies that play in the model's place, one rollout of each for every task; the generations "
            "per prompt then do not count. None: the model plays."
        ),
        choices={
            "empty": _("writes nothing"),
            "repeat": _("writes one sentence over and over"),
            "copy_prompt": _("gives the task back as its answer"),
            "one_tool": _("calls one tool for ever"),
            "claim_success": _("claims to be done without having done anything"),
            "beg": _("asks for the full reward"),
        },
        max_length=6,
    )


class RunConfig(Group):
    """How long the job runs, how often it saves, and where."""

    max_steps: int = option(
        100,
        title=_("Steps"),
        help=_("Optimiser steps; where nothing is trained, batches of rollouts."),
        unit=_("steps"),
        basic=True,
        ge=1,
        le=1_000_000,
    )
    save_every: int = option(
        0,
        title=_("Checkpoint every"),
        help=_("A checkpoint after each so many steps; 0 saves only the final model."),
        unit=_("steps"),
        ge=0,
    )
    seed: int = option(42, title=_("Seed"), help=_("Same seed, data and versions: same run."), ge=0, lt=2**31)
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", title=_("Device"), help=_("`auto` takes a GPU where there is one.")
    )
    threads: int = option(
        0, title=_("CPU threads"), help=_("Threads for CPU training; 0 takes all cores."), ge=0, le=1024
    )


class JobConfig(Group):
    """Everything that defines one job. ``JobConfig()`` with a dataset and an environment is a runnable GRPO job."""

    version: Literal[1] = Field(CONFIG_VERSION, title="Config version")  # type: ignore[arg-type]
    kind: Kind = option(
        "grpo",
        title=_("Method"),
        help=_("How the model is trained, or that it only plays."),
        basic=True,
        choices={
            "grpo": _("GRPO: learn from rewarded rollouts"),
            "sft": _("SFT: learn from demonstrations"),
            "sample": _("Sample: play and score, no training"),
        },
    )
    model: ModelConfig = Field(default_factory=ModelConfig, title=_("Model"))
    data: DataConfig = Field(default_factory=DataConfig, title=_("Data"))
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig, title=_("Environment"))
    rewards: RewardsConfig = Field(default_factory=RewardsConfig, title=_("Rewards"))
    rollout: RolloutConfig = Field(default_factory=RolloutConfig, title=_("Rollout"))
    grpo: GrpoConfig = Field(default_factory=GrpoConfig, title=_("GRPO"))
    sft: SftConfig = Field(default_factory=SftConfig, title=_("SFT"))
    sample: SampleConfig = Field(default_factory=SampleConfig, title=_("Sample"))
    optim: OptimConfig = Field(default_factory=OptimConfig, title=_("Optimiser"))
    run: RunConfig = Field(default_factory=RunConfig, title=_("Run"))

    @model_validator(mode="after")
    def _check_together(self) -> JobConfig:
        """Rules that span options. A message starts with the option it belongs to, so a form can place it."""
        if self.kind == "sft":
            return self
        if len(set(self.sample.policies)) != len(self.sample.policies):
            raise ValueError("sample.policies: each policy may appear once")
        if self.kind == "grpo":
            self._check_batches()
        if self.rollout.max_turn_tokens > self.rollout.max_completion_tokens:
            raise ValueError("rollout.max_turn_tokens: one turn cannot be longer than the whole episode")
        names = [component.name for component in self.rewards.components]
        if len(set(names)) != len(names):
            raise ValueError("rewards.components: each component may appear once")
        if names and math.isclose(sum(abs(component.weight) for component in self.rewards.components), 0):
            raise ValueError("rewards.components: all weights are 0, so every reward would be 0")
        return self

    def _check_batches(self) -> None:
        batch, mini, micro = self.rollouts_per_step, self.optim.mini_batch_size, self.optim.micro_batch_size
        if mini > batch:
            raise ValueError(
                f"optim.mini_batch_size: a mini batch of {mini} is larger than the batch: one step has {batch} "
                "rollouts (prompts × generations)"
            )
        if mini and batch % mini:
            raise ValueError(
                f"optim.mini_batch_size: {batch} rollouts per step cannot be divided into mini batches of {mini}"
            )
        if micro and (mini or batch) % micro:
            what = f"mini batches of {mini}" if mini else f"{batch} rollouts per step (prompts × generations)"
            raise ValueError(f"optim.micro_batch_size: {what} cannot be divided into micro batches of {micro}")

    @property
    def updates_per_step(self) -> int:
        """Updates of the weights that are made of one sampling of rollouts."""
        mini = self.optim.mini_batch_size or self.rollouts_per_step
        return self.rollouts_per_step // mini * self.grpo.num_iterations

    @property
    def policies(self) -> list[Policy]:
        """The scripted policies that play; none where a model does."""
        return self.sample.policies if self.kind == "sample" else []

    @property
    def draws_tasks(self) -> bool:
        """Whether there is no dataset, so that the environment draws its tasks by seed."""
        return self.kind == "sample" and not self.data.train

    @property
    def group_size(self) -> int:
        """Rollouts of one prompt: one a scripted policy, else the generations."""
        return len(self.policies) or self.rollout.num_generations

    @property
    def rollouts_per_step(self) -> int:
        """Rollouts in flight in one step: prompts × rollouts of one prompt."""
        return self.rollout.prompts_per_step * self.group_size


def config_from_yaml(text: str) -> JobConfig:
    """Parse YAML into a config. Raises ``ConfigError`` for bad YAML, ``pydantic.ValidationError`` for bad options."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise ConfigError(f"This is not valid YAML: {exc}") from exc
    if not isinstance(raw, dict):
        raise ConfigError("The YAML must be a mapping of option groups, such as `model:` and `run:`.")
    return JobConfig.model_validate(raw)


_OTHER_BREAKS = frozenset("\r\x85\u2028\u2029")


class _Readable(yaml.SafeDumper):
    """YAML in which a text of several lines, such as code or a rubric, stands as it was written."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other line ends are lost in every style but the quoted one, which escapes them.
    style = '"' if _OTHER_BREAKS & set(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


def config_to_yaml(config: JobConfig, *, only_changed: bool = False) -> str:
    """The config as YAML. ``only_changed`` leaves out options that stand at their defaults."""
    data = config.model_dump(mode="json", exclude_defaults=only_changed)
    data = {"version": CONFIG_VERSION, "kind": config.kind, **data}
    return yaml.dump(data, Dumper=_Readable, sort_keys=False, allow_unicode=True)


def config_load(path: Path) -> JobConfig:
    """Read a config file; errors as in ``config_from_yaml``, or ``ConfigError`` if it cannot be read."""
    try:
        return config_from_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"The config file cannot be read: {exc}") from exc
