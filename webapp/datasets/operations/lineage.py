"""The lineage of a dataset version: its sources, and the datasets made of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import name_in
from training.data import FilterRule
from webapp.datasets.models import Dataset

MAX_CHILDREN = 50
MAX_IDS_SHOWN = 5


class Parent(NamedTuple):
    """A dataset that another was made of. ``dataset`` is ``None`` where it was deleted since."""

    reference: str
    sha256: str
    rows: int
    taken: int | None
    dataset: Dataset | None


class Lineage(NamedTuple):
    """The lineage as the page shows it."""

    words: str
    parents: list[Parent]
    children: list[Dataset]


def parent_of(dataset: Dataset) -> dict[str, Any]:
    """A parent as a lineage names it: by reference and content, which outlive it, and by id."""
    return {
        "id": str(dataset.pk),
        "reference": dataset.reference,
        "sha256": dataset.sha256,
        "rows": dataset.rows,
    }


def origin_note(dataset: Dataset, **options: Any) -> None:
    """Note which environment wrote a dataset, and with which options."""
    dataset.lineage = {"operation": "order", "options": options, "parents": []}
    dataset.save(update_fields=["lineage"])


def lineage_dict(dataset: Dataset) -> dict[str, Any]:
    """The lineage of any dataset; one without a note was uploaded."""
    kept = dataset.lineage or {"operation": "upload", "options": {"file_name": dataset.file_name}, "parents": []}
    return {**kept, "rows": dataset.rows, "sha256": dataset.sha256}


def children_of(dataset: Dataset) -> QuerySet[Dataset]:
    """The datasets made of a version, the oldest first."""
    found = Dataset.objects.filter(project=dataset.project, lineage__parents__contains=[{"id": str(dataset.pk)}])
    return found.order_by("created_at")


def lineage_of(dataset: Dataset) -> Lineage:
    """Parents, children, and the operation in words."""
    named = lineage_dict(dataset)
    parents = [item for item in named.get("parents") or [] if isinstance(item, dict)]
    ids = [item["id"] for item in parents if item.get("id")]
    there = {str(item.pk): item for item in Dataset.objects.filter(project=dataset.project, pk__in=ids)}
    return Lineage(
        words_of(str(named.get("operation")), named.get("options") or {}),
        [_parent_of(item, there.get(str(item.get("id")))) for item in parents],
        list(children_of(dataset)[:MAX_CHILDREN]),
    )


def _parent_of(item: dict[str, Any], dataset: Dataset | None) -> Parent:
    reference = name_in("dataset", str(item.get("reference", "")))
    return Parent(reference, str(item.get("sha256", "")), int(item.get("rows") or 0), item.get("taken"), dataset)


def words_of(operation: str, options: dict[str, Any]) -> str:
    """The operation, as a sentence."""
    if operation == "split":
        return _split_words(options)
    if operation == "subset":
        return _subset_words(options)
    if operation == "pick":
        ids = options.get("ids") or []
        shown = ", ".join(str(name) for name in ids[:MAX_IDS_SHOWN]) + ("…" if len(ids) > MAX_IDS_SHOWN else "")
        return _("Rows chosen by %(field)s: %(ids)s.") % {"field": options.get("field", "id"), "ids": shown}
    if operation == "filter":
        rules = [rule_words(FilterRule.model_validate(rule)) for rule in options.get("rules") or []]
        return _("Filtered: %(rules)s.") % {"rules": "; ".join(rules)}
    if operation == "mix":
        weights = " : ".join(f"{weight:g}" for weight in options.get("weights") or [])
        values = {"weights": weights, "seed": options.get("seed")}
        return _("Mixed with the weights %(weights)s; seed %(seed)s.") % values
    if operation == "cut":
        return _cut_words(options)
    return _origin_words(operation, options)


def _split_words(options: dict[str, Any]) -> str:
    share = round(100 * float(options.get("train_ratio", 0)), 2)
    values = {"percent": f"{share:g}", "seed": options.get("seed")}
    if options.get("part") == "validation":
        return _("Validation part of a split: shuffled with seed %(seed)s, the rows after %(percent)s%%.") % values
    return _("Training part of a split: shuffled with seed %(seed)s, the first %(percent)s%%.") % values


def _subset_words(options: dict[str, Any]) -> str:
    rows, seed = int(options.get("rows") or 0), options.get("seed")
    if seed is None:
        return ngettext("The first row.", "The first %(n)s rows.", rows) % {"n": rows}
    return ngettext("%(n)s row drawn with seed %(seed)s.", "%(n)s rows drawn with seed %(seed)s.", rows) % {
        "n": rows,
        "seed": seed,
    }


def _cut_words(options: dict[str, Any]) -> str:
    if options.get("cut") == "query":
        return _("Cut at the first assistant turn: the model works the whole task.")
    return _("Cut before the last assistant turn: the model makes one step.")


def _origin_words(operation: str, options: dict[str, Any]) -> str:
    if operation == "append":
        count = int(options.get("rows") or 0)
        return ngettext("%(n)s row added manually.", "%(n)s rows added manually.", count) % {"n": count}
    if operation == "pairs":
        return _pairs_words(options)
    if operation == "rollouts":
        return _rollouts_words(options)
    if operation == "order":
        return _("Written by the environment %(name)s.") % {"name": options.get("environment", "")}
    if operation == "upload":
        return _("Uploaded as %(name)s.") % {"name": options.get("file_name", "")}
    return operation


def _rollouts_words(options: dict[str, Any]) -> str:
    number, values = int(options.get("chosen") or 0), {"runs": options.get("runs", "")}
    if options.get("use") == "tasks":
        text = ngettext("The tasks of %(n)s rollout of %(runs)s.", "The tasks of %(n)s rollouts of %(runs)s.", number)
    else:
        text = ngettext("%(n)s rollout of %(runs)s.", "%(n)s rollouts of %(runs)s.", number)
    said = text % {"n": number, **values}
    if view := options.get("view"):
        said = f"{said} {_('Found by: %(view)s') % {'view': view}}"
    return said


def _pairs_words(options: dict[str, Any]) -> str:
    values = {"run": options.get("run", ""), "gap": f"{float(options.get('min_gap') or 0):g}"}
    said = _("Best against worst rollout of each group of the run %(run)s, at least %(gap)s apart.") % values
    if options.get("chosen"):
        chosen = int(options["chosen"])
        said += " " + ngettext("Of %(n)s group.", "Of %(n)s groups.", chosen) % {"n": chosen}
        said += f" {_('Found by: %(view)s') % {'view': options['view']}}" if options.get("view") else ""
    unread = int(options.get("unread") or 0)
    if not unread:
        return said
    text = ngettext(
        "%(n)s rollout with unreadable calls was skipped.",
        "%(n)s rollouts with unreadable calls were skipped.",
        unread,
    )
    return f"{said} {text % {'n': unread}}"


def rule_words(rule: FilterRule) -> str:
    """One rule of a filter, in words."""
    values = {"field": rule.field, "value": "", "negate": ""}
    parts = []
    if "equals" in rule.model_fields_set:
        template = _("%(field)s is not %(value)s") if rule.negate else _("%(field)s is %(value)s")
        parts.append(template % {**values, "value": repr(rule.equals)})
    if rule.contains is not None:
        template = _("%(field)s does not contain “%(value)s”") if rule.negate else _("%(field)s contains “%(value)s”")
        parts.append(template % {**values, "value": rule.contains})
    if rule.min_length is not None:
        template = (
            _("%(field)s is shorter than %(value)s") if rule.negate else _("%(field)s is at least %(value)s long")
        )
        parts.append(template % {**values, "value": rule.min_length})
    if rule.max_length is not None:
        template = _("%(field)s is longer than %(value)s") if rule.negate else _("%(field)s is at most %(value)s long")
        parts.append(template % {**values, "value": rule.max_length})
    return ", ".join(parts)
