"""What people and channels are told of: events, the list in the app, mail, webhooks."""
