"""Chat: one model, loaded once, that answers people token by token (``python -m training chat``)."""
