"""Notifications for people and channels: events, the list in the app, mail, webhooks."""
