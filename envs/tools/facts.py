"""What the tools know: weather, time zones, and a small corpus to search. All of it is fixed and our own."""

from __future__ import annotations

from typing import NamedTuple

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
