"""From a form, a YAML text or a preset to a queued run."""
