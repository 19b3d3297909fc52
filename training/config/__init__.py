"""JobConfig: the only place of a job's options, units, defaults, limits and help texts.

The form, YAML import and export, the REST API, the command line and docs/configuration.md are made from it.
Every option is made by ``option()``, in the module of its group. Titles and help texts go through ``_`` so
that the web interface can show them in Chinese. Sources of defaults: TRL 1.16 ``GRPOConfig`` unless the help text says
otherwise.

Objects of the web interface are named by references (``dataset:<name>@<version>``, ``model:<name>``, ``run:<name>``,
``endpoint:<name>``, ``environment:<name>``, ``reward:<name>@<version>``). Launching resolves them into paths, URLs and
components, so the trainer only ever sees plain values; a standalone YAML writes those directly.
"""

from __future__ import annotations

from training.config.axes import (
    MOST_AXES,
    SEED,
    Axis,
    Mode,
    Point,
    Value,
    base_setting,
    nearest_option,
    points_of,
    scalar_options,
    typed_axes,
    value_at,
    written,
)
from training.config.environment import EnvironmentConfig, Protocol
from training.config.evaluation import EndpointConfig, EvaluateConfig, cost_of
from training.config.job import (
    CONFIG_VERSION,
    JobConfig,
    Reference,
    ReferenceKind,
    config_from_yaml,
    config_load,
    config_to_yaml,
    kind_in,
    name_in,
    yaml_bounded,
    yaml_nodes,
)
from training.config.learning import AdvantageScale, DpoConfig, GrpoConfig, PpoConfig, RlooConfig, SftConfig
from training.config.methods import DEFAULT_KIND, ENDPOINT_TILES, METHODS, Kind, Method, method_of
from training.config.model import DataConfig, ModelConfig, OptimConfig
from training.config.option import Group, option
from training.config.parts import (
    MAX_PARTS,
    PART_GROUPS,
    STAGE_GROUPS,
    CurriculumConfig,
    Laid,
    MixConfig,
    Part,
    Stage,
    StageGoal,
)
from training.config.rewards import RewardComponent, RewardGate, RewardSchedule, RewardsConfig, Signal
from training.config.rollout import POLICY_CHOICES, Dialect, Policy, RolloutConfig, SampleConfig, VllmConfig
from training.config.run import TRACKERS, ReportConfig, RunConfig, Tracker, TrackerName

__all__ = [
    "CONFIG_VERSION",
    "DEFAULT_KIND",
    "ENDPOINT_TILES",
    "MAX_PARTS",
    "METHODS",
    "MOST_AXES",
    "PART_GROUPS",
    "POLICY_CHOICES",
    "SEED",
    "STAGE_GROUPS",
    "TRACKERS",
    "AdvantageScale",
    "Axis",
    "CurriculumConfig",
    "DataConfig",
    "Dialect",
    "DpoConfig",
    "EndpointConfig",
    "EnvironmentConfig",
    "EvaluateConfig",
    "Group",
    "GrpoConfig",
    "JobConfig",
    "Kind",
    "Laid",
    "Method",
    "MixConfig",
    "Mode",
    "ModelConfig",
    "OptimConfig",
    "Part",
    "Point",
    "Policy",
    "PpoConfig",
    "Protocol",
    "Reference",
    "ReferenceKind",
    "ReportConfig",
    "RewardComponent",
    "RewardGate",
    "RewardSchedule",
    "RewardsConfig",
    "RlooConfig",
    "RolloutConfig",
    "RunConfig",
    "SampleConfig",
    "SftConfig",
    "Signal",
    "Stage",
    "StageGoal",
    "Tracker",
    "TrackerName",
    "Value",
    "VllmConfig",
    "base_setting",
    "config_from_yaml",
    "config_load",
    "config_to_yaml",
    "cost_of",
    "kind_in",
    "method_of",
    "name_in",
    "nearest_option",
    "option",
    "points_of",
    "scalar_options",
    "typed_axes",
    "value_at",
    "written",
    "yaml_bounded",
    "yaml_nodes",
]
