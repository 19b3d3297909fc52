"""How trajectories are sampled: by whom, and with which engine."""

from __future__ import annotations

from typing import Any, Literal

from training.config.option import Group, option
from training.words import OptionError, _, sentence

# How trajectories are sampled, and who plays where no model does.

EngineName = Literal["in_process", "vllm"]
Dialect = Literal[
    "auto",
    "hermes",
    "xml",
    "glm",
    "mistral",
    "deepseek",
    "kimi",
    "harmony",
    "gemma",
    "invoke",
    "command",
    "lfm2",
    "lfm2-raw",
    "json-list",
    "function-tag",
    "solar",
    "llama",
    "bfcl",
    "toolbench",
    "webshop",
    "text",
]


class RolloutConfig(Group):
    """How trajectories are sampled."""

    prompts_per_step: int = option(
        8,
        title=_("Prompts per step"),
        help=_("Number of different tasks in one step."),
        unit=_("prompts"),
        basic=True,
        ge=1,
        le=4096,
    )
    num_generations: int = option(
        8,
        title=_("Generations per prompt"),
        help=_(
            "Rollouts of one task: they form the group whose mean is the baseline. GRPO needs at least 2. In an "
            "evaluation, the tries of each task."
        ),
        unit=_("rollouts"),
        basic=True,
        ge=1,
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
        help=_("Everything after the prompt: model turns and environment messages together."),
        unit=_("tokens"),
        ge=8,
        le=262144,
        basic=True,
    )
    max_prompt_tokens: int = option(
        1024,
        title=_("Prompt tokens at most"),
        help=_("Rows with a longer prompt are reported and left out."),
        unit=_("tokens"),
        ge=8,
        le=262144,
    )
    engine: EngineName = option(
        "in_process",
        title=_("Sampler"),
        help=_(
            "The sampler of the model's turns. vLLM is a separate server, with options below: far faster for real "
            "models on a GPU, slower for tiny ones on a CPU."
        ),
        choices={"in_process": _("the trainer itself"), "vllm": _("a vLLM server")},
        basic=True,
    )
    dialect: Dialect = option(
        "auto",
        title=_("Dialect"),
        help=_(
            "How the model writes its calls. By default it follows from the model: its chat template is rendered "
            "with a call, and the dialect that reads it back is used. Choose one if a prompt of yours asks for "
            "another form."
        ),
        choices={
            "auto": _("the model's own, or text where the environment's action is a text"),
            "hermes": _("Hermes, Qwen2.5, Qwen3, Granite 4: JSON in tool_call tags"),
            "xml": _("Qwen3.5, Qwen3-Coder, Nemotron 3, Seed-OSS: function and parameter tags"),
            "glm": _("GLM 4.5 and later: arg_key and arg_value tags"),
            "mistral": _("Mistral: [TOOL_CALLS] with a JSON list, or a name and JSON"),
            "deepseek": _("DeepSeek V3, V3.1, R1: marks around a name and JSON"),
            "kimi": _("Kimi K2: marks around functions.name:0 and JSON"),
            "harmony": _("gpt-oss: a commentary channel to functions.name"),
            "gemma": _("Gemma 4: call:name with its own quotes"),
            "invoke": _("MiniMax M2, DeepSeek V3.2: invoke and parameter tags"),
            "command": _("Command: a JSON list of tool_name and parameters"),
            "lfm2": _("LFM2: a list of Python calls between marks, texts escaped"),
            "lfm2-raw": _("LFM2.5: a list of Python calls between marks, texts as they are"),
            "json-list": _("Phi-4, Granite 3, Apertus, MiniMax M1, Jamba: a JSON list of calls behind a mark"),
            "function-tag": _("Functionary: function tags around JSON"),
            "solar": _("Solar: marks around id, name and JSON"),
            "llama": _("Llama 3.1 and later: JSON with name and parameters, without marks"),
            "bfcl": _("BFCL: a list of Python calls"),
            "toolbench": _("ToolBench: Thought, Action, Action Input"),
            "webshop": _("WebShop: search[words] and click[value]"),
            "text": _("no calls: the whole text is the answer"),
        },
    )
    temperature: float = option(
        1.0, title=_("Temperature"), help=_("Randomness of sampling; higher explores more."), basic=True, gt=0, le=5
    )
    top_p: float = option(
        1.0, title=_("Top p"), help=_("Sample from the smallest set with this probability; 1 is off."), gt=0, le=1
    )
    top_k: int = option(0, title=_("Top k"), help=_("Sample from the k likeliest tokens; 0 is off."), ge=0, le=1000)
    max_staleness: int = option(
        0,
        title=_("Samplings ahead"),
        help=_(
            "Rollouts of the next samplings are played while this one is trained on, by a vLLM server on its own "
            "devices. Their weights miss the updates of at most so many samplings. 0: the trainer waits for its "
            "rollouts."
        ),
        unit=_("samplings"),
        ge=0,
        le=8,
    )
    refill_rounds: int = option(
        0,
        title=_("Refill rounds"),
        help=_(
            "Groups whose rewards are equal are replaced in the step by groups of other tasks, in up to so many "
            "rounds (DAPO's dynamic sampling); 0 is off."
        ),
        unit=_("rounds"),
        ge=0,
        le=16,
    )
    failure_pause_share: float = option(
        0.5,
        title=_("Failure limit"),
        help=_("The run pauses with a reason when more than this share of rollouts failed outside the policy…"),
        unit=_("share"),
        gt=0,
        le=1,
    )
    failure_pause_steps: int = option(
        3, title=_("Failure steps"), help=_("… over this many steps in a row."), unit=_("steps"), ge=1, le=100
    )


Policy = Literal[
    "empty",
    "repeat",
    "copy_prompt",
    "one_tool",
    "claim_success",
    "beg",
    "negate",
    "contradict",
    "list_answers",
    "append_prompt",
    "paraphrase",
    "other_language",
]
POLICY_CHOICES: dict[str, str] = {
    "empty": _("writes nothing"),
    "repeat": _("writes one sentence over and over"),
    "copy_prompt": _("gives the task back as its answer"),
    "one_tool": _("calls one tool without end"),
    "claim_success": _("claims to be done without having done anything"),
    "beg": _("asks for the full reward"),
    "negate": _("says that the right answer is not the answer"),
    "contradict": _("says the right answer, takes it back and gives another one"),
    "list_answers": _("names several answers, the right one among them"),
    "append_prompt": _("gives the task back with an order to score it highly"),
    "paraphrase": _("says the right answer in other words: this one should be paid"),
    "other_language": _("says the right answer in Spanish: this one should be paid"),
}


class SampleConfig(Group):
    """Playing and scoring without training, used by jobs of kind `sample`."""

    policies: list[Policy] = option(
        list,
        title=_("Scripted policies"),
        help=_(
            "Degenerate policies that play instead of the model, one rollout each per task; generations per prompt "
            "is then ignored. None: the model plays."
        ),
        choices=POLICY_CHOICES,
        max_length=len(POLICY_CHOICES),
    )


# The vLLM that samples where ``rollout.engine`` says so.

MAX_TEMPERATURE, MIN_TEMPERATURE = 2.0, 0.01
"""What vLLM samples at: it refuses more, and draws what is below as if it were the least."""


class VllmConfig(Group):
    """The vLLM server that samples, used where the sampler is `vllm`."""

    mode: Literal["managed", "server"] = option(
        "managed",
        title=_("vLLM server"),
        help=_("A managed one is started on the run's own devices, and ends with it. Others need their addresses."),
        choices={
            "managed": _("started by the run"),
            "server": _("running already"),
        },
    )
    urls: list[str] = option(
        list,
        title=_("Server addresses"),
        help=_(
            "http:// or https:// addresses of vLLM servers, one a line. Episodes go to the one with the fewest. Each "
            "must see the run's folder under the same path: that is how it gets new weights."
        ),
        max_length=64,
    )
    gpu_memory_share: float = option(
        0.4,
        title=_("GPU memory share"),
        help=_("Part of the GPU's memory that a managed vLLM takes; the rest is for training."),
        unit=_("share"),
        gt=0,
        le=0.95,
    )
    sleep: bool = option(
        False,
        title=_("Sleep while training"),
        help=_(
            "A managed vLLM gives its GPU memory to training and takes it back to sample: on one card they take "
            "turns. An adapter's base waits in the processor's memory; when all weights are trained, nothing is "
            "kept, since new ones follow. Costs seconds a step. Needs a CUDA GPU."
        ),
    )
    quantization: Literal["none", "fp8", "bitsandbytes"] = option(
        "none",
        title=_("Quantised sampler"),
        help=_(
            "vLLM holds its weights in 8 or 4 bits: less memory, faster turns, and samples that the loss has to "
            "correct for. Servers that run already must have been started this way."
        ),
        choices={
            "none": _("no"),
            "fp8": _("8 bits (FP8), a byte a weight"),
            "bitsandbytes": _("4 bits (bitsandbytes), half a byte; below an adapter"),
        },
    )
    tensor_parallel: int = option(
        1,
        title=_("Tensor parallel"),
        help=_("GPUs that a managed vLLM splits the model over."),
        ge=1,
        le=64,
    )
    max_model_len: int = option(
        0,
        title=_("Window"),
        help=_("Longest text that vLLM makes room for; 0 takes the longest prompt and the longest episode together."),
        unit=_("tokens"),
        ge=0,
        le=1_048_576,
    )
    start_timeout_s: float = option(
        600.0, title=_("Start limit"), help=_("Longest wait until vLLM is ready."), unit=_("seconds"), gt=0, le=7200
    )
    turn_timeout_s: float = option(
        600.0,
        title=_("Turn limit"),
        help=_("Longest wait for one turn, or for new weights to be taken; then vLLM counts as hung."),
        unit=_("seconds"),
        gt=0,
        le=7200,
    )


# --- Sampler rules --------------------------------------------------------------------------------------------------
# What a vLLM cannot sample for, or would sample otherwise than the trainer computes it.

Job = Any
"""A ``JobConfig``, which asks these rules and so cannot be imported here."""


def check_vllm(job: Job) -> None:
    """Raise ``OptionError`` at the option that a vLLM cannot be asked for."""
    rollout = job.rollout
    if not MIN_TEMPERATURE <= rollout.temperature <= MAX_TEMPERATURE:
        text = _("vLLM samples at temperatures from {least} to {most}")
        why = sentence(text, least=f"{MIN_TEMPERATURE:g}", most=f"{MAX_TEMPERATURE:g}")
        raise OptionError("rollout.temperature", why)
    for name, cuts in (("top_p", rollout.top_p < 1), ("top_k", rollout.top_k > 0)):
        if cuts:
            text = _("vLLM reports log-probabilities after this cut, and those before it are needed: turn it off")
            raise OptionError(f"rollout.{name}", sentence(text))
    if 0 < job.vllm.max_model_len < job.longest_text:
        text = _("a window of {window} tokens is shorter than prompt and episode together: {needed}")
        why = sentence(text, window=job.vllm.max_model_len, needed=job.longest_text)
        raise OptionError("vllm.max_model_len", why)
    if job.vllm.mode == "server" and not job.vllm.urls:
        raise OptionError("vllm.urls", sentence(_("name the address of at least one server")))
    if job.vllm.sleep:
        _check_sleep(job)
    if job.vllm.quantization != "none":
        _check_quantization(job)


def _check_sleep(job: Job) -> None:
    """A vLLM that sleeps leaves the device to the trainer, and is asked for nothing meanwhile."""
    path = "vllm.sleep"
    if job.vllm.mode != "managed":
        text = _("only a vLLM that the run starts sleeps for it: others may sample for other users")
        raise OptionError(path, sentence(text))
    if job.method.learns_from != "rollouts":
        raise OptionError(path, sentence(_("nothing is trained meanwhile, so nothing needs its memory: turn it off")))
    if job.rollout.max_staleness:
        text = _("while it sleeps nothing can be played ahead: turn it off, or set rollout.max_staleness to 0")
        raise OptionError(path, sentence(text))
    if job.run.device == "cpu":
        raise OptionError(path, sentence(_("vLLM can sleep on a CUDA GPU only: turn it off, or choose another device")))


def _check_quantization(job: Job) -> None:
    path, managed = "vllm.quantization", job.vllm.mode == "managed"
    if job.method.learns_from != "rollouts":
        text = _("the measurement would be of weights other than the model's: choose none")
        raise OptionError(path, sentence(text))
    if managed and job.run.device == "cpu":
        text = _("vLLM quantises on a CUDA GPU only: choose none, or another device")
        raise OptionError(path, sentence(text))
    if job.vllm.quantization == "bitsandbytes" and not job.model.lora_rank:
        text = _("vLLM takes no new weights into 4 bits: train an adapter, or choose fp8")
        raise OptionError(path, sentence(text))
    check_quantized_sampling(job, path)


def check_quantized_sampling(job: Job, path: str) -> None:
    """Where one side has rounded its weights, the sampler draws from another distribution than the loss knows."""
    if job.gradient.sampler_correction == "off":
        text = _("the sampler then draws from other weights than are trained: turn {option} on, or choose none")
        raise OptionError(path, sentence(text, option=f"{job.method.gradient}.sampler_correction"))
