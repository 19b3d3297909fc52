"""Jobs of ours written for other trainers: ``python -m training export-verl config.yaml --output FOLDER``."""
