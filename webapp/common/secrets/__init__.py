"""Keys, tokens and addresses that people entrust to a site: encrypted rows, set, read and forgotten in one place."""
