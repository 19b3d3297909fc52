"""The results of an ended run, and what to try next: for the head of its page, the API and the command line."""
