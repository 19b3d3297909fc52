"""APIs as OpenAI function schemas, in exactly the form that ToolBench's models were trained on."""

from __future__ import annotations

from typing import Any

from envs.toolbench.documents import Api, Parameter

FINISH = "Finish"
GIVE_ANSWER, GIVE_UP = "give_answer", "give_up_and_restart"
MAX_DESCRIPTION = 256
TYPES = {"NUMBER": "integer", "STRING": "string", "BOOLEAN": "boolean"}

FINISH_SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": FINISH,
        "description": (
            "Ends the task, and must be called at its end. Give the answer once you have what the user asked for; the "
            "user sees nothing but the final answer. If you cannot get any further, give up."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "return_type": {"type": "string", "enum": [GIVE_ANSWER, GIVE_UP]},
                "final_answer": {"type": "string", "description": f'The answer; needed with "{GIVE_ANSWER}".'},
            },
            "required": ["return_type"],
        },
    },
}


def function_schema(api: Api) -> dict[str, Any]:
    """One function. As upstream, an API without required parameters shows none of its optional ones either."""
    name, document = api.name.function, api.document
    description = f'This is the subfunction for tool "{api.name.tool}", you can use this tool.'
    about = document.description.strip()
    if about:
        about = about.replace(document.name, name) if document.name else about
        description += f'The description of this function is: "{about[:MAX_DESCRIPTION]}"'
    required = document.required_parameters
    optional = document.optional_parameters if required else []
    parameters = {
        "type": "object",
        "properties": {parameter.argument: _property(parameter) for parameter in (*required, *optional)},
        "required": [parameter.argument for parameter in required],
        "optional": [parameter.argument for parameter in optional],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _property(parameter: Parameter) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": TYPES.get(parameter.type, "string"),
        "description": parameter.description[:MAX_DESCRIPTION],
    }
    if str(parameter.default):
        shown["example_value"] = parameter.default
    return shown
