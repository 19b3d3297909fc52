"""The front page, a project at a glance, and the pages of runs."""
