"""``python -m training.presets``: print the page docs/presets.md."""

from training.presets.reference import reference

if __name__ == "__main__":
    print(reference(), end="")
