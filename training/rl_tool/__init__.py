"""HelloAgents' ``RLTrainingTool``: its calls, parameters, defaults, answers and error texts, over this engine.

Written from its documentation; none of its code is used. What differs on purpose is listed in docs/rl-tool.md.
"""

from training.rl_tool.tool import RLTrainingTool

__all__ = ["RLTrainingTool"]
