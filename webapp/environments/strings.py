"""Titles and help texts of built-in servers' options: manifests cannot be translated, so their texts are
here."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

Text = str | Promise


class OptionText(NamedTuple):
    """One option in a form."""

    label: Text
    help: Text


# By program and option; ``""`` where it means the same in all of them.
OPTION_TEXTS: dict[tuple[str, str], OptionText] = {
    ("", "count"): OptionText(_("Rows"), _("Number of rows; fewer where the tasks run out.")),
    ("", "start"): OptionText(_("First task"), _("Leave some out to keep training and evaluation apart.")),
    ("", "seed"): OptionText(_("Seed"), _("Same seed, same rows.")),
    ("", "speech"): OptionText(
        _("Speech"), _("native: tool calls of the chat template. text: actions written in the message.")
    ),
    ("", "copies"): OptionText(
        _("Rows of each task"), _("With a careless share, each of them is independently careless or not.")
    ),
    ("", "careless"): OptionText(
        _("Careless share"),
        _("Share of conversations with a mistake, 0 to 1, so that training has something to correct."),
    ),
    ("bfcl", "errors"): OptionText(
        _("Error texts"), _("standard: the benchmark's own texts. augmented: with hints that a model can learn from.")
    ),
    ("bfcl", "compat"): OptionText(
        _("Score as EnvTuning does"), _("With that code's known faults, to compare with its published figures.")
    ),
    ("bfcl", "split"): OptionText(_("Split"), _("One of the benchmark's four parts, or all.")),
    ("bfcl", "count"): OptionText(_("Entries"), _("Of each split; a split has 200.")),
    ("bfcl", "start"): OptionText(_("First entry"), _("Of each split. Keep some for evaluation.")),
    ("bfcl", "turns"): OptionText(_("Turns at most"), _("Entries with more user turns are left out.")),
    ("bfcl", "calls"): OptionText(_("Calls at most"), _("Entries whose solution has more calls are left out.")),
    ("webshop", "data"): OptionText(
        _("Data folder"),
        _("With WebShop's files items_shuffle*.json and items_ins_v2*.json. None: a generated catalogue."),
    ),
    ("webshop", "products"): OptionText(_("Products"), _("Of the generated catalogue; 200,000 need 650 MB.")),
    ("webshop", "catalogue-seed"): OptionText(_("Catalogue seed"), _("Same seed, same generated products.")),
    ("webshop", "difficulty"): OptionText(
        _("Difficulty"), _("starter: generated products with short texts and one option, for tiny models.")
    ),
    ("webshop", "goals"): OptionText(
        _("Goals"), _("synthetic: made from products. human: written by people, from a data folder that has them.")
    ),
    ("webshop", "reward"): OptionText(
        _("Reward formula"), _("upstream: as published. fixed: with its bug fixed, so that every goal can reach 1.")
    ),
    ("toolbench", "difficulty"): OptionText(
        _("Difficulty"), _("starter: queries of the built-in world that one call answers, for tiny models.")
    ),
    ("toolbench", "tools"): OptionText(
        _("Tool documents"), _("Folder of <Category>/<tool>.json. Without data the built-in world is played.")
    ),
    ("toolbench", "cache"): OptionText(_("Recorded responses"), _("Folder of StableToolBench's cache.")),
    ("toolbench", "queries"): OptionText(_("Queries"), _("File with a list of queries and their APIs.")),
    ("toolbench", "query-ids"): OptionText(_("Query ids"), _("File with the ids to play; none plays all queries.")),
    ("toolbench", "max-turns"): OptionText(_("Turns"), _("An episode without Finish ends after this many turns.")),
    ("toolbench", "dialect"): OptionText(
        _("Dialect"), _("Where the error texts come from that the route /virtual returns.")
    ),
    ("tools", "difficulty"): OptionText(
        _("Difficulty"), _("starter: for tiny models. easy, mixed: longer. chained: results of one call feed the next.")
    ),
    ("tools", "language"): OptionText(_("Language"), _("Of the questions: English, Chinese or both.")),
}

COMMAND_TEXTS: dict[str, OptionText] = {
    "tasks": OptionText(_("Tasks"), _("Prompts that a GRPO run plays and the environment scores.")),
    "demonstrations": OptionText(_("Demonstrations"), _("Whole conversations that a supervised run imitates.")),
}


def command_text(name: str) -> OptionText:
    """The texts of a command that writes datasets."""
    return COMMAND_TEXTS.get(name) or OptionText(name, "")


def option_text(program: str, name: str) -> OptionText:
    """The texts of an option; its bare name where it has none."""
    return OPTION_TEXTS.get((program, name)) or OPTION_TEXTS.get(("", name)) or OptionText(name, "")
