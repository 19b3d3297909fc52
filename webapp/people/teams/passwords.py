"""What a new password ends. It is a validator because Django calls validators for every password that was set, by a
page, a form or a command, and not for one that was only hashed again."""

from __future__ import annotations

from typing import Any

from webapp.people.teams.login_links import login_links_end
from webapp.people.teams.models import TokenEnd, User
from webapp.people.teams.tokens import tokens_end


class EndsCredentials:
    """Refuses no password; tokens and links of the account end with the old one."""

    def validate(self, password: str, user: Any = None) -> None:
        """Accept every password."""

    def get_help_text(self) -> str:
        """Empty: it sets no rule for passwords."""
        return ""

    def password_changed(self, password: str, user: User) -> None:
        """End the person's tokens and the login links that were not used. Their other sessions end by themselves."""
        login_links_end(user)
        tokens_end(user, TokenEnd.PASSWORD)
