"""One function for each advisory, from what is remembered to what is found now."""
