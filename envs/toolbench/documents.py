"""Documents of APIs, as ToolBench's tool and query files hold them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

# --- Names ----------------------------------------------------------------------------------------------------------
# ToolBench's names: how categories, tools, APIs and functions are called in files, requests and prompts.

MAX_FUNCTION_NAME = 64
# A name becomes a file name, and those have at most 255 bytes.
MAX_FILE_NAME_BYTES = 200

_OUTSIDE = re.compile("[^\u4e00-\u9fa5a-zA-Z0-9_^]")
_UNDERSCORES = re.compile("_+")
_CATEGORY = re.compile(r"[\w^-]+")
_RESERVED = frozenset({"from", "class", "return", "false", "true", "id", "and"})
_CATEGORY_MARKS = str.maketrans({" ": "_", ",": "_", "/": "_"})


def standardize(text: str) -> str:
    """A tool's, API's or parameter's name as an identifier of Chinese characters, ``[a-z0-9_]`` and ``^``."""
    name = _UNDERSCORES.sub("_", _OUTSIDE.sub("_", text)).lower().strip("_")
    return f"get_{name}" if name[:1].isdigit() else name


def change_name(name: str) -> str:
    """A standardised name that Python or upstream's loader would take for a word of its own gets a prefix."""
    return f"is_{name}" if name in _RESERVED else name


def standardize_category(text: str) -> str:
    """A category as its folder is called. Runs of marks are halved once, as upstream does it."""
    return text.translate(_CATEGORY_MARKS).replace("__", "_")


def function_name(api: str, tool: str) -> str:
    """The function that a model calls: the last 64 characters of ``<api>_for_<tool>``, both standardised."""
    return f"{api}_for_{tool}"[-MAX_FUNCTION_NAME:]


class ApiName(NamedTuple):
    """An API by its standardised names."""

    category: str
    tool: str
    api: str

    @property
    def function(self) -> str:
        """The name of its function."""
        return function_name(self.api, self.tool)

    @property
    def is_safe(self) -> bool:
        """Whether the names may be looked up as files; a category is only replaced in three marks and may be ``..``."""
        return (
            bool(self.tool and self.api)
            and _CATEGORY.fullmatch(self.category) is not None
            and all(len(part.encode()) <= MAX_FILE_NAME_BYTES for part in (self.category + self.tool, self.api))
        )


def plain_name(category: str, tool: str, api: str) -> ApiName:
    """The names of a document or a query."""
    return ApiName(standardize_category(category), standardize(tool), change_name(standardize(api)))


def requested_name(category: str, tool: str, api: str) -> ApiName:
    """The names of a request: the tool may end with ``_for_<category>`` and the API with ``_for_<tool>``."""
    standard_category = standardize_category(category)
    standard_tool = standardize(tool.removesuffix(f"_for_{standard_category}"))
    standard_api = change_name(standardize(api))
    for ending in (tool, standard_tool):
        if ending:
            standard_api = standard_api.split(f"_for_{ending}")[0]
    return ApiName(standard_category, standard_tool, change_name(standard_api))


MAX_PARAMETERS = 128


def _text(value: Any) -> Any:
    """Some files have null where there is no text, and numbers for names."""
    return "" if value is None else str(value) if isinstance(value, int | float) else value


def _items(value: Any) -> Any:
    return [] if value is None else value


Text = Annotated[str, BeforeValidator(_text)]


class Parameter(BaseModel):
    """One parameter. ``type`` is the file's own word: STRING, NUMBER, BOOLEAN, ENUM and a dozen others."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Text
    type: Text = "STRING"
    description: Text = ""
    default: Any = ""

    @property
    def argument(self) -> str:
        """Its name in a call."""
        return change_name(standardize(self.name))


class ApiDocument(BaseModel):
    """One API; ``template_response`` is the shape of its answer where the file has one."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Text = Field(validation_alias=AliasChoices("api_name", "name"))
    description: Text = Field(default="", validation_alias=AliasChoices("api_description", "description"))
    required_parameters: Annotated[list[Parameter], BeforeValidator(_items)] = Field([], max_length=MAX_PARAMETERS)
    optional_parameters: Annotated[list[Parameter], BeforeValidator(_items)] = Field([], max_length=MAX_PARAMETERS)
    template_response: Any = Field(default=None, validation_alias=AliasChoices("template_response", "schema"))


class ToolDocument(BaseModel):
    """A file ``tools/<Category>/<tool>.json``."""

    model_config = ConfigDict(extra="ignore")

    tool_name: Text = ""
    tool_description: Text = ""
    api_list: list[ApiDocument] = []


@dataclass(frozen=True, slots=True)
class Api:
    """An API that can be called: its standardised names, its document and what is said of its tool."""

    name: ApiName
    document: ApiDocument
    tool_description: str = ""


class ListedApi(ApiDocument):
    """An API as a query lists it."""

    category_name: Text
    tool_name: Text

    @property
    def full_name(self) -> ApiName:
        """Its standardised names."""
        return plain_name(self.category_name, self.tool_name, self.name)

    def as_api(self) -> Api:
        """The API that it describes."""
        return Api(self.full_name, self)


# APIs as OpenAI function schemas, in exactly the form that ToolBench's models were trained on.

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
