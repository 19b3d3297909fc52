"""The playground: a person plays an environment by hand (see docs/environments.md)."""
