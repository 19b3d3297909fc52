"""The playground: a person plays an environment by hand (docs/environments.md tells how)."""
