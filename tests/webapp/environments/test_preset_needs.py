"""What presets need of built-in environments exists, with options that these take."""

from __future__ import annotations

import pytest

from training.presets import Preset, presets
from webapp.environments.builtin import arguments_clean, builtins


@pytest.mark.parametrize("preset", presets().values(), ids=lambda preset: preset.id)
def test_environments_and_datasets_of_a_preset_can_be_made(preset: Preset) -> None:
    for size in preset.sizes:
        needs = preset.needs_for(size)
        if needs.environment is not None:
            arguments_clean(builtins()[needs.environment.program].options, needs.environment.arguments)
        if needs.dataset is not None and not needs.dataset.program:
            assert needs.environment is not None
            command = builtins()[needs.environment.program].datasets[needs.dataset.command]
            arguments_clean(command.options, needs.dataset.arguments)
