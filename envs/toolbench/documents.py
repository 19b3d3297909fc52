"""Documents of APIs, as ToolBench's tool and query files hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from envs.toolbench.names import ApiName, change_name, plain_name, standardize

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
