"""Loops of a compiled kernel and what one pass through them issues, from the text of ``nvdisasm -c``.

A pass is a path from a loop's header to a branch back to it, and the count is of its *fast path*, which control flow
alone chooses (`Loop.pass_through`). Of all paths it is the one with

1. the fewest calls: the compiler calls a subroutine where a root or a division meets zero, infinity or a subnormal;
2. then the most inner loops, each passed through once: a branch around a loop is for an empty range;
3. then the fewest instructions: the range check of ``exp`` branches around a few of them.

A branch that is taken only by a diverged warp (``BRA.DIV``) is never followed. What is left out is rare or depends on
the data, so the count is a lower bound of what a pass issues; blocks that every pass goes through are all in it.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

_LABEL = re.compile(r"\s*([.$\w]+):\s*$")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"(\.L_\w+)")
_ENDS = ("BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "KILL")

SHIFTER = "6.755399441055744"  # 1.5 2^52, which every exponential adds to round its exponent
FP32 = ("FADD", "FMUL", "FFMA")
FP64 = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")
SPACES = {"G": "global", "S": "shared", "L": "local", "C": "constant"}
CONTROL = (*_ENDS, "CALL", "BSSY", "BSYNC", "BREAK", "BMOV", "WARPSYNC", "BAR", "YIELD", "NANOSLEEP")
CONVERSIONS = ("F2F", "F2I", "I2F", "F2FP", "I2FP", "FRND")


class Instruction(NamedTuple):
    opcode: str
    """With its modifiers: ``LDG.E.64``."""
    operands: str
    predicate: str = ""
    """``@!P0`` where the instruction runs under a condition; it is issued either way."""

    @property
    def name(self) -> str:
        return self.opcode.partition(".")[0]


def kind_of(instruction: Instruction) -> str:
    """The class that an instruction counts in; ``other`` is integers, moves, float32 and predicates."""
    name, opcode = instruction.name, instruction.opcode
    if name in FP64:
        return "fp64 predicated" if instruction.predicate else "fp64"
    if name == "DMMA":
        return "dmma"
    if name == "MUFU":
        return "mufu64" if opcode.endswith("64H") else "mufu"
    if name in CONVERSIONS:
        return "conversions"
    if name in CONTROL:
        return "control"
    memory = re.fullmatch(r"U?(LD|ST)([GSLC]?)M?", name)
    if memory:
        return f"{'loads' if memory[1] == 'LD' else 'stores'} {SPACES.get(memory[2], 'generic')}"
    return "other"


def count(instructions: Iterable[Instruction]) -> Counter[str]:
    """By class; ``slots`` are all of them: every instruction takes one issue slot of its warp."""
    kinds = Counter(kind_of(instruction) for instruction in instructions)
    kinds["slots"] = sum(kinds.values())
    return kinds


def marks(instructions: Iterable[Instruction], marker: str) -> int:
    """How many of the instructions start a "root" or an "exponential"."""
    if marker == "root":
        return sum(i.opcode == "MUFU.RSQ64H" for i in instructions)
    return sum(i.name == "DFMA" and SHIFTER in i.operands for i in instructions)


class Kernel:
    """Instructions of one entry, its blocks and its loops."""

    def __init__(self, instructions: list[Instruction], labels: dict[str, int]) -> None:
        self.instructions = instructions
        targets = [self._targets(instruction, labels) for instruction in instructions]
        starts = {0, *(t for ts in targets for t in ts)}
        starts |= {k + 1 for k, i in enumerate(instructions) if i.name in _ENDS}
        self._firsts = sorted(start for start in starts if start < len(instructions))
        number = {first: block for block, first in enumerate(self._firsts)}
        self.successors = [[number[k] for k in self._next(targets, block)] for block in range(len(self._firsts))]
        self.loops = _loops(self)

    def block(self, number: int) -> list[Instruction]:
        """Instructions of a block, without those that only fill up the code."""
        stop = self._firsts[number + 1] if number + 1 < len(self._firsts) else len(self.instructions)
        return [i for i in self.instructions[self._firsts[number] : stop] if i.name != "NOP"]

    @staticmethod
    def _targets(instruction: Instruction, labels: dict[str, int]) -> list[int]:
        if instruction.name not in ("BRA", "BRX", "JMP", "JMX"):
            return []
        return [labels[name] for name in _TARGET.findall(instruction.operands) if name in labels]

    def _next(self, targets: list[list[int]], block: int) -> list[int]:
        stop = self._firsts[block + 1] if block + 1 < len(self._firsts) else len(self.instructions)
        last = self.instructions[stop - 1]
        after = [stop] if stop < len(self.instructions) else []
        if ".DIV" in last.opcode:
            return after
        conditional = last.predicate or re.match(r"!?U?P\d", last.operands)
        return sorted({*targets[stop - 1], *(after if conditional or last.name not in _ENDS else [])})


class Loop:
    """Blocks of a natural loop, with the loops right inside it."""

    def __init__(self, kernel: Kernel, header: int, blocks: frozenset[int]) -> None:
        self.kernel, self.header, self.blocks = kernel, header, blocks
        self.inner: list[Loop] = []
        self.outer: Loop | None = None

    @functools.cached_property
    def pass_through(self) -> list[Instruction]:
        """Instructions of one pass on the fast path, those of inner loops once."""
        inside = {block: loop for loop in self.inner for block in loop.blocks}
        parts: dict[int, list[Instruction]] = {}
        best: dict[int, tuple[tuple[int, int, int], int | None]] = {self.header: ((0, 0, 0), None)}
        ends = []
        for block in self._order(inside):
            cost, _ = best[block]
            loop = inside.get(block)
            parts[block] = loop.pass_through if loop else self.kernel.block(block)
            calls = sum(i.name == "CALL" for i in parts[block])
            after = (cost[0] + calls, cost[1] - (loop is not None), cost[2] + len(parts[block]))
            for following in self._after(block, inside):
                if following == self.header:
                    ends.append((after, block))
                elif following not in best or after < best[following][0]:
                    best[following] = (after, block)
        path: list[Instruction] = []
        at: int | None = min(ends)[1]
        while at is not None:
            path = parts[at] + path
            at = best[at][1]
        return path

    def own(self) -> list[Instruction]:
        """Those of `pass_through` that lie in no inner loop."""
        body = {id(i) for i in self.body()}
        return [i for i in self.pass_through if id(i) in body]

    @property
    def depth(self) -> int:
        """1 for a loop that is in no other."""
        return 1 + (self.outer.depth if self.outer else 0)

    def body(self) -> list[Instruction]:
        """All that lie in no inner loop, on the fast path or not."""
        within = {block for loop in self.inner for block in loop.blocks}
        return [i for block in sorted(self.blocks - within) for i in self.kernel.block(block)]

    def _after(self, block: int, inside: dict[int, Loop]) -> list[int]:
        """Where a pass goes on: from an inner loop wherever it is left to, all of it standing at its header."""
        if block not in inside:
            following = self.kernel.successors[block]
        else:
            loop = inside[block]
            following = [to for b in loop.blocks for to in self.kernel.successors[b] if to not in loop.blocks]
        return sorted({inside[to].header if to in inside else to for to in following if to in self.blocks})

    def _order(self, inside: dict[int, Loop]) -> list[int]:
        """Blocks and inner loops so that each comes after all that leads to it."""
        return _postorder(self.header, lambda block: self._after(block, inside))[::-1]


def _loops(kernel: Kernel) -> list[Loop]:
    """Natural loops, inner before outer: of an edge back to a block that every way to its start goes through."""
    order = _postorder(0, kernel.successors.__getitem__)
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for to in kernel.successors[block]:
            before[to].append(block)
    over = {block: set(order) for block in order} | {0: {0}}
    changed = True
    while changed:
        changed = False
        for block in order[::-1]:
            dominators = {block} | set.intersection(*(over[b] for b in before[block])) if before[block] else {block}
            changed |= dominators != over[block] and block != 0
            over[block] = dominators if block else {0}
    bodies: dict[int, set[int]] = {}
    for block in order:
        for header in set(kernel.successors[block]) & over[block]:
            body, new = bodies.setdefault(header, {header}), [block]
            while new:
                at = new.pop()
                if at not in body:
                    body.add(at)
                    new += before[at]
    loops = [Loop(kernel, header, frozenset(body)) for header, body in bodies.items()]
    loops.sort(key=lambda loop: len(loop.blocks))
    for k, loop in enumerate(loops):
        loop.outer = next((other for other in loops[k + 1 :] if loop.blocks < other.blocks), None)
        if loop.outer:
            loop.outer.inner.append(loop)
    return loops


def _postorder(start: int, after: Callable[[int], Sequence[int]]) -> list[int]:
    """Blocks that can be reached from `start`, each after all that follow it, but for loops."""
    done: list[int] = []
    seen = {start}
    stack = [(start, iter(after(start)))]
    while stack:
        block, following = stack[-1]
        new = next((to for to in following if to not in seen), None)
        if new is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(new)
            stack.append((new, iter(after(new))))
    return done


def kernels(text: str) -> dict[str, Kernel]:
    """The entries of a disassembly by name."""
    entries = {}
    for section in re.split(r"^\s*\.section\s+\.text\.", text, flags=re.M)[1:]:
        labels: dict[str, int] = {}
        instructions: list[Instruction] = []
        for line in section.splitlines():
            if instruction := _INSTRUCTION.match(line):
                _, predicate, opcode, operands = instruction.groups()
                predicate = "" if predicate in (None, "@PT", "@UPT") else predicate
                instructions.append(Instruction(opcode, operands, predicate))
            elif label := _LABEL.match(line):
                labels[label[1]] = len(instructions)
        name = re.match(r"[\w$]+", section)
        if name and instructions:
            entries[name[0]] = Kernel(instructions, labels)
    return entries
