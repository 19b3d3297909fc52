"""Sampling engines: what turns prompt ids into sampled ids."""
