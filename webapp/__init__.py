"""The Django application."""
