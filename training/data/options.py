"""Choices about a dataset, as typed models for the form, the command line and the check of an upload."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.words import _

Name = Annotated[str, Field(min_length=1, max_length=200)]
Place = Annotated[str, Field(min_length=1, max_length=2000)]
"""A column, ``payload.ask``, or ``{payload.ask} ({payload.lang})``: see ``training/data/formats/columns.py``."""


class Options(BaseModel):
    """Base of all: unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


class Cut(StrEnum):
    """Where the conversation of a row is cut. Data of step prefixes ends with the turn that is to be learned."""

    NONE = "none"
    QUERY = "query"
    LAST_TURN = "last_turn"


CUT_WORDS = {
    Cut.NONE: _("Keep the whole conversation."),
    Cut.QUERY: _("From the query: cut at the first assistant turn, so that the model works the whole task."),
    Cut.LAST_TURN: _("Before the last assistant turn: the model makes one step from the history so far."),
}


class ColumnMapping(Options):
    """The roles of a table's columns. Columns that are not named stay with the row as they are.

    Each is a column, a dotted path to a field of an object in a column, or a text with such fields in braces.
    """

    messages: Place | None = Field(default=None, description=_("Column with a list of messages, or JSON text of one."))
    system: Place | None = Field(default=None, description=_("Column with the system text."))
    prompt: Place | None = Field(default=None, description=_("Column with the user's text."))
    input: Place | None = Field(default=None, description=_("Column with more text, placed below the user's text."))
    history: Place | None = Field(
        default=None, description=_("Column with earlier turns: pairs of a question and its answer, or messages.")
    )
    answer: Place | None = Field(
        default=None, description=_("Column with the expected answer; it becomes `ground_truth`, and a turn for SFT.")
    )
    tools: Place | None = Field(default=None, description=_("Column with function schemas, or JSON text of them."))
    category: Place | None = Field(default=None, description=_("Column with the category; it becomes `category`."))

    @model_validator(mode="after")
    def _has_a_text(self) -> ColumnMapping:
        if (self.messages is None) == (self.prompt is None):
            raise ValueError(_("map either `messages` or `prompt`"))
        if self.messages is not None and (self.input or self.history):
            raise ValueError(_("`input` and `history` go with `prompt`"))
        return self


class ReadOptions(Options):
    """How a file is read."""

    format: Annotated[str, Field(max_length=40)] = Field(
        default="", description=_("Name of the format; empty: detected.")
    )
    mapping: ColumnMapping | None = Field(
        default=None, description=_("Columns of a table; only with format `columns`.")
    )
    cut: Cut = Field(default=Cut.NONE, description=_("Where conversations are cut."))
    shape: Literal["rl", "sft"] = Field(
        default="rl",
        description=_("Questions with answers: `rl` keeps the answer separate, `sft` makes it the last turn."),
    )
    answers: Path | None = Field(
        default=None, description=_("BFCL: the answer file of the same split, or their folder.")
    )
    documents: Path | None = Field(default=None, description=_("BFCL: the folder of function documents; gives tools."))
    version: Literal["", "v3", "v4"] = Field(default="", description=_("BFCL version; empty detects it."))
    ids: Path | None = Field(default=None, description=_("StableToolBench: the file of query ids to keep."))


class CheckOptions(Options):
    """Further checks of each row."""

    answer_fields: list[Name] = Field(
        default_factory=list,
        max_length=20,
        description=_(
            "Each row needs at least one of these fields, because the reward compares with it, such as "
            "`ground_truth` or `reward_model.ground_truth`. Empty: not checked."
        ),
    )
    window: Annotated[int, Field(ge=0)] = Field(default=0, description=_("Longest row in tokens; 0: not checked."))
    categories: list[Name] = Field(
        default_factory=list, max_length=200, description=_("Known categories; empty: not checked.")
    )
    category_field: Name = Field(default="category", description=_("Field with a row's category."))
    other: Path | None = Field(default=None, description=_("A second dataset that must not contain the same tasks."))
    refuse: list[Name] = Field(
        default_factory=list, max_length=50, description=_("Codes of remarks that exclude a row.")
    )


class SplitOptions(Options):
    """Two parts: shuffled with a seed, then cut. Seed 42 is what ToolBench's converter uses."""

    train_ratio: Annotated[float, Field(ge=0, le=1)] = Field(default=0.9, description=_("Share of the first part."))
    seed: int = Field(default=42, description=_("Seed of the shuffle."))


class SubsetOptions(Options):
    """A number of rows: the first ones, or a draw by a seed in the order of the file."""

    rows: Annotated[int, Field(ge=1)] = Field(description=_("How many rows."))
    seed: int | None = Field(default=None, description=_("Seed of the draw; empty takes the first rows."))


class PickOptions(Options):
    """Rows by their ids, in the order of the file."""

    ids: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        min_length=1, max_length=10_000, description="The ids that are wanted."
    )
    field: Name = Field(default="id", description="Dotted path of the id in the row.")


class CutOptions(Options):
    """Conversations that end where the model is to continue."""

    cut: Literal[Cut.QUERY, Cut.LAST_TURN] = Field(description="Where conversations are cut.")


class FilterRule(Options):
    """One condition on a row. A field is a dotted path such as `extra_info.category`; `length` counts characters."""

    field: Name = Field(description=_("Dotted path in the row, or `turns`, `text` (all messages) or `tools`."))
    equals: str | int | float | bool | None = Field(default=None, description=_("The field has this value."))
    contains: str | None = Field(default=None, max_length=1000, description=_("The text holds this; a list has this."))
    min_length: Annotated[int, Field(ge=0)] | None = Field(default=None, description=_("Minimum length."))
    max_length: Annotated[int, Field(ge=0)] | None = Field(default=None, description=_("Maximum length."))
    negate: bool = Field(default=False, description=_("Keep the rows that do not meet it."))

    @model_validator(mode="after")
    def _asks_something(self) -> FilterRule:
        if self.model_fields_set.isdisjoint({"equals", "contains", "min_length", "max_length"}):
            raise ValueError(_("give a value that the field must equal or contain, or a limit for its length"))
        return self


class FilterOptions(Options):
    """Rows that meet all rules."""

    rules: list[FilterRule] = Field(min_length=1, max_length=20, description=_("All of them must be met."))


class MixOptions(Options):
    """Rows of several datasets, drawn by weight, until `rows` are drawn or one of the datasets is used up."""

    weights: list[Annotated[float, Field(gt=0, le=1e6)]] = Field(
        min_length=1, max_length=20, description=_("One weight for each dataset.")
    )
    rows: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description=_("Number of rows; empty means to the end.")
    )
    seed: int = Field(default=42, description=_("Seed of the draw."))
