"""Uploads and their versions: checked, read, cut, mixed and shown as a model sees them."""
