"""People, teams, projects and roles; and what they are notified of."""
