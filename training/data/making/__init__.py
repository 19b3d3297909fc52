"""New datasets made from others, and conversions to other formats."""
