"""The lists of models and of checkpoints, drawn by themselves: what each row offers to whom."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

from django.utils import timezone

from tests.markup import drawn, words

PK, NOW = uuid.UUID(int=1), timezone.now()
WORDS = {f"{name}_word": name for name in ("register", "chat", "final", "step", "size", "saved")}


def _checkpoints(item: dict[str, Any] | None = None, **context: Any) -> str:
    one = {"pk": PK, "run_id": PK, "run": {"name": "run 1"}, "step": 7, "final": False, "bytes": 9, "created_at": NOW}
    one |= {"models": {"all": []}, **(item or {})}

    class Page(list[Any]):
        paginator = SimpleNamespace(count=1, num_pages=1)

        @property
        def object_list(self) -> list[Any]:
            return list(self)

    page = Page([one] if context.pop("some", True) else [])
    return drawn("registry/_checkpoints.html", page=page, **WORDS, **context)


def test_a_checkpoint_is_registered_by_editors_and_deleted_by_owners() -> None:
    def acts(**context: Any) -> str:
        return words(_checkpoints(**context).split('class="cell-actions">')[1])

    assert acts() == "" and acts(can_edit=True) == "register chat"
    owner = _checkpoints(can_edit=True, is_owner=True)
    assert f"/models/checkpoints/{PK}/delete/" in owner and "/delete/" not in _checkpoints(can_edit=True)
    registered = {"models": {"all": [{"pk": PK, "name": "small"}]}}
    assert acts(item=registered) == "small" and acts(item=registered, can_edit=True) == "small chat"
    assert "final" in words(_checkpoints({"final": True})) and "final" not in words(_checkpoints())
    assert "Nothing trained yet" in _checkpoints(some=False) and "Nothing trained yet" not in _checkpoints()


def _models(model: dict[str, Any] | None = None, **context: Any) -> str:
    one = {"pk": PK, "name": "small", "reference": "model:small", "kind": "hub", "get_kind_display": "hub", "tags": []}
    one |= {"source": "a/b", "created_at": NOW, **(model or {})}

    class Models(list[Any]):
        paginator = SimpleNamespace(num_pages=context.pop("pages", 1))

        @property
        def object_list(self) -> list[Any]:
            return list(self)

    models = Models([one] if context.pop("some", True) else [])
    empty = SimpleNamespace(paginator=SimpleNamespace(count=0, num_pages=1), object_list=[])
    return drawn("registry/list.html", models=models, page=empty, **context)


def test_a_model_is_used_by_editors_and_downloaded_by_every_member() -> None:
    page = _models()
    assert "Chat" not in words(page) and "Register a model" not in page and "<form" not in page
    own = words(_models(can_edit=True))
    assert "Chat Evaluate Train Remove small" in own and "Register a model" in own
    downloads = ["/download" in _models({"kind": kind}) for kind in ("run", "folder", "hub")]
    assert downloads == [True, True, False]


def test_a_model_says_where_it_came_from() -> None:
    assert "small model:small hub a/b " in words(_models())
    revised = words(
        _models({"revision": "0123456789abcdef", "tags": ["best"], "mark": "x", "get_mark_display": "good"})
    )
    assert "small good best hub a/b 0123456789ab… " in revised
    checkpoint = {"run_id": PK, "run": {"name": "run 1"}, "step": 7}
    assert "hub run 1 · step 7 " in words(_models({"checkpoint": checkpoint}))
    assert "hub – " in words(_models({"source": ""}))


def test_the_starter_and_folders_are_offered_to_editors() -> None:
    starter = words(_models(starter=True, some=False))
    assert "always available" in starter and "Evaluate" not in starter and "No model matches" not in starter
    assert "always available Evaluate Train" in words(_models(starter=True, can_edit=True))
    assert "starter" not in words(_models()) and "No model matches" in _models(some=False)
    folders = [{"name": "mine", "bytes": 9}]
    assert "Folders on this server 1 mine" in words(_models(folders=folders))
    assert "?kind=folder" in _models(folders=folders, can_edit=True) and "?kind=folder" not in _models(folders=folders)
    assert "Folders on this server" not in _models() and "/models" in _models(models_dir="/models")


def test_models_are_searched_once_they_take_more_than_a_page() -> None:
    assert [' type="search"' in page for page in (_models(), _models(q="x"))] == [False, True]
