"""What reading did with columns that no message holds by itself, and what of the rows is learned: counted over a file
and told once in its report."""

from __future__ import annotations

from typing import NamedTuple

from training.words import _

FACTS: dict[str, str] = {
    "system": _("{count} rows have a system text in a separate column; it becomes their first message."),
    "system_twice": _(
        "{count} rows have a system message and another text in a system column; the message counts, and the column is "
        "kept with the row."
    ),
    "completion": _("{count} rows have turns under `completion`; they follow those of `prompt`."),
    "input": _("{count} rows have text under `input`; it is placed below the instruction in the user message."),
    "history": _("{count} rows have earlier turns under `history`; they come before the question."),
    "preference": _(
        "{count} rows hold a preference pair. `chosen` and `rejected` are kept with the row, for DPO, and the "
        "conversation ends where the two begin to differ."
    ),
    "labelled": _(
        "{count} rows hold a completion with a label of good or bad. Both are kept with the row; the completion is not "
        "a turn of the conversation."
    ),
    "tools_elsewhere": _(
        "{count} rows have their tools in a column of another name, such as `tool_defs` or `functions`."
    ),
    "marked": _("{count} rows hold their conversation as one text; it is split at the marks of a chat template."),
    "native_calls": _(
        "{count} rows have calls in their texts, in the form of some family of models, such as between <tool_call> "
        "marks; they are read as calls, which each model's chat template writes in its own form."
    ),
    "native_results": _("{count} rows have results of tools between <tool_response> marks, which are taken off."),
    "rollouts": _(
        "{count} rows are recorded rollouts of NeMo Gym, read as tasks. Read them in the shape `sft` to learn their "
        "answers, or import the file as a run to see them."
    ),
    "played": _(
        "{count} rows are recorded rollouts of NeMo Gym, read with their answers; those with a reward of 0 or less are "
        "marked as bad examples."
    ),
    "rewarded": _(
        "{count} rows have a `reward` next to their conversation, as recorded rollouts have. SFT learns them "
        "whatever it is: filter the rows by it first."
    ),
    "media": _("{count} rows come with pictures, sound or video (`images`); only their texts are trained on."),
    "worse": _(
        "{count} rows hold a worse answer next to a conversation that ends with the better one "
        "(`rejected_response`). DPO compares the two; SFT learns the conversation."
    ),
    "null_tools": _(
        "{count} rows have tools with null parts, left by Arrow, which stores all tools with the same fields. They are "
        "taken out."
    ),
    "null_arguments": _(
        "{count} rows have calls with null arguments that their tools do not take, left by Arrow, which stores all "
        "calls with the same fields. They are taken out."
    ),
    "null_kwargs": _("{count} rows have tools in `tools_kwargs` that are null, left by Arrow. They are taken out."),
    "reasoning": _(
        "{count} rows hold reasoning separate from a turn's text. SFT learns it where the model's chat template "
        "writes it, and reports in the log where it does not."
    ),
    "bad": _("{count} rows are marked as bad examples (`label` false), which SFT leaves out."),
    "unweighted": _("{count} rows are marked as not learned (`weight` 0 or `trainable` false). SFT leaves them out."),
    "unlearned": _(
        "{count} rows have only assistant turns that are marked as not learned (`weight` 0, `loss` or `trainable` "
        "false). SFT leaves them out."
    ),
    "turns_off": _(
        "{count} rows have assistant turns that are marked as not learned (`weight` 0, `loss` or `trainable` false). "
        "SFT reads those turns and learns the others."
    ),
    "fractions": _("{count} rows have weights other than 0 and 1. SFT learns such a turn in full."),
    "others_on": _(
        "{count} rows ask to learn turns that the assistant did not write. SFT learns the assistant's turns only."
    ),
    "mask": _(
        "{count} rows have a `mask` at messages. Programs disagree on what it means, so it changes nothing; write "
        "`weight` 0 at turns that are not to be learned."
    ),
    "no_answer": _("{count} rows hold a search that found no valid answer; only the question and the tools are kept."),
}
"""Code → sentence with ``{count}``."""


class Ignored(NamedTuple):
    """A column of one row that was kept out of it. ``code`` is one of ``IGNORED``; ``detail`` fills its sentence."""

    column: str
    code: str
    detail: str = ""


IGNORED: dict[str, str] = {
    "value_type": _("Ignored column `{column}`: {count} rows hold values of type {detail}, which JSON cannot carry."),
    "not_finite": _("Ignored values of column `{column}`: {count} rows hold NaN or an infinity there."),
    "beside": _("Ignored `{column}`, which is not part of the list of rows."),
    "search": _("Ignored `{column}` of {count} rows: search steps that are not part of the answer."),
    "deep": _("Ignored column `{column}`: it is nested deeper than {detail} levels in {count} rows."),
}
"""Why a column was kept out of rows: reason → sentence."""
