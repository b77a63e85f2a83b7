#!/usr/bin/env python3
"""Makes a site of small pages: generate.py DIR COUNT. The same call makes the same site."""

import os
import random
import sys

WORDS = [
    "archive", "body", "coding", "digest", "entry", "field", "gannet", "header", "index", "join",
    "kernel", "length", "memory", "network", "offset", "page", "query", "range", "socket", "table",
]


def page(number, rng):
    words = " ".join(rng.choice(WORDS) for _ in range(60))
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>Page {number}</title>"
        '<link rel=stylesheet href=/style.css></head><body><nav><a href="/">Front</a>'
        f'<a href="/{(number + 1) % 1000:03}/">Next</a></nav><h1>Page {number}</h1>'
        f"<p>{words}.</p><p>Number {number * 7919 % 1000003}.</p></body></html>\n"
    )


def main():
    root, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(1)
    for number in range(count):
        folder = f"{root}/{number % 1000:03}"
        if number < 1000:
            os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/{number}.html", "w", encoding="utf-8") as file:
            file.write(page(number, rng))


main()
