"""Pages above all rooms: the front page, a project at a glance, the workers."""
