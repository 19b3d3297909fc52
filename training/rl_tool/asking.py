"""What the tool is asked: the parameters of its four actions, and the documented texts for what is wrong with them.

Texts are the documentation's own and in its language: programs compare with them, so they are not translated.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

BASE_MODEL = "Qwen/Qwen3-0.6B"
GSM8K = "openai/gsm8k"
MAX_EPOCHS = 10_000

Given = TypeVar("Given", bound=BaseModel)
Format = Literal["sft", "rl"]
Split = Literal["train", "test"]
RewardType = Literal["accuracy", "length_penalty", "step"]

# Parameter → what the documentation calls it, and what its choices are called.
_CHOICES = {
    "action": ("操作", "操作"),
    "algorithm": ("算法", "算法"),
    "format": ("数据格式", "格式"),
    "split": ("数据集分割", "分割"),
    "reward_type": ("奖励类型", "类型"),
}


class ToolError(Exception):
    """A call that cannot be answered; its text is the ``message`` of the answer."""


class Asked(BaseModel):
    """What all actions share. Numbers are numbers: no text is taken for one, and ``True`` is not 1."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dataset: str = Field(GSM8K, min_length=1)
    """A file, a folder with a file for each split, or a dataset of Hugging Face. Ours; the documentation has GSM8K."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further options of the job by their names (docs/configuration.md), such as ``run.seed``. Ours."""


class RewardAsked(BaseModel):
    """``create_reward``, and an entry of ``rewards``."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reward_type: RewardType
    penalty_weight: float = Field(0.001, ge=0, le=10)
    step_bonus: float = Field(0.1, ge=0, le=1)
    weight: float = Field(1.0, ge=-1000, le=1000)
    """Weight among several rewards. Ours."""


class TrainAsked(Asked):
    """``train``. ``max_samples`` ``None`` takes all rows; the learning rate is set by the algorithm."""

    algorithm: Literal["sft", "grpo"]
    model_name: str = Field(min_length=1)
    output_dir: str = Field(min_length=1)
    max_samples: int | None = Field(None, ge=1)
    num_epochs: int = Field(3, ge=1, le=MAX_EPOCHS)
    batch_size: int | None = Field(None, ge=1, le=4096)
    learning_rate: float | None = Field(None, gt=0, le=1)
    use_lora: bool = False
    lora_r: int = Field(16, ge=1, le=512)
    lora_alpha: int = Field(32, ge=1, le=1024)
    lora_dropout: float = Field(0.05, ge=0, lt=1)
    rewards: list[RewardAsked] = Field(default_factory=lambda: [RewardAsked(reward_type="accuracy")], min_length=1)
    """What GRPO is rewarded for, as ``create_reward`` takes it. Ours: the documented training cannot be told."""

    @property
    def rows_of_update(self) -> int:
        """The batch size: 4 rows for SFT, 2 prompts for GRPO."""
        return self.batch_size or {"sft": 4, "grpo": 2}[self.algorithm]

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self.learning_rate or {"sft": 2e-5, "grpo": 1e-5}[self.algorithm]


class LoadAsked(Asked):
    """``load_dataset``. The model is needed by ``rl`` alone, for its chat template."""

    format: Format = "sft"
    split: Split = "train"
    max_samples: int | None = Field(100, ge=1)
    model_name: str = Field(BASE_MODEL, min_length=1)


class EvaluateAsked(Asked):
    """``evaluate``, on the test split."""

    model_path: str = Field(min_length=1)
    max_samples: int | None = Field(100, ge=1)


def parsed(model: type[Given], given: dict[str, Any]) -> Given:
    """The parameters of an action. Raises ``ToolError`` with the text for the first thing that is wrong."""
    try:
        return model.model_validate(given)
    except ValidationError as exc:
        found = exc.errors(include_url=False, include_context=True)
        raise ToolError(_complaint(sorted(found, key=_rank)[0])) from None


def not_supported(name: str, value: Any, choices: list[str]) -> str:
    """The text for a value that is none of the choices."""
    what, plural = _CHOICES[name]
    return f"不支持的{what}: {value}。支持的{plural}: {', '.join(choices)}"


def _rank(error: ErrorDetails) -> int:
    """What is missing is said before what is wrong, and that before what is unknown."""
    return {"missing": 0, "extra_forbidden": 2}.get(error["type"], 1)


def _complaint(error: ErrorDetails) -> str:
    name = ".".join(str(part) for part in error["loc"])
    last = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "missing":
        return f"缺少必需参数: {name}"
    if error["type"] == "extra_forbidden":
        return f"不支持的参数: {name}"
    if error["type"] == "literal_error" and last in _CHOICES:
        expected = str(error.get("ctx", {}).get("expected", ""))
        return not_supported(
            last, error["input"], [part.strip("' ") for part in expected.replace(" or ", ", ").split(",")]
        )
    return f"参数 {name} 无效: {error['msg']} (收到 {str(error['input'])[:60]!r})"
