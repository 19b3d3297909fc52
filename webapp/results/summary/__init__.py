"""What a run that has ended came to, and what to try next: for the head of its page, the API and the command line."""
