"""Tasks whose results must be combined: the calculator of the second turn needs what the first turn found."""

from __future__ import annotations

from collections.abc import Callable

from envs.tools.facts import CITIES, FACTS, City, Fact
from envs.tools.plan import Draw, PlannedCall, Task

_MEASURED = tuple(fact for fact in FACTS if fact.key_en.isdigit() and fact.key_en == fact.key_zh)


def _weather(draw: Draw, city: City) -> PlannedCall:
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
        [_weather(draw, warm), _weather(draw, cold)],
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
        [_weather(draw, one), _weather(draw, two)],
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
        [_weather(draw, city)],
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
        [_search(draw, fact)],
        f"{fact.key_en} * {count}",
        f"The number for {fact.query_en} times {count} is {{}}.",
        f"根据搜索和计算的结果，{fact.query_zh}的数字乘以 {count} 等于 {{}}。",
    )


def _search(draw: Draw, fact: Fact) -> PlannedCall:
    return PlannedCall("search", {"query": draw.say(fact.query_en, fact.query_zh)})


def _operand(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


CHAINED: dict[str, Callable[[Draw], Task]] = {
    "warmer": _warmer,
    "average": _average,
    "fahrenheit": _fahrenheit,
    "times": _times,
}
