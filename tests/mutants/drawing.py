"""Which faults are tried: those of chosen.json, and places in an order that a seed decides, over kinds and files.

The order comes from hashes of seed, kind, file and text, so that an edit elsewhere leaves the others where they are.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import rules
from rules import ROOT, Place

CHOSEN = Path(__file__).with_name("chosen.json")
"""Faults of the GPU backend that someone thought of: what each does, and its line before and after."""

LEAST = {rules.GPU: 64, rules.CPU: 44}  # faults of a group
OF_A_KIND = {rules.GPU: 5, rules.CPU: 8}


def key(place: Place) -> str:
    """What an outcome is kept under: line numbers may change."""
    return hashlib.sha256(
        "\0".join((place.file, place.kind, place.old, place.new, str(place.copy))).encode()
    ).hexdigest()[:12]


def faults(group: str, seed: int, unfit: frozenset[str] = frozenset()) -> list[Place]:
    """All that are tried of a group: the chosen ones, then the drawn."""
    own = chosen() if group == rules.GPU else []
    taken = {key(place) for place in own}
    return [*own, *(place for place in draw(group, seed, unfit) if key(place) not in taken)]


def chosen() -> list[Place]:
    """The faults of chosen.json whose lines are still there."""
    places = []
    for entry in json.loads(CHOSEN.read_text(encoding="utf-8")):
        path = ROOT / entry["file"]
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        equal = [number for number, line in enumerate(lines, 1) if line == entry["old"]]
        if len(equal) > entry["copy"]:
            line = equal[entry["copy"]]
            places.append(
                Place(rules.GPU, entry["kind"], entry["file"], line, entry["old"], entry["new"], entry["copy"])
            )
    return places


@functools.cache
def shuffled(group: str, seed: int) -> dict[str, list[Place]]:
    """All places of a group by kind, each kind in the seed's order."""
    by_kind: dict[str, dict[str, Place]] = {kind: {} for kind in rules.kinds(group)}
    for file in rules.files(group):
        for place in rules.places(group, file):
            by_kind[place.kind].setdefault(key(place), place)
    return {
        kind: sorted(own.values(), key=lambda p: hashlib.sha256(f"{seed}\0{key(p)}".encode()).digest())
        for kind, own in by_kind.items()
    }


def draw(group: str, seed: int, unfit: frozenset[str] = frozenset()) -> list[Place]:
    """The faults of a group: enough of every kind, then one for every file that was not hit, then more of all kinds.

    `unfit` are keys of those that do not compile: the next ones of their kinds take their places.
    """
    waiting = {kind: [p for p in own if key(p) not in unfit] for kind, own in shuffled(group, seed).items()}
    hits: Counter[str] = Counter()
    drawn: list[Place] = []

    def take(kind: str, file: str | None = None) -> bool:
        own = [p for p in waiting[kind] if file in (None, p.file)]
        if not own:
            return False
        fewest = min(hits[p.file] for p in own)
        place = next(p for p in own if hits[p.file] == fewest)
        waiting[kind] = [p for p in waiting[kind] if (p.file, p.line) != (place.file, place.line)]
        hits[place.file] += 1
        drawn.append(place)
        return True

    for kind in waiting:
        for _ in range(OF_A_KIND[group]):
            take(kind)
    for file in rules.files(group):
        if not hits[file]:
            any(take(kind, file) for kind in _turned(list(waiting), len(drawn)))
    more = True
    while len(drawn) < LEAST[group] and more:
        more = sum(take(kind) for kind in waiting) > 0
    return drawn


def _turned(items: list[str], by: int) -> Iterator[str]:
    """Another kind first each time, so that files hit last do not all get the same one."""
    for k in range(len(items)):
        yield items[(k + by) % len(items)]
