"""What every page is drawn with: icons, the rail, figures and times."""
