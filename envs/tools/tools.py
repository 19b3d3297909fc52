"""The four tools: their schemas in OpenAI's function form, and what they answer in the language of the task."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from envs.tools.calculator import CalculatorError, Language, calculate

# What the tools know: weather, time zones, and a small corpus to search. All of it is fixed and our own.

DEFAULT_ZONE = {"en": "UTC", "zh": "Asia/Shanghai"}


class City(NamedTuple):
    """A place in both languages, its time zone and its weather, which never changes."""

    en: str
    zh: str
    zone: str
    temperature: int
    sky: str
    humidity: int


# The first four are the seed's own table; the rest is ours. Any other city gets DEFAULT_WEATHER, the seed's default.
CITIES = (
    City("Beijing", "北京", "Asia/Shanghai", 15, "sunny", 45),
    City("Shanghai", "上海", "Asia/Shanghai", 18, "cloudy", 60),
    City("Guangzhou", "广州", "Asia/Shanghai", 25, "rain", 75),
    City("Shenzhen", "深圳", "Asia/Shanghai", 26, "sunny", 55),
    City("Paris", "巴黎", "Europe/Paris", 12, "cloudy", 70),
    City("London", "伦敦", "Europe/London", 9, "rain", 80),
    City("Tokyo", "东京", "Asia/Tokyo", 17, "sunny", 50),
    City("Berlin", "柏林", "Europe/Berlin", 7, "cloudy", 65),
    City("Cairo", "开罗", "Africa/Cairo", 31, "sunny", 20),
    City("Sydney", "悉尼", "Australia/Sydney", 23, "windy", 58),
    City("Moscow", "莫斯科", "Europe/Moscow", -4, "snow", 85),
    City("Toronto", "多伦多", "America/Toronto", 2, "snow", 72),
)
DEFAULT_WEATHER = (20, "sunny", 50)
SKIES = {
    "sunny": ("sunny", "晴朗"),
    "cloudy": ("cloudy", "多云"),
    "rain": ("light rain", "小雨"),
    "windy": ("windy", "大风"),
    "snow": ("snow", "下雪"),
}
CITY_BY_NAME = {name.casefold(): city for city in CITIES for name in (city.en, city.zh)}


class Fact(NamedTuple):
    """One entry of the search corpus. ``key`` is the word or number that an answer must carry."""

    query_en: str
    text_en: str
    key_en: str
    query_zh: str
    text_zh: str
    key_zh: str


FACTS = (
    Fact("GRPO", "GRPO was introduced in 2024.", "2024", "GRPO", "GRPO 算法在 2024 年提出。", "2024"),
    Fact("PPO", "PPO was published in 2017.", "2017", "PPO", "PPO 算法在 2017 年发表。", "2017"),
    Fact("LoRA", "LoRA trains two low-rank matrices.", "low-rank", "LoRA", "LoRA 训练两个低秩矩阵。", "低秩"),
    Fact("Python", "Python was created by Guido.", "Guido", "Python", "Python 由 Guido 创造。", "Guido"),
    Fact("Linux", "Linux was started by Linus.", "Linus", "Linux", "Linux 由 Linus 开始编写。", "Linus"),
    Fact("Django", "Django is written in Python.", "Python", "Django", "Django 框架用 Python 写成。", "Python"),
    Fact("Redis", "Redis keeps its data in memory.", "memory", "Redis", "Redis 把数据放在内存里。", "内存"),
    Fact("Everest", "Everest is 8849 metres high.", "8849", "珠穆朗玛峰", "珠穆朗玛峰高 8849 米。", "8849"),
    Fact("Nile", "The Nile is 6650 km long.", "6650", "尼罗河", "尼罗河长 6650 公里。", "6650"),
    Fact("Yangtze", "The Yangtze is 6300 km long.", "6300", "长江", "长江长 6300 公里。", "6300"),
    Fact("Mars", "Mars has 2 moons.", "2", "火星", "火星有 2 颗卫星。", "2"),
    Fact("Jupiter", "Jupiter is the largest planet.", "largest", "木星", "木星是最大的行星。", "最大"),
    Fact("Venus", "Venus is the hottest planet.", "hottest", "金星", "金星是最热的行星。", "最热"),
    Fact("Moon", "The Moon is 384400 km away.", "384400", "月球", "月球离地球 384400 公里。", "384400"),
    Fact("Gold", "Gold has atomic number 79.", "79", "黄金", "黄金的原子序数是 79。", "79"),
    Fact("Iron", "Iron has atomic number 26.", "26", "铁", "铁的原子序数是 26。", "26"),
    Fact("Helium", "Helium has atomic number 2.", "2", "氦", "氦的原子序数是 2。", "2"),
    Fact("Light", "Light travels 299792 km a second.", "299792", "光速", "光速是每秒 299792 公里。", "299792"),
    Fact("Turing", "Turing was born in London.", "London", "图灵", "图灵出生在伦敦。", "伦敦"),
    Fact("Newton", "Newton was born in 1643.", "1643", "牛顿", "牛顿出生于 1643 年。", "1643"),
    Fact("Darwin", "Darwin was born in 1809.", "1809", "达尔文", "达尔文出生于 1809 年。", "1809"),
    Fact("Einstein", "Einstein was born in Ulm.", "Ulm", "爱因斯坦", "爱因斯坦出生在乌尔姆。", "乌尔姆"),
    Fact("Curie", "Curie won 2 Nobel prizes.", "2", "居里夫人", "居里夫人获得 2 次诺贝尔奖。", "2"),
    Fact("Mozart", "Mozart was born in Salzburg.", "Salzburg", "莫扎特", "莫扎特出生在萨尔茨堡。", "萨尔茨堡"),
    Fact("Whale", "The blue whale weighs 150 tonnes.", "150", "蓝鲸", "蓝鲸重约 150 吨。", "150"),
    Fact("Panda", "The panda eats bamboo.", "bamboo", "大熊猫", "大熊猫以竹子为食。", "竹子"),
    Fact("Spider", "A spider has 8 legs.", "8", "蜘蛛", "蜘蛛有 8 条腿。", "8"),
    Fact("Octopus", "An octopus has 3 hearts.", "3", "章鱼", "章鱼有 3 颗心脏。", "3"),
    Fact("Chess", "A chess board has 64 squares.", "64", "国际象棋", "国际象棋棋盘有 64 格。", "64"),
    Fact("Marathon", "A marathon is 42.195 km long.", "42.195", "马拉松", "马拉松全长 42.195 公里。", "42.195"),
    Fact("Piano", "A piano has 88 keys.", "88", "钢琴", "钢琴有 88 个琴键。", "88"),
    Fact("Bamboo", "Bamboo is a kind of grass.", "grass", "竹子", "竹子是一种禾草。", "禾草"),
)


MAX_ARGUMENT_LENGTH = 4096
MAX_ECHO = 60
DEFAULT_RESULTS = 5
MAX_RESULTS = 10


class ToolResult(NamedTuple):
    """The text of a tool message, and whether the call succeeded."""

    text: str
    ok: bool


class ToolError(Exception):
    """A call that fails, with its text in English and Chinese."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.texts = {"en": en, "zh": zh}


@dataclass(frozen=True)
class Context:
    """What a tool may know of the episode."""

    language: Language
    now: datetime


def error_text(language: Language, en: str, zh: str) -> str:
    """A failure as the reward components recognise it."""
    return f"错误: {zh}" if language == "zh" else f"Error: {en}"


def run_tool(name: str, arguments: dict[str, Any], context: Context) -> ToolResult:
    """Call one tool; every failure is a result whose text says why."""
    try:
        tool = _TOOLS.get(name)
        if tool is None:
            shown = name[:MAX_ECHO]
            raise ToolError(f"unknown tool: {shown}", f"未知工具: {shown}")
        if any(isinstance(value, str) and len(value) > MAX_ARGUMENT_LENGTH for value in arguments.values()):
            raise ToolError(
                f"an argument is longer than {MAX_ARGUMENT_LENGTH} characters",
                f"参数超过 {MAX_ARGUMENT_LENGTH} 个字符",
            )
        return ToolResult(tool(arguments, context), True)
    except ToolError as error:
        return ToolResult(error_text(context.language, error.texts["en"], error.texts["zh"]), False)


def _text_argument(arguments: dict[str, Any], name: str, en: str, zh: str) -> str:
    """A required argument as text; models write numbers where text is meant."""
    value = arguments.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value) if abs(value) < 1e100 else ""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ToolError(f"missing {en} argument", f"缺少{zh}参数")
    if not isinstance(value, str):
        raise ToolError(f"the {en} argument must be text", f"{zh}参数必须是文本")
    return value.strip()


def _calculator(arguments: dict[str, Any], context: Context) -> str:
    expression = _text_argument(arguments, "expression", "expression", "表达式")
    try:
        return calculate(expression)
    except CalculatorError as error:
        raise ToolError(f"cannot calculate: {error.text('en')}", f"计算错误: {error.text('zh')}") from None


def _weather_query(arguments: dict[str, Any], context: Context) -> str:
    city = _text_argument(arguments, "city", "city", "城市")[:MAX_ECHO]
    date = arguments.get("date")
    shown = date.strip()[:MAX_ECHO] if isinstance(date, str) else ""
    known = CITY_BY_NAME.get(city.casefold())
    temperature, sky, humidity = (known.temperature, known.sky, known.humidity) if known else DEFAULT_WEATHER
    if context.language == "zh":
        return f"{city}在{shown or '今天'}的天气：温度{temperature}°C，天气{SKIES[sky][1]}，湿度{humidity}%"
    when = f" on {shown}" if re.match(r"\d", shown) else f" {shown or 'today'}"
    return f"Weather in {city}{when}: {temperature}°C, {SKIES[sky][0]}, humidity {humidity}%"


def _search(arguments: dict[str, Any], context: Context) -> str:
    query = _text_argument(arguments, "query", "query", "查询")
    limit = arguments.get("max_results", DEFAULT_RESULTS)
    if isinstance(limit, str) and limit.isascii() and limit.isdigit() and len(limit) < 4:
        limit = int(limit)
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise ToolError("max_results must be a whole number", "max_results 必须是整数")
    hits = search_facts(query, context.language)[: max(1, min(limit, MAX_RESULTS))]
    lines = "".join(f"\n{number}. {text}" for number, text in enumerate(hits, 1))
    return f"找到 {len(hits)} 条相关结果{lines}" if context.language == "zh" else f"Found {len(hits)} results{lines}"


def search_facts(query: str, language: Language) -> list[str]:
    """Texts of the corpus that share words with the query, best first, ties in corpus order."""
    wanted = _terms(query)
    # A Chinese query has no word boundaries, so there a title may be anywhere in it.
    named: str | frozenset[str] = query.casefold() if language == "zh" else wanted
    scored = []
    for position, (title, text, terms) in enumerate(_index(language)):
        score = len(wanted & terms) + 2 * (title in named)
        if score:
            scored.append((-score, position, text))
    return [text for _, _, text in sorted(scored)]


@cache
def _index(language: Language) -> list[tuple[str, str, frozenset[str]]]:
    entries = [(fact.query_zh, fact.text_zh) if language == "zh" else (fact.query_en, fact.text_en) for fact in FACTS]
    return [(title.casefold(), text, _terms(f"{title} {text}")) for title, text in entries]


_WORDS = re.compile(r"[a-z0-9.\-]*[a-z0-9]|[\u4e00-\u9fff]+")
_COMMON = frozenset({"the", "a", "an", "is", "of", "in", "on", "for", "to", "and", "was", "what", "who", "how", "are"})


def _terms(text: str) -> frozenset[str]:
    """Words of Latin text and pairs of characters of Chinese text."""
    terms: set[str] = set()
    for word in _WORDS.findall(text.casefold()):
        if "\u4e00" <= word[0] <= "\u9fff":
            terms.update(word[i : i + 2] for i in range(len(word) - 1))
        elif word not in _COMMON:
            terms.add(word)
    return frozenset(terms)


def _get_current_time(arguments: dict[str, Any], context: Context) -> str:
    value = arguments.get("timezone")
    if value is None or value == "":
        value = DEFAULT_ZONE[context.language]
    if not isinstance(value, str):
        raise ToolError("time zone: must be text", "时区错误: 必须是文本")
    known = CITY_BY_NAME.get(value.strip().casefold())
    zone = known.zone if known else value.strip()
    if zone not in _zones():
        shown = value[:MAX_ECHO]
        raise ToolError(f"time zone: {shown} is not known", f"时区错误: 未知时区 {shown}")
    return context.now.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


_TOOLS: dict[str, Callable[[dict[str, Any], Context], str]] = {
    "calculator": _calculator,
    "weather_query": _weather_query,
    "search": _search,
    "get_current_time": _get_current_time,
}
TOOL_NAMES = tuple(_TOOLS)


def _schema(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


_SCHEMAS: dict[str, list[dict[str, Any]]] = {
    "en": [
        _schema("calculator", "Calculate", {"expression": _text("Arithmetic, e.g. 2 + 3 * 4")}, ["expression"]),
        _schema("weather_query", "Weather", {"city": _text("City"), "date": _text("Date, default today")}, ["city"]),
        _schema(
            "search",
            "Search facts",
            {
                "query": _text("Words to look for"),
                "max_results": {"type": "integer", "description": f"Results, default {DEFAULT_RESULTS}"},
            },
            ["query"],
        ),
        _schema("get_current_time", "Current time", {"timezone": _text("City or zone, e.g. Asia/Tokyo")}, []),
    ],
    "zh": [
        _schema("calculator", "计算", {"expression": _text("算式，如 2 + 3 * 4")}, ["expression"]),
        _schema("weather_query", "查询天气", {"city": _text("城市"), "date": _text("日期，默认今天")}, ["city"]),
        _schema(
            "search",
            "搜索资料",
            {
                "query": _text("要查找的词"),
                "max_results": {"type": "integer", "description": f"结果数，默认 {DEFAULT_RESULTS}"},
            },
            ["query"],
        ),
        _schema("get_current_time", "当前时间", {"timezone": _text("城市或时区，如 Asia/Tokyo")}, []),
    ],
}


def tool_schemas(language: Language) -> list[dict[str, Any]]:
    """The four schemas; callers must not change them."""
    return _SCHEMAS[language]
