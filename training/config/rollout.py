"""How trajectories are sampled, and who plays where no model does."""

from __future__ import annotations

from typing import Literal

from training.config.option import Group, option
from training.words import _

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
        1.0, title=_("Temperature"), help=_("Randomness of sampling; higher explores more."), gt=0, le=5
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
