"""Parts of every page: icons, the rail, figures and times."""
