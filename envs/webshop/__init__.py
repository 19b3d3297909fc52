"""WebShop: find a product that fits an instruction, choose its options and buy it, on text pages.

A clean implementation of the environment that the paper "WebShop" describes and AgentGym serves: same pages, goal
order and reward formula. It plays the real data files where there are some and a generated catalogue where not.
"""

from __future__ import annotations

NAME = "webshop"
VERSION = "1.0.0"
DESCRIPTION = "WebShop: find a product that fits an instruction, choose its options and buy it, on text pages."
