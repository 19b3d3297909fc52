"""The whole job: the rules that span its groups, the references that it may hold, and its YAML."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import yaml
from pydantic import Field, model_validator

from training.config import passed
from training.config.environment import EnvironmentConfig
from training.config.evaluation import EndpointConfig, EvaluateConfig
from training.config.learning import (
    CISPO_CEILING,
    UNCLIPPED_LOSSES,
    DpoConfig,
    GrpoConfig,
    PpoConfig,
    RlooConfig,
    SftConfig,
    check_credit,
)
from training.config.methods import DEFAULT_KIND, METHODS, Kind, Method
from training.config.model import BETA1, BETA2, EPSILON, DataConfig, ModelConfig, OptimConfig
from training.config.option import Group, option
from training.config.parts import CurriculumConfig, MixConfig, Stage, check_each, check_ends, refuse_mix
from training.config.rewards import RewardsConfig
from training.config.rollout import (
    Policy,
    RolloutConfig,
    SampleConfig,
    VllmConfig,
    check_quantized_sampling,
    check_vllm,
)
from training.config.run import HardwareConfig, ReportConfig, RunConfig
from training.errors import ConfigError
from training.words import OptionError, _, sentence

# How a config names an object of the web interface: ``model:math``, ``dataset:tasks@2``. The prefixes are here only.
# Any other text in such a place (``starter``, ``none``, a path, an id of Hugging Face) is no reference.

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


# The whole job, with the rules that span its groups.

CONFIG_VERSION = 1
VERL_TOKENS = 16_384
"""verl's own limit of the tokens of a micro batch."""


class JobConfig(Group):
    """Everything that defines one job. ``JobConfig()`` with a dataset and an environment is a runnable GRPO job."""

    version: Literal[1] = Field(CONFIG_VERSION, title="Config version")  # type: ignore[arg-type]
    kind: Kind = option(
        DEFAULT_KIND,
        title=_("Method"),
        help=_("Train the model, or only sample from it."),
        basic=True,
        choices={kind: method.title for kind, method in METHODS.items()},
    )
    model: ModelConfig = Field(default_factory=ModelConfig, title=_("Model"))
    data: DataConfig = Field(default_factory=DataConfig, title=_("Data"))
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig, title=_("Environment"))
    rewards: RewardsConfig = Field(default_factory=RewardsConfig, title=_("Rewards"))
    rollout: RolloutConfig = Field(default_factory=RolloutConfig, title=_("Rollout"))
    vllm: VllmConfig = Field(default_factory=VllmConfig, title="vLLM")
    grpo: GrpoConfig = Field(default_factory=GrpoConfig, title=_("GRPO"))
    rloo: RlooConfig = Field(default_factory=RlooConfig, title=_("RLOO"))
    ppo: PpoConfig = Field(default_factory=PpoConfig, title=_("PPO"))
    dpo: DpoConfig = Field(default_factory=DpoConfig, title=_("DPO"))
    sft: SftConfig = Field(default_factory=SftConfig, title=_("SFT"))
    sample: SampleConfig = Field(default_factory=SampleConfig, title=_("Sample"))
    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig, title=_("Evaluation"))
    endpoint: EndpointConfig = Field(default_factory=EndpointConfig, title=_("Endpoint"))
    optim: OptimConfig = Field(default_factory=OptimConfig, title=_("Optimiser"))
    mix: MixConfig = Field(default_factory=MixConfig, title=_("Mix"))
    curriculum: CurriculumConfig = Field(default_factory=CurriculumConfig, title=_("Curriculum"))
    hardware: HardwareConfig = Field(default_factory=HardwareConfig, title=_("Hardware"))
    run: RunConfig = Field(default_factory=RunConfig, title=_("Run"))
    report: ReportConfig = Field(default_factory=ReportConfig, title=_("Other trackers"))

    @model_validator(mode="after")
    def _check_together(self) -> JobConfig:
        """Rules that span options; each error names the one that a form shows it next to."""
        if self.mix.parts:
            refuse_mix(self.method.learns_from, self.curriculum.stages, self.data, self.evaluate)
        if len(set(self.report.to)) != len(self.report.to):
            raise OptionError("report.to", sentence(_("each tracker may appear once")))
        if self.method.learns_from == "preferences" and self.dpo.label_smoothing and self.dpo.loss_type != "robust":
            raise OptionError(
                "dpo.label_smoothing", sentence(_("only the loss robust accounts for wrong pairs: set it to 0"))
            )
        if self.method.evaluates and self.run.max_hours:
            text = _("an evaluation plays all its tasks, so it has no time budget: take fewer tasks or tries")
            raise OptionError("run.max_hours", sentence(text))
        if self.method.trains:
            self._check_hardware()
        if self.method.trains and self.model.quantization != "none":
            self._check_quantized()
        if self.method.trains:
            self._check_optimizer()
        if self.method.trains and self.model.lora_rank and self.model.lora_rslora and not self.model.lora_alpha:
            text = _("with rsLoRA twice the rank would count more the higher the rank is: set an alpha, such as 16")
            raise OptionError("model.lora_alpha", sentence(text))
        if self.method.trains and self.optim.max_tokens_per_micro_batch:
            self._check_micro_tokens()
        if self.method.trains and self.optim.packing and self.method.learns_from != "rollouts":
            text = _("only methods that learn from rollouts pack them: set false; SFT has sft.packing")
            raise OptionError("optim.packing", sentence(text))
        if self.model.attention == "flash_attention_2" and self.run.device == "cpu":
            text = _("FlashAttention needs a CUDA GPU: choose another attention, or another device")
            raise OptionError("model.attention", sentence(text))
        self.data.check_draw(self.method.learns_from == "rollouts")
        if not self.method.plays:
            return self
        if len(set(self.sample.policies)) != len(self.sample.policies):
            raise OptionError("sample.policies", sentence(_("each policy may appear once")))
        if self.method.learns_from == "rollouts":
            self._check_batches()
            self._check_loss()
            check_credit(self.method.gradient, self.gradient, self.rewards)
            self._check_held_out()
            self._check_ahead()
        if self.rollout.max_turn_tokens > self.rollout.max_completion_tokens:
            raise OptionError(
                "rollout.max_turn_tokens", sentence(_("one turn cannot be longer than the whole episode"))
            )
        if self.samples_with_vllm:
            check_vllm(self)
        if self.endpoint.url and not self.endpoint.model:
            raise OptionError("endpoint.model", sentence(_("an endpoint needs the name of its model")))
        names = [component.name for component in self.rewards.components]
        if len(set(names)) != len(names):
            raise OptionError("rewards.components", sentence(_("each component may appear once")))
        if names and math.isclose(sum(abs(component.weight) for component in self.rewards.components), 0):
            raise OptionError("rewards.components", sentence(_("all weights are 0, so every reward would be 0")))
        if self.stages:
            check_ends(self.stages, self.run.max_steps, self.evaluate)
            check_each(("curriculum", "stages"), len(self.stages), self.stage)
        if self.mix.parts:
            check_each(("mix", "parts"), len(self.mix.parts), self.part)
        return self

    def _check_hardware(self) -> None:
        chosen = self.hardware
        if chosen.backend == "trl" and chosen.sampler_devices:
            text = _("TRL samples on the device that trains: set 0, or choose verl")
            raise OptionError("hardware.sampler_devices", sentence(text))
        if chosen.backend == "trl" and chosen.total > 1:
            text = _("TRL trains on one device here: choose verl, or one device on one host")
            raise OptionError("hardware.backend", sentence(text))
        if chosen.asks_gpu and self.run.device == "cpu":
            text = _("a run on the CPU has no GPU to ask for: leave this empty, or choose another device")
            raise OptionError("hardware.gpu_memory" if chosen.gpu_memory else "hardware.gpu_model", sentence(text))
        if chosen.by_verl and (self.method.learns_from, self.method.gradient) != ("rollouts", "grpo"):
            text = _("verl trains by GRPO here: {method} needs our own trainer, on one device")
            only_samplers = chosen.total > 1 and chosen.training == 1
            several = "hardware.sampler_devices" if only_samplers else "hardware.devices"
            option = "hardware.backend" if chosen.total == 1 else several
            raise OptionError(option, sentence(text, method=self.method.short))
        self._check_passed()

    def _check_passed(self) -> None:
        """What only verl has, where it trains, and Megatron, where it can be trained and read again."""
        chosen = self.hardware
        is_megatron = chosen.sharding == "megatron"
        if not chosen.by_verl and (is_megatron or chosen.verl_options):
            text = _("TRL trains this job: choose verl as the trainer, or leave this as it was")
            raise OptionError("hardware.sharding" if is_megatron else passed.PATH, sentence(text))
        if is_megatron and self.run.device == "cpu":
            text = _("Megatron needs CUDA GPUs: choose FSDP2, or another device")
            raise OptionError("hardware.sharding", sentence(text))
        if is_megatron and self.model.lora_rank:
            text = _("Megatron keeps an adapter in files that are not read here: choose FSDP2, or a LoRA rank of 0")
            raise OptionError("hardware.sharding", sentence(text))
        chosen.check_passed()

    def _check_optimizer(self) -> None:
        chosen = self.optim
        if chosen.optimizer in chosen.of_bitsandbytes and self.run.device == "cpu":
            text = _("{name} is bitsandbytes', which needs a CUDA GPU: choose another, or another device")
            raise OptionError("optim.optimizer", sentence(text, name=chosen.optimizer))
        if chosen.optimizer == "adafactor":
            usual = {"beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON}
            for name in (name for name, value in usual.items() if getattr(chosen, name) != value):
                text = _("Adafactor has neither β nor this ε: leave {usual}, or choose an AdamW")
                raise OptionError(f"optim.{name}", sentence(text, usual=f"{usual[name]:g}"))

    def _check_quantized(self) -> None:
        """What cannot be trained, or would be sampled from other weights, over a base of 4 bits."""
        if not self.model.lora_rank:
            text = _("weights of 4 bits cannot be trained, only an adapter above them: set a LoRA rank")
            raise OptionError("model.quantization", sentence(text))
        if self.run.device == "cpu":
            text = _("bitsandbytes' 4-bit layers need a CUDA GPU: choose another device, or no quantisation")
            raise OptionError("model.quantization", sentence(text))
        if self.samples_with_vllm:
            check_quantized_sampling(self, "model.quantization")

    def _check_batches(self) -> None:
        if self.rollout.num_generations < self.gradient.least_generations:
            text = _("a group needs at least 2 rollouts: with one there is no baseline, and nothing is learned")
            raise OptionError("rollout.num_generations", sentence(text))
        if self.rollouts_per_step < 2:
            raise OptionError("rollout.prompts_per_step", sentence(_("a step needs at least 2 rollouts")))
        batch, mini, micro = self.rollouts_per_step, self.optim.mini_batch_size, self.optim.micro_batch_size
        if mini > batch:
            text = _(
                "a mini batch of {mini} is larger than the batch: one step has {batch} rollouts (prompts × generations)"
            )
            raise OptionError("optim.mini_batch_size", sentence(text, mini=mini, batch=batch))
        if mini and batch % mini:
            text = _("{batch} rollouts per step cannot be divided into mini batches of {mini}")
            raise OptionError("optim.mini_batch_size", sentence(text, mini=mini, batch=batch))
        if micro and (mini or batch) % micro:
            of_mini = _("mini batches of {size} cannot be divided into micro batches of {micro}")
            of_step = _(
                "{size} rollouts per step (prompts × generations) cannot be divided into micro batches of {micro}"
            )
            why = sentence(of_mini if mini else of_step, size=mini or batch, micro=micro)
            raise OptionError("optim.micro_batch_size", why)

    def _check_micro_tokens(self) -> None:
        """A limit of tokens in place of one of rows, where no mean depends on which rows share a micro batch."""
        path = "optim.max_tokens_per_micro_batch"
        if self.method.learns_from != "rollouts":
            text = _("only methods that learn from rollouts batch them by tokens: set 0, and a micro batch instead")
            raise OptionError(path, sentence(text))
        if self.optim.micro_batch_size:
            text = _("a micro batch is limited by rollouts or by tokens: set one of them to 0")
            raise OptionError(path, sentence(text))
        chosen = self.gradient
        if isinstance(chosen, GrpoConfig) and chosen.loss_type == "bnpo":
            text = _("the loss bnpo needs a micro batch with a fixed number of rollouts: set 0")
            raise OptionError(path, sentence(text))
        if isinstance(chosen, GrpoConfig) and chosen.top_entropy_share < 1:
            text = _("the undecided tokens need a micro batch with a fixed number of rollouts: set 0")
            raise OptionError(path, sentence(text))
        if not isinstance(chosen, RlooConfig) and chosen.entropy_coef and not self.by_verl:
            text = _("the entropy bonus needs a micro batch with a fixed number of rollouts: set 0")
            raise OptionError(path, sentence(text))

    def _check_loss(self) -> None:
        """What the loss does not know would be left unused without a word."""
        chosen = self.gradient
        if isinstance(chosen, RlooConfig):
            self._check_rloo()
            return
        if isinstance(chosen, PpoConfig):
            self._check_ppo()
            return
        if chosen.loss_type == "cispo" and 0 < chosen.epsilon_high < 1:
            text = _("with the loss cispo this is the largest ratio itself: at least 1, or 0 for {usual}")
            raise OptionError("grpo.epsilon_high", sentence(text, usual=f"{CISPO_CEILING:g}"))
        if chosen.loss_type == "luspo" and chosen.importance_sampling != "sequence":
            text = _("the loss luspo compares whole rollouts: choose the ratio of the whole rollout")
            raise OptionError("grpo.importance_sampling", sentence(text))
        if chosen.loss_type == "vespo" and chosen.importance_sampling != "token":
            text = _("the loss vespo makes the ratio of the whole rollout by itself: choose the ratio of each token")
            raise OptionError("grpo.importance_sampling", sentence(text))
        if chosen.delta and chosen.loss_type in UNCLIPPED_LOSSES:
            text = _("the loss {loss} does not clip, so it has no ratio limit: set it to 0")
            raise OptionError("grpo.delta", sentence(text, loss=chosen.loss_type))
        if chosen.ref_sync_steps and not chosen.beta:
            text = _("without a KL weight there is no reference model that could follow: set β, or 0 here")
            raise OptionError("grpo.ref_sync_steps", sentence(text))
        if chosen.ref_sync_steps and self.model.lora_rank:
            text = _("with LoRA the reference is the base model without its adapter, which cannot follow: set 0 here")
            raise OptionError("grpo.ref_sync_steps", sentence(text))

    def _check_rloo(self) -> None:
        if self.updates_per_step > 1:
            text = _("RLOO makes one update of each sampling: set 0, and lower the prompts of a step instead")
            raise OptionError("optim.mini_batch_size", sentence(text))
        if self.rewards.aggregation != "sum_then_normalize":
            text = _("RLOO compares the sum of the components with the other rollouts of the group: choose the sum")
            raise OptionError("rewards.aggregation", sentence(text))

    def _check_ppo(self) -> None:
        if self.rewards.aggregation != "sum_then_normalize":
            text = _("PPO compares the sum of the components with what its values expect: choose the sum")
            raise OptionError("rewards.aggregation", sentence(text))
        if self.rewards.signal != "all":
            text = _("PPO compares rollouts with values and not within groups, so all of them teach: choose all")
            raise OptionError("rewards.signal", sentence(text))

    def _check_held_out(self) -> None:
        chosen = self.evaluate
        if chosen.every and not (chosen.share or chosen.data):
            raise OptionError("evaluate.share", sentence(_("say what is held out: a share, or a dataset of its own")))
        if chosen.share and chosen.data:
            text = _("choose a share of the dataset or a dataset of its own, not both")
            raise OptionError("evaluate.data", sentence(text))

    def _check_ahead(self) -> None:
        if self.rollout.max_staleness and self.rollout.engine != "vllm":
            text = _("the trainer samples from the weights that it trains, so it cannot do both at once: choose vLLM")
            raise OptionError("rollout.max_staleness", sentence(text))

    @property
    def method(self) -> Method:
        """The row of the job's kind in the table of methods."""
        return METHODS[self.kind]

    @property
    def stages(self) -> list[Stage]:
        """The stages of the run; none where it has but one course."""
        return self.curriculum.stages if self.method.learns_from == "rollouts" else []

    def stage(self, number: int) -> JobConfig:
        """The job of a stage, counted from 1: the run's options with its own laid over them, and no stages."""
        return JobConfig.model_validate(self.stages[number - 1].laid_over(self._base_options))

    def part(self, number: int) -> JobConfig:
        """The job of a part of a mix, counted from 1: the run's options with its own laid over them, and no mix."""
        return JobConfig.model_validate(self.mix.parts[number - 1].laid_over(self._base_options))

    @property
    def _base_options(self) -> dict[str, Any]:
        return self.model_dump(exclude={"curriculum", "mix"})

    @property
    def courses(self) -> list[JobConfig]:
        """What a job is made of: the jobs of its stages, one after the other, or those of the parts of its mix, or the
        job itself."""
        return list(self.named_courses.values())

    @property
    def named_courses(self) -> dict[str, JobConfig]:
        """The same under the names of the stages or parts; the job itself is under none."""
        if self.mix.parts:
            return {part.name: self.part(number) for number, part in enumerate(self.mix.parts, start=1)}
        return {stage.name: self.stage(number) for number, stage in enumerate(self.stages, start=1)} or {"": self}

    @property
    def updates_per_step(self) -> int:
        """Updates of the weights that are made of one sampling of rollouts."""
        return self.mini_batches * self.gradient.num_iterations

    @property
    def needs_entropy(self) -> bool:
        """Whether an update by verl computes the entropy: for a bonus, or because the one before has changed it."""
        return self.grpo.entropy_coef != 0 or self.updates_per_step > 1

    @property
    def mini_batches(self) -> int:
        """Mini batches that the rollouts of a step are dealt to."""
        return self.rollouts_per_step // (self.optim.mini_batch_size or self.rollouts_per_step)

    @property
    def gradient(self) -> GrpoConfig | RlooConfig | PpoConfig:
        """The options of the policy gradient that a job makes of rollouts; GRPO's where it makes none."""
        groups: dict[str, GrpoConfig | RlooConfig | PpoConfig]
        groups = {"grpo": self.grpo, "rloo": self.rloo, "ppo": self.ppo}
        return groups[self.method.gradient]

    @property
    def learning_rate(self) -> float:
        """The learning rate that is trained with: the option, or what suits the method."""
        return self.optim.learning_rate or self.method.learning_rates[bool(self.model.lora_rank)]

    @property
    def by_verl(self) -> bool:
        """Whether verl trains the job, on Ray (docs/verl.md)."""
        return self.method.trains and self.hardware.by_verl

    @property
    def needs_gpu(self) -> bool:
        """Whether no processor will do."""
        return self.hardware.asks_gpu or (self.by_verl and self.hardware.sharding == "megatron")

    @property
    def devices(self) -> int:
        """How many devices the job has while it runs, on all hosts together."""
        return self.hardware.total if self.by_verl else 1

    @property
    def learns_values(self) -> bool:
        """Whether a value head is trained with the policy."""
        return self.method.gradient == "ppo"

    @property
    def policies(self) -> list[Policy]:
        """The scripted policies that play, one for each rollout of a task; none where a model does."""
        if self.method.evaluates:
            chosen = self.evaluate.policy
            return [] if chosen == "none" else [chosen] * self.rollout.num_generations
        return self.sample.policies if self.method.scripted else []

    @property
    def asks_endpoint(self) -> bool:
        """Whether an OpenAI-compatible endpoint plays in the model's place."""
        return self.method.scripted and bool(self.endpoint.url or self.names_endpoint) and not self.policies

    @property
    def names_endpoint(self) -> bool:
        """Whether the model is given as an endpoint of the project, which only the web can look up."""
        return kind_in(self.model.source) == "endpoint"

    @property
    def needs_model(self) -> bool:
        """Whether the model of the config is used: it is trained, or plays."""
        return not (self.policies or self.asks_endpoint)

    @property
    def samples_with_vllm(self) -> bool:
        """Whether a vLLM samples the model's turns."""
        return self.method.plays and self.needs_model and self.rollout.engine == "vllm"

    @property
    def samples_rounded(self) -> bool:
        """Whether a vLLM and the trainer have not the same weights, because those of either are quantised."""
        quantized = self.method.trains and self.model.quantization != "none"
        return self.samples_with_vllm and (quantized or self.vllm.quantization != "none")

    @property
    def longest_text(self) -> int:
        """Tokens of the longest prompt and the longest episode together."""
        return self.rollout.max_prompt_tokens + self.rollout.max_completion_tokens

    @property
    def tokens_of_micro_batch(self) -> int:
        """The most tokens of verl's micro batch where no number of rows is set; the longest rollout has room in it."""
        return self.optim.max_tokens_per_micro_batch or max(VERL_TOKENS, self.longest_text)

    @property
    def vllm_window(self) -> int:
        """Tokens of the longest text that vLLM makes room for."""
        return self.vllm.max_model_len or self.longest_text

    @property
    def held_out_samples(self) -> JobConfig:
        """The same job with the tries of a held-out task in place of a group's."""
        rollout = self.rollout.model_copy(update={"num_generations": self.evaluate.samples})
        return self.model_copy(update={"rollout": rollout})

    @property
    def draws_tasks(self) -> bool:
        """Whether there is no dataset, so that the environment draws its tasks by seed."""
        return self.method.draws_tasks and not self.data.train

    @property
    def group_size(self) -> int:
        """Rollouts of one prompt: one a scripted policy, else the generations."""
        return len(self.policies) or self.rollout.num_generations

    @property
    def rollouts_per_step(self) -> int:
        """Rollouts in flight in one step: prompts × rollouts of one prompt."""
        return self.rollout.prompts_per_step * self.group_size


# A job as YAML, and YAML as a job.

MAX_DEPTH = 64  # the scanner's time grows with the square of the depth
MAX_CHARACTERS = 1_000_000
CLEARER_BELOW = 4_000  # characters before the fault
# libyaml's scanner where PyYAML was built with it: ten times as fast, the same language.
SafeLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def yaml_bounded(text: str) -> Any:
    """Parse YAML that anybody may have written. Raises ``yaml.YAMLError``, also for what would take long.

    The events come first, and stop at ``MAX_DEPTH``: nothing is built of a text that is nested deeper. Aliases are
    refused, because with them a small text makes an enormous value.
    """
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        _check_events(text, SafeLoader)
        return yaml.load(text, Loader=SafeLoader)  # noqa: S506 - it is the safe one
    except yaml.MarkedYAMLError as exc:
        if exc.problem_mark is not None and exc.problem_mark.index < CLEARER_BELOW:
            _check_events(text, yaml.SafeLoader)  # says better what is wrong, and where, but is slow
        raise
    except (RecursionError, ValueError) as exc:
        raise yaml.YAMLError("it is nested too deeply or holds an impossible value") from exc


def yaml_nodes(text: str) -> yaml.Node | None:
    """The nodes with their lines, of a text that ``yaml_bounded`` has taken."""
    node: yaml.Node | None = yaml.compose(text, Loader=SafeLoader)
    return node


def _check_events(text: str, loader: type[Any]) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise yaml.YAMLError("it is nested too deeply or holds an impossible value")


def config_from_yaml(text: str) -> JobConfig:
    """Parse YAML into a config. Raises ``ConfigError`` for bad YAML, ``pydantic.ValidationError`` for bad options."""
    try:
        raw = yaml_bounded(text)
    except yaml.YAMLError as exc:
        raise ConfigError(f"This is not valid YAML: {exc}") from exc
    if not isinstance(raw, dict):
        raise ConfigError("The YAML must be a mapping of option groups, such as `model:` and `run:`.")
    return JobConfig.model_validate(raw)


_OTHER_BREAKS = frozenset("\r\x85\u2028\u2029")


class _Readable(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # libyaml takes a quarter as long
    """YAML in which a text of several lines, such as code or a rubric, is kept as it was written."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other line ends are lost in every style but the quoted one, which escapes them.
    style = '"' if _OTHER_BREAKS & set(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


def config_to_yaml(config: JobConfig, *, only_changed: bool = False) -> str:
    """The config as YAML. ``only_changed`` leaves out options that have their defaults."""
    data = config.model_dump(mode="json", exclude_defaults=only_changed)
    data = {"version": CONFIG_VERSION, "kind": config.kind, **data}
    return yaml.dump(data, Dumper=_Readable, sort_keys=False, allow_unicode=True)


def config_load(path: Path) -> JobConfig:
    """Read a config file; errors as in ``config_from_yaml``, or ``ConfigError`` if it cannot be read."""
    try:
        return config_from_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"The config file cannot be read: {exc}") from exc
