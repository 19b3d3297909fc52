"""What the runs of a sweep show: which change of an option brought which gain."""
