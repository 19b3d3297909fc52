"""Comments below a saved comparison: plain text, one's own to change, with and without scripts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from webapp.evaluation.sharing.models import Comment, SavedComparison
from webapp.evaluation.sharing.services import MOST_COMMENTS, comment_add
from webapp.people.teams.models import AuditEntry, Project, User

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


def _to(name: str, project: Project, item: SavedComparison | Comment) -> str:
    return reverse(name, args=[project.slug, item.pk])


def test_a_comment_keeps_its_lines_and_its_markup_is_text(
    client_for: Callable[..., Client], bob: User, rita: User, project: Project, saved: SavedComparison
) -> None:
    text = "one\r\ntwo <script>x9x()</script> & \u202e{{ x }}"
    answer = client_for(bob).post(_to("compare-comment", project, saved), {"text": f"  {text}\r\n"})
    assert answer["Location"] == f"/p/joust/compare/saved/{saved.pk}/#comments"
    assert Comment.objects.get().text == text.replace("\r\n", "\n")
    page = client_for(rita).get(_to("compare-saved", project, saved)).content.decode()
    assert "one\ntwo &lt;script&gt;x9x()&lt;/script&gt; &amp; " in page and "{{ x }}" in page
    assert "<script>x9x" not in page and "\u202e" not in page and "U+202E" in page
    assert "bob" in page and 'name="text"' not in page, "a viewer is offered a form"


def test_the_newest_is_last(
    client_for: Callable[..., Client], alice: User, bob: User, project: Project, saved: SavedComparison
) -> None:
    for user, text in ((bob, "first words"), (alice, "second words"), (bob, "third words")):
        comment_add(saved=saved, user=user, text=text)
    page = client_for(alice).get(_to("compare-saved", project, saved)).content.decode()
    assert page.index("first words") < page.index("second words") < page.index("third words")
    assert "3 comments" in page


def test_htmx_gets_the_comments_alone(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison
) -> None:
    client = client_for(bob)
    answer = client.post(_to("compare-comment", project, saved), {"text": "quick"}, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 200 and page.lstrip().startswith('<section class="card comments" id="comments">')
    assert "quick" in page and "<html" not in page
    refused = client.post(_to("compare-comment", project, saved), {"text": " \n "}, headers=HTMX)
    assert refused.status_code == 422 and "Write something first." in refused.content.decode()
    assert "<html" not in refused.content.decode()


@pytest.mark.parametrize(("text", "sentence"), [("", "Write something first."), ("\u00e4" * 4001, "these are 4001.")])
def test_without_scripts_a_refused_text_comes_back(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison, text: str, sentence: str
) -> None:
    answer = client_for(bob).post(_to("compare-comment", project, saved), {"text": text})
    page = answer.content.decode()
    assert answer.status_code == 422 and sentence in page and text in page and "<html" in page
    assert not Comment.objects.exists()
    assert (
        client_for(bob).post(_to("compare-comment", project, saved), {"text": "\r\n".join("x" * 2000)}).status_code
        == 302
    )


def test_only_its_author_changes_a_comment(
    client_for: Callable[..., Client], alice: User, bob: User, project: Project, saved: SavedComparison
) -> None:
    comment, other = (comment_add(saved=saved, user=bob, text=text) for text in ("yes", "another"))
    address = _to("compare-comment-edit", project, comment)
    assert client_for(alice).post(address, {"text": "no"}).status_code == 403, "an owner put words into bob's mouth"
    assert client_for(bob).post(address, {"text": ""}).status_code == 422
    assert client_for(bob).post(address, {"text": "yes"}).status_code == 302
    comment.refresh_from_db()
    assert (comment.text, comment.edited_at) == ("yes", None), "nothing was changed, so it is not marked as edited"
    assert client_for(bob).post(address, {"text": "perhaps"}).status_code == 302
    comment.refresh_from_db()
    assert comment.text == "perhaps" and comment.edited_at is not None
    other.refresh_from_db()
    assert (other.text, other.edited_at) == ("another", None)
    assert "edited" in client_for(alice).get(_to("compare-saved", project, saved)).content.decode()
    refused = client_for(bob).post(address, {"text": "x" * 4001}, headers=HTMX).content.decode()
    assert "these are 4001." in refused and '<details class="fold fold-plain" open>' in refused


def test_a_person_is_offered_what_they_may_do_with_a_comment(
    client_for: Callable[..., Client], alice: User, bob: User, rita: User, project: Project, saved: SavedComparison
) -> None:
    his, hers = comment_add(saved=saved, user=bob, text="his"), comment_add(saved=saved, user=alice, text="hers")
    offered = {}
    for person in (alice, bob, rita):
        page = client_for(person).get(_to("compare-saved", project, saved)).content.decode()
        offered[person.username] = {
            (act, comment.text)
            for act in ("edit", "delete")
            for comment in (his, hers)
            if f'action="{_to(f"compare-comment-{act}", project, comment)}"' in page
        }
    assert offered == {
        "alice": {("edit", "hers"), ("delete", "hers"), ("delete", "his")},
        "bob": {("edit", "his"), ("delete", "his")},
        "rita": set(),
    }


def test_its_author_and_owners_delete_it(
    client_for: Callable[..., Client], alice: User, bob: User, project: Project, saved: SavedComparison
) -> None:
    his, hers = comment_add(saved=saved, user=bob, text="his"), comment_add(saved=saved, user=alice, text="hers")
    assert client_for(bob).post(_to("compare-comment-delete", project, hers)).status_code == 403
    assert client_for(bob).get(_to("compare-comment-delete", project, his)).status_code == 405
    assert client_for(alice).post(_to("compare-comment-delete", project, his)).status_code == 302
    assert client_for(alice).post(_to("compare-comment-delete", project, hers), headers=HTMX).status_code == 200
    assert not Comment.objects.exists()
    rows = AuditEntry.objects.filter(action="comment_deleted").order_by("at")
    assert [(row.username, row.subject) for row in rows] == [("alice", "week 47 · bob"), ("alice", "week 47 · alice")]


def test_there_is_an_end_to_comments(
    client_for: Callable[..., Client], bob: User, project: Project, saved: SavedComparison
) -> None:
    Comment.objects.bulk_create(Comment(comparison=saved, text="x", created_by=bob) for _n in range(MOST_COMMENTS))
    answer = client_for(bob).post(_to("compare-comment", project, saved), {"text": "more"})
    assert answer.status_code == 422 and "There are 500 comments here" in answer.content.decode()
    Comment.objects.filter(pk=Comment.objects.values("pk")[:1]).delete()
    comment_add(saved=saved, user=bob, text="x" * 4000)
