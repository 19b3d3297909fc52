"""``python -m training.rewards``: print the page docs/rewards.md."""

from training.rewards.reference import reference

if __name__ == "__main__":
    print(reference(), end="")
