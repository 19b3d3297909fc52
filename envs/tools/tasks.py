"""Seeded tasks. The starter ones are so short that a model of a million parameters learns them within a minute of CPU
time. The easy ones still have few templates with arguments verbatim in the question. The mixed ones add long
expressions, dates and two calls; the chained ones need results of one turn as arguments of the next.

Everything here is a pure function of its arguments and the same in every process.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Literal, get_args

from envs.tools.calculator import Language
from envs.tools.tools import CITIES, FACTS, SKIES, City, Context, Fact, run_tool

# What a task is made of: a question, the calls that solve it, and the answer.


@dataclass(frozen=True)
class PlannedCall:
    """A call of the gold solution. ``turn`` counts from 0; a call of turn 1 needs results of turn 0."""

    name: str
    arguments: dict[str, Any]
    turn: int = 0


@dataclass
class Task:
    """A dataset row with its gold solution; only ``row`` is ever shown to anyone."""

    question: str
    calls: list[PlannedCall]
    final: str
    contains: list[str]
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def turns(self) -> list[list[PlannedCall]]:
        """The calls by turn, in order."""
        return [list(calls) for _turn, calls in groupby(self.calls, key=lambda call: call.turn)]


@dataclass(frozen=True)
class Draw:
    """The inputs of a template: randomness, language, and the clock of the episode."""

    rng: random.Random
    language: Language
    now: datetime

    def say(self, en: str, zh: str) -> str:
        return zh if self.language == "zh" else en

    def city(self, city: City) -> str:
        return city.zh if self.language == "zh" else city.en

    def result(self, call: PlannedCall) -> str:
        return run_tool(call.name, call.arguments, Context(self.language, self.now)).text


# Tasks whose results must be combined: the calculator of the second turn needs what the first turn found.

_MEASURED = tuple(fact for fact in FACTS if fact.key_en.isdigit() and fact.key_en == fact.key_zh)


def _chained_weather(draw: Draw, city: City) -> PlannedCall:
    return PlannedCall("weather_query", {"city": draw.city(city)})


def _combined(draw: Draw, question: str, found: list[PlannedCall], expression: str, en: str, zh: str) -> Task:
    """``en`` and ``zh`` are the final sentences; ``{}`` in them is the value of the expression."""
    call = PlannedCall("calculator", {"expression": expression}, turn=1)
    value = draw.result(call)
    return Task(question, [*found, call], draw.say(en, zh).format(value), [value])


def _warmer(draw: Draw) -> Task:
    warm, cold = sorted(draw.rng.sample(CITIES, 2), key=lambda city: city.temperature, reverse=True)
    question = draw.say(f"How much warmer is {warm.en} than {cold.en}?", f"{warm.zh}比{cold.zh}高多少度？")
    return _combined(
        draw,
        question,
        [_chained_weather(draw, warm), _chained_weather(draw, cold)],
        f"{warm.temperature} - {_operand(cold.temperature)}",
        f"{warm.en} is {{}} degrees warmer than {cold.en}.",
        f"根据查询和计算的结果，{warm.zh}比{cold.zh}高{{}}度。",
    )


def _average(draw: Draw) -> Task:
    one, two = draw.rng.sample(CITIES, 2)
    question = draw.say(
        f"What is the average temperature of {one.en} and {two.en}?", f"{one.zh}和{two.zh}的平均气温是多少？"
    )
    return _combined(
        draw,
        question,
        [_chained_weather(draw, one), _chained_weather(draw, two)],
        f"({one.temperature} + {_operand(two.temperature)}) / 2",
        f"{one.en} and {two.en} have {{}}°C on average.",
        f"根据查询和计算的结果，{one.zh}和{two.zh}的平均气温是{{}}°C。",
    )


def _fahrenheit(draw: Draw) -> Task:
    city = draw.rng.choice(CITIES)
    question = draw.say(f"How many degrees Fahrenheit does {city.en} have now?", f"{city.zh}现在的气温是多少华氏度？")
    return _combined(
        draw,
        question,
        [_chained_weather(draw, city)],
        f"{_operand(city.temperature)} * 9 / 5 + 32",
        f"{city.en} has {{}} degrees Fahrenheit now.",
        f"根据查询和计算的结果，{city.zh}现在的气温是{{}}华氏度。",
    )


def _times(draw: Draw) -> Task:
    fact, count = draw.rng.choice(_MEASURED), draw.rng.randint(2, 9)
    question = draw.say(
        f"Search for {fact.query_en} and multiply the number you find by {count}.",
        f"搜索{fact.query_zh}，再把查到的数字乘以 {count}。",
    )
    return _combined(
        draw,
        question,
        [_chained_search(draw, fact)],
        f"{fact.key_en} * {count}",
        f"The number for {fact.query_en} times {count} is {{}}.",
        f"根据搜索和计算的结果，{fact.query_zh}的数字乘以 {count} 等于 {{}}。",
    )


def _chained_search(draw: Draw, fact: Fact) -> PlannedCall:
    return PlannedCall("search", {"query": draw.say(fact.query_en, fact.query_zh)})


def _operand(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


CHAINED: dict[str, Callable[[Draw], Task]] = {
    "warmer": _warmer,
    "average": _average,
    "fahrenheit": _fahrenheit,
    "times": _times,
}


Difficulty = Literal["starter", "easy", "mixed", "chained"]
LanguageChoice = Literal["en", "zh", "both"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
LANGUAGES: tuple[Language, ...] = get_args(Language)

MOST_DRAWS = 200  # for a task that was not there yet
_CLOCK_START = datetime(2025, 1, 1, tzinfo=UTC)
_CLOCK_SPAN_S = 365 * 24 * 3600
_STARTER = ("digits", "weather")
_EASY = ("sum", "sum", "weather", "time", "search")
_MIXED = ("expression", "expression", "function", "dated", "two_cities", "two_sums", "weather_and_time", "fact")


def _random(name: str) -> random.Random:
    """The same stream for the same name in every process."""
    return random.Random(name)  # noqa: S311 - reproducible on purpose, guards nothing


def clock_for(seed: int) -> datetime:
    """The simulated time of an episode: a second of the year 2025."""
    return _CLOCK_START + timedelta(seconds=_random(f"tools-clock:{seed}").randrange(_CLOCK_SPAN_S))


def draw_task(seed: int, language: LanguageChoice = "en", difficulty: Difficulty = "easy", index: int = 0) -> Task:
    """Task ``index`` of the series that ``seed`` names."""
    rng = _random(f"tools-task:{seed}:{index}:{language}:{difficulty}")
    chosen: Language = rng.choice(LANGUAGES) if language == "both" else language
    now = clock_for(rng.getrandbits(48))
    kinds: tuple[str, ...] = {"starter": _STARTER, "chained": tuple(CHAINED)}.get(difficulty, _EASY)
    if difficulty == "mixed" and rng.random() >= 0.4:
        kinds = _MIXED
    task = _KINDS[rng.choice(kinds)](Draw(rng, chosen, now))
    task.row = {
        "id": f"tools-{chosen}-{difficulty}-{seed}-{index}",
        "conversation": [{"role": "user", "content": task.question}],
        "answer": {"contains": task.contains, "tools": sorted({call.name for call in task.calls})},
        "language": chosen,
        # The answer to "what time is it" belongs to the row, so its clock does too: episodes of one row share it.
        "clock": now.isoformat(),
    }
    return task


def generate_tasks(
    count: int, seed: int = 0, language: LanguageChoice = "en", difficulty: Difficulty = "easy"
) -> Iterator[Task]:
    """``count`` tasks, each once as long as there are others; a longer series starts with the shorter one."""
    seen: set[str] = set()
    index, left = 0, MOST_DRAWS
    for _number in range(count):
        for _draw in range(left):
            task = draw_task(seed, language, difficulty, index)
            index += 1
            question = json.dumps(task.row["conversation"])
            if question not in seen:
                break
        else:
            left = 1  # there are no others
        seen.add(question)
        yield task


def _sum_of(draw: Draw, expression: str, templates: tuple[str, ...]) -> Task:
    call = PlannedCall("calculator", {"expression": expression})
    value = draw.result(call)
    final = draw.say(f"The result of {expression} is {value}.", f"根据计算器的结果，{expression} 等于 {value}。")
    return Task(draw.rng.choice(templates).format(expression), [call], final, [value])


def _small_expression(rng: random.Random) -> str:
    sign = rng.choice("+-*")
    if sign == "*":
        return f"{rng.randint(2, 12)} * {rng.randint(2, 12)}"
    high, low = sorted((rng.randint(1, 99), rng.randint(1, 99)), reverse=True)
    return f"{high} - {low}" if sign == "-" else f"{rng.choice((f'{high} + {low}', f'{low} + {high}'))}"


def _short_templates(draw: Draw) -> tuple[str, ...]:
    return ("计算 {}", "{} 等于多少？") if draw.language == "zh" else ("What is {}?", "Compute {}.")


def _digits(draw: Draw) -> Task:
    expression = f"{draw.rng.randint(1, 9)} {draw.rng.choice('+*')} {draw.rng.randint(1, 9)}"
    task = _sum_of(draw, expression, _short_templates(draw))
    value = task.contains[0]
    task.final = draw.say(f"The result is {value}, as computed.", f"根据计算器的结果，答案等于 {value}，计算完成。")
    return task


def _sum(draw: Draw) -> Task:
    return _sum_of(draw, _small_expression(draw.rng), _short_templates(draw))


def _expression(draw: Draw) -> Task:
    a, b, c, d = (draw.rng.randint(2, 99) for _ in range(4))
    shape = draw.rng.choice(
        ("({a} + {b}) * {c} - {d}", "{a} * {b} + {c}", "({a} + {b}) / {d}", "{a} - {b} * {c} + {d}")
    )
    return _sum_of(draw, shape.format(a=a, b=b, c=c, d=d), _long_templates(draw))


def _function(draw: Draw) -> Task:
    a, b, c = (draw.rng.randint(2, 20) for _ in range(3))
    shapes = ("sqrt({sq}) + {b} * {c}", "max({a}, {b}) * {c}", "round({a} / {b}, 2)", "2^{a}", "abs({a} - {b}) + {c}")
    return _sum_of(draw, draw.rng.choice(shapes).format(a=a, b=b, c=c, sq=a * a), _long_templates(draw))


def _long_templates(draw: Draw) -> tuple[str, ...]:
    if draw.language == "zh":
        return ("帮我计算一下 {} 等于多少？", "请算出 {} 的值。")
    return ("Can you work out {} for me?", "Please give me the value of {}.")


def _weather_call(draw: Draw, city: City, date: str | None = None) -> PlannedCall:
    return PlannedCall("weather_query", {"city": draw.city(city)} | ({"date": date} if date else {}))


def _weather_final(draw: Draw, city: City) -> str:
    en, zh = SKIES[city.sky]
    return draw.say(
        f"It is {city.temperature}°C and {en} in {city.en}.",
        f"根据查询结果，{city.zh}的气温是{city.temperature}°C，天气{zh}。",
    )


def _weather(draw: Draw) -> Task:
    city = draw.rng.choice(CITIES)
    question = draw.say(f"Weather in {city.en}?", f"{city.zh}的天气怎么样？")
    return Task(question, [_weather_call(draw, city)], _weather_final(draw, city), [str(city.temperature)])


def _dated(draw: Draw) -> Task:
    city = draw.rng.choice(CITIES)
    date = (draw.now + timedelta(days=draw.rng.randint(1, 9))).strftime("%Y-%m-%d")
    question = draw.say(f"What will the weather be in {city.en} on {date}?", f"{city.zh}在{date}的天气怎么样？")
    contains = [str(city.temperature), SKIES[city.sky][draw.language == "zh"]]
    return Task(question, [_weather_call(draw, city, date)], _weather_final(draw, city), contains)


def _two_cities(draw: Draw) -> Task:
    first, second = draw.rng.sample(CITIES, 2)
    question = draw.say(f"Weather in {first.en} and in {second.en}?", f"{first.zh}和{second.zh}的天气怎么样？")
    final = draw.say(
        f"{first.en} has {first.temperature}°C and {second.en} has {second.temperature}°C.",
        f"根据查询结果，{first.zh}的气温是{first.temperature}°C，{second.zh}是{second.temperature}°C。",
    )
    calls = [_weather_call(draw, first), _weather_call(draw, second)]
    return Task(question, calls, final, [str(first.temperature), str(second.temperature)])


def _two_sums(draw: Draw) -> Task:
    expressions = [_small_expression(draw.rng) for _ in range(2)]
    calls = [PlannedCall("calculator", {"expression": expression}) for expression in expressions]
    values = [draw.result(call) for call in calls]
    one, two = (f"{expression} = {value}" for expression, value in zip(expressions, values, strict=True))
    question = draw.say("Compute {} and {}.", "计算 {} 和 {}").format(*expressions)
    return Task(question, calls, draw.say(f"The results: {one} and {two}.", f"根据计算结果，{one}，{two}。"), values)


def _time_call(draw: Draw, city: City) -> tuple[PlannedCall, str]:
    call = PlannedCall("get_current_time", {"timezone": draw.city(city)})
    return call, draw.result(call)[11:16]


def _time(draw: Draw) -> Task:
    city = draw.rng.choice(CITIES)
    call, clock = _time_call(draw, city)
    question = draw.say(f"What time is it in {city.en}?", f"{city.zh}现在几点？")
    final = draw.say(f"The time in {city.en} is {clock}.", f"根据查询结果，{city.zh}现在的时间是{clock}。")
    return Task(question, [call], final, [clock])


def _weather_and_time(draw: Draw) -> Task:
    city = draw.rng.choice(CITIES)
    call, clock = _time_call(draw, city)
    question = draw.say(f"Weather and time in {city.en}?", f"{city.zh}的天气怎么样，现在几点？")
    final = draw.say(
        f"It is {clock} in {city.en}, with {city.temperature}°C.",
        f"根据查询结果，{city.zh}现在是{clock}，气温{city.temperature}°C。",
    )
    return Task(question, [_weather_call(draw, city), call], final, [str(city.temperature), clock])


def _search_for(draw: Draw, en: str, zh: str) -> Task:
    fact = draw.rng.choice(FACTS)
    query = draw.say(fact.query_en, fact.query_zh)
    final = draw.say(f"I found this: {fact.text_en}", f"根据搜索结果，我们可以知道：{fact.text_zh}")
    call = PlannedCall("search", {"query": query})
    return Task(draw.say(en, zh).format(query), [call], final, [draw.say(fact.key_en, fact.key_zh)])


def _search(draw: Draw) -> Task:
    return _search_for(draw, "Search for {}.", "搜索{}")


def _fact(draw: Draw) -> Task:
    return _search_for(draw, "Please find out something about {} for me.", "请帮我查一下关于{}的资料。")


_KINDS = {
    **CHAINED,
    "digits": _digits,
    "sum": _sum,
    "expression": _expression,
    "function": _function,
    "weather": _weather,
    "dated": _dated,
    "two_cities": _two_cities,
    "two_sums": _two_sums,
    "time": _time,
    "weather_and_time": _weather_and_time,
    "search": _search,
    "fact": _fact,
}
