"""Template filters of datasets."""

from __future__ import annotations

from django import template

from webapp.datasets.quality import lost_words

register = template.Library()
register.filter("lost_words", lost_words)
