"""Small faults by kind: the rules that change one line of a source, and the places where they apply.

A rule is a regular expression and its replacement. It reads code alone, never comments or strings. The kinds of the
GPU backend are those that kernels and launches get wrong; the kinds of the CPU those of formulas and loops.
"""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GPU, CPU = "gpu", "cpu"
KERNELS, PYTHON = (".cu", ".cuh"), (".py",)

METHOD = ("adaptive", "model", "ops", "posterior", "quadrature")
"""Packages of the method, between the backends and the runs; `_optimize` belongs to them."""
NOT_METHOD = (
    *("model/inputs", "model/nets", "ops/distances", "ops/gp", "ops/gram", "ops/likelihood"),
    *("posterior/archive_checks", "posterior/history", "posterior/posterior_archive"),
)
"""Their modules that check arguments, read files and call a backend."""


class Place(NamedTuple):
    """One line and what a rule makes of it."""

    group: str
    kind: str
    file: str
    """Relative to the repository."""
    line: int
    """From 1. Outcomes are looked up by file and text, not by this number."""
    old: str
    new: str
    """"" where the line goes."""
    copy: int = 0
    """Of equal lines in a file, which."""


class Rule(NamedTuple):
    kind: str
    suffixes: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]
    where: re.Pattern[str] | None = None
    """What the line must hold besides."""
    files: re.Pattern[str] | None = None
    """What the path must hold."""


def rule(
    kind: str, suffixes: tuple[str, ...], pattern: str, replacement: str, where: str = "", files: str = ""
) -> Rule:
    compiled = [re.compile(text) if text else None for text in (where, files)]
    return Rule(kind, suffixes, re.compile(pattern), replacement, *compiled)


_SIDE = r"[^&|()]+(?:\([^&|()]*\)[^&|()]*)*"  # of a condition, with at most one bracket
_JITTER = r"(?:jitter|added|jitters|noise|noise_variance|row_noise)\b(?:\[[^\[\]]*\])?"
_STATEMENT = r"^(?!\s*(?:def|raise|class|from|import)\b)"
_GRADIENT = r"grad(?! else)|slope|\bd_|vjp|cotangent|jacobian|derivative"
_LOOP = r"^\s*(?:\} else )?(?:if|for|while) \(|\?"

GPU_RULES = (
    # comparisons that keep a thread inside its array
    rule("bounds", KERNELS, r" < ", " <= ", where=_LOOP),
    rule("bounds", KERNELS, rf"\(({_SIDE}) && ", "(", where=r"\bif \("),
    rule("bounds", KERNELS, rf" && {_SIDE}(?=\) \{{)", "", where=r"\bif \("),
    rule("bounds", PYTHON, r"range\(((?:[^,()]|\([^()]*\))+)\)", r"range(\1 - 1)"),
    rule("barriers", KERNELS, r"^\s*__sync(?:threads|warp)\(.*\);\s*$", ""),
    rule("indices", KERNELS, r"(?<=\w)\[(?![A-Z_0-9]+\]|&)([^\[\]]+)\](?!.*\{$)", r"[\1 + 1]", where=r"[=(]"),
    rule("indices", KERNELS, r"\b(row|i)\b(?=[^;]*\])", "@swap", where=r"\[[^\]]*\b(?:row|i)\b"),
    rule("indices", KERNELS, r"\.x \+ ", ".x + 1 + "),
    rule("indices", PYTHON, r"\.(shape|strides)\[(\d)\]", r".\1[\2 - 1]"),
    rule(
        "indices",
        PYTHON,
        r"^from \.(\w+) import (\w+), (\w+)",
        r"from .\1 import \3 as \2, \2 as \3",
        files=r"__init__",
    ),
    # the values' signs, not those of places
    rule("signs", KERNELS, r" \+ ", " - ", where=r"\b(?:double|fma|return|sum|total|gap)\b"),
    rule("signs", KERNELS, r" - ", " + ", where=r"\b(?:double|fma|return|sum|total|gap)\b"),
    rule("signs", KERNELS, r"\bfma\(-", "fma("),
    rule("signs", KERNELS, r" -= ", " += "),
    rule("signs", KERNELS, r" \+= (?!WARP|BLOCK|[A-Z_]+\b)", " -= ", where=r"\b(?:sum|total|value|g_\w+|d_\w+)\b"),
    rule("signs", PYTHON, r" - (?!1\b|\()", " + "),
    rule("strides", KERNELS, r" \* (n_\w+|n|\w*stride\w*|[A-Z]\w*_STRIDE)\b(?!\()", r" * (\1 + 1)"),
    rule("strides", KERNELS, r" \+= (BLOCK|WARP|WARPS|blockDim\.x|\w*_BLOCK|[a-z]+_stride\(\))(?=[;)])", r" += 1 + \1"),
    rule("32-bit products", KERNELS, r"\(index_t\)", "(int)", where=r"\*"),
    rule("32-bit products", KERNELS, r"\bindex_t (\w+) = (?=.*\*)", r"int \1 = (int)"),
    rule("shuffles", KERNELS, r"(__shfl\w*_sync)\(FULL_WARP, ", r"\1(0xffffu, "),
    rule("shuffles", KERNELS, r"(__shfl_(?:xor|down)_sync\([^;]*), (offset|1)\)", r"\1, 2 * \2)"),
    rule("shuffles", KERNELS, r"(__shfl_sync\([^;]*), (\w+)\)(?!.*__shfl)", r"\1, \2 ^ 1)"),
    rule("shuffles", KERNELS, r"__shfl_down_sync", "__shfl_up_sync"),
    rule("shuffles", KERNELS, r"offset = WARP / 2", "offset = WARP / 4"),
    # what is left over when the size is no multiple of a tile
    rule("tails", KERNELS, r"\((\w+) \+ ([A-Z_]+) - 1\) / ", r"(\1) / "),
    rule("tails", KERNELS, r"\bmin\(([^,()]+), ([^,()]+)\)", r"(\1)"),
    rule("tails", KERNELS, r"\bmin\(([^,()]+), ([^,()]+)\)", r"(\2)"),
    rule("tails", PYTHON, r"-\(-(.+?) // ([\w.]+)\)", r"max(1, \1 // \2)"),
    rule("tails", PYTHON, r"\bmin\((\w+), ([^,()]+)\)", r"(\1)"),
    rule("jitter", KERNELS, rf" [+] {_JITTER}", ""),
    rule("jitter", KERNELS, r"\b(jitter|EPSILON) \* ", r"0.5 * \1 * "),
    rule("jitter", KERNELS, r"\* (jitter|EPSILON)\b", r"* 0.5 * \1"),
    rule("jitter", KERNELS, r"\bdiagonal_stats\[([^\[\]]+)\]", r"diagonal_stats[\1 + 1]", where=r"="),
    rule("jitter", KERNELS, r"(pivot|own_pivot) > bound", r"\1 > 0.0"),
    rule("jitter", PYTHON, rf" [+] {_JITTER}", ""),
    rule("jitter", PYTHON, r"mean\(axis=1\)", "max(axis=1)"),
    rule("jitter", PYTHON, r"^\s*[\w.]*(?:added|jitter)\[[^\]]*\] = .*$", ""),
    rule("jitter", PYTHON, r"\bEPS \* ", ""),
    rule("jitter", PYTHON, r"(?<=\()jitter(?=,)|(?<=, )jitter(?=[,)])", "2.0 * jitter", where=_STATEMENT),
    rule("chunks", KERNELS, r"\b(start|first) \+ ", ""),
    rule("chunks", PYTHON, r"\[(start|first)\b", "[0 * \\1", where=r":"),
    rule("chunks", PYTHON, r"(?<=[(, ])(start|first)(?=[,)])", r"0 * \1", where=r"^(?!\s*(?:def|for)\b)"),
    rule("chunks", PYTHON, r"range\(0, (\w[\w.()]*), ", r"range(0, max(1, \1 - 1), "),
    rule("chunks", PYTHON, r"range\((\w+), (\w[\w.()]*), (\w+)\)", r"range(\1, \2, 2 * \3)"),
    rule("chunks", PYTHON, r"(stop|last) - (start|first)\b", r"\1 - \2 - (\2 > 0)"),
    rule("streams", PYTHON, r"\bwith device_of\((.*)\):", r"with device_of(\1), cupy.cuda.Stream.null:"),
    rule("streams", PYTHON, r"shared_mem=shared_mem\)", "shared_mem=shared_mem, stream=cupy.cuda.Stream.null)"),
    rule("streams", PYTHON, r"cupy\.cuda\.get_current_stream\(\)", "cupy.cuda.Stream.null"),
    rule("streams", PYTHON, r"cupy\.cuda\.Device\(devices\[0\]\)", "cupy.cuda.Device(0)"),
    rule("streams", PYTHON, r"cupy\.cuda\.runtime\.getDevice\(\)", "0"),
    rule("precision", KERNELS, r"\bdouble (\w+) = (?!0\.0|\{)([^;=]+);", r"double \1 = (float)(\2);"),
    rule("precision", KERNELS, r" = (fma|exp|sqrt|rsqrt|log)\((.*)\);$", r" = (float)\1(\2);"),
    rule("precision", KERNELS, r"^(\s*return) (.*(?:fma|sqrt|exp|\*).*);$", r"\1 (float)(\2);", where=r"^(?!.*\?)"),
    rule("precision", PYTHON, r"np\.float64(?=\()|dtype=np\.float64", "@float32"),
)

CPU_RULES = (
    rule("weights", PYTHON, r" \* (\w*[wW]eights?\w*(?:\[[^\[\]]*\])?)(?![\w.(\[])", ""),
    rule("weights", PYTHON, r"(?<![\w.])(\w*[wW]eights?\w*(?:\[[^\[\]]*\])?) \* ", ""),
    rule("weights", PYTHON, r" / (\w*(?:total|sum)\w*(?:\([^()]*\))?)(?![\w.(\[])", ""),
    rule("weights", PYTHON, r"\b0\.5 \* ", ""),
    rule("signs", PYTHON, r" \+ (?!1\b)", " - ", where=r"=|return"),
    rule("signs", PYTHON, r" - (?!1\b)", " + ", where=r"=|return"),
    rule("signs", PYTHON, r"(= |return |\()-(?=[a-z_])", r"\1"),
    rule("seeds", PYTHON, r"default_rng\((\w+)\)", "default_rng(0)"),
    rule("seeds", PYTHON, r"default_rng\(\[([^,\]]+), [^\]]*\]\)", r"default_rng([\1])"),
    rule("seeds", PYTHON, r"\.spawn\((\w+)\)", r".spawn(\1 + 1)[1:]"),
    rule("seeds", PYTHON, r"\b(seed|rng|seeds\[[^\]]*\])(?=[,)])", "@seed", where=_STATEMENT),
    rule("off by one", PYTHON, r"\b(p?range)\(([^,()]+)\)", r"\1(\2 - 1)"),
    rule("off by one", PYTHON, r"\b(p?range)\((\w+), ", r"\1(\2 + 1, "),
    rule("off by one", PYTHON, r" < (?!\d+\.|_?[A-Z]{2})", " <= "),
    rule("off by one", PYTHON, r" <= (?!\d+\.|_?[A-Z]{2})", " < "),
    rule("off by one", PYTHON, r" > (?!\d+\.|_?[A-Z]{2})", " >= "),
    rule("off by one", PYTHON, r" ([+-]) 1\b(?![.\]])", ""),
    rule("off by one", PYTHON, r"(?<=\w)\[(\w+) ([+-]) 1\]", r"[\1]"),
    rule("off by one", PYTHON, r"\[(\w+)\](?= = )", r"[\1 - 1]", where=r"^[^:]*$"),
    rule(
        "gradient terms",
        PYTHON,
        r"^(\s*)(\S+) ([+-]=) .*$",
        r"\1\2 \3 0.0 * \2",
        files=r"gradient|_trend|distances",
    ),
    rule("gradient terms", PYTHON, r" [+-] [^+()-]+(?:\([^()]*\))?$", "", where=_GRADIENT),
    rule("gradient terms", PYTHON, r"(= |return )([^=+()]+) \+ ", r"\1", where=_GRADIENT),
)
RULES = {GPU: GPU_RULES, CPU: CPU_RULES}

_SWAPS = {"row": "column", "i": "j"}


def kinds(group: str) -> list[str]:
    return list(dict.fromkeys(rule.kind for rule in RULES[group]))


def files(group: str) -> list[str]:
    """The sources that a group's faults are put into, by their path in the repository."""
    package = ROOT / "maskerade_fast"
    if group == GPU:
        sources = [*(ROOT / "kernels").glob("*.cu*"), *(package / "backends" / "gpu").glob("*.py")]
    else:
        modules = [package / "_optimize.py", *(path for name in METHOD for path in (package / name).rglob("*.py"))]
        left_out = {package / f"{name}.py" for name in NOT_METHOD}
        modules = [path for path in modules if path.name != "__init__.py" and path not in left_out]
        sources = [*(package / "backends" / "cpu").glob("*.py"), *modules]
    return sorted(path.relative_to(ROOT).as_posix() for path in sources)


def places(group: str, file: str) -> Iterator[Place]:
    """Every place of a file where a rule of the group applies, in the order of lines."""
    text = (ROOT / file).read_text(encoding="utf-8")
    own = [
        rule for rule in RULES[group] if file.endswith(rule.suffixes) and (not rule.files or rule.files.search(file))
    ]
    if file.endswith("__init__.py"):
        own = [rule for rule in own if rule.files]
    seen: Counter[str] = Counter()
    for number, (line, code) in enumerate(zip(text.splitlines(), code_of(file, text), strict=True), 1):
        copy, seen[line] = seen[line], seen[line] + 1
        if not code.strip() or code.lstrip().startswith(("#", "@", "static_assert", "namespace", "//")):
            continue
        for each in own:
            if each.where is None or each.where.search(code):
                for new in changed(each, code, line):
                    if new != line:
                        yield Place(group, each.kind, file, number, line, new, copy)


def changed(each: Rule, code: str, line: str) -> Iterator[str]:
    """`line` with one match of the rule replaced, for each match; what is masked in `code` stays as it is."""
    for match in each.pattern.finditer(code):
        start, end = match.span()
        matched = each.pattern.match(line, start) or match  # the same, with its strings
        if matched.end() != end:
            continue
        if each.replacement == "@swap":
            new = _SWAPS[match[1]]
        elif each.replacement == "@float32":
            new = match[0].replace("64", "32")
        elif each.replacement == "@seed":
            new = "np.random.default_rng(0)" if match[1] == "rng" else "0"
        else:
            assert isinstance(each.replacement, str)
            new = matched.expand(each.replacement)
        yield (line[:start] + new + line[end:]).rstrip()


@functools.lru_cache(maxsize=4)
def code_of(file: str, text: str) -> list[str]:
    """The lines with what is no code (comments, strings) replaced by blanks of the same length."""
    lines = text.splitlines()
    if not file.endswith(PYTHON):
        return [_without_comment(line) for line in lines]
    masked = [list(line) for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            (first, left), (last, right) = token.start, token.end
            for number in range(first - 1, last):
                begin = left if number == first - 1 else 0
                end = right if number == last - 1 else len(masked[number])
                masked[number][begin:end] = " " * (end - begin)
    return ["".join(line) for line in masked]


def _without_comment(line: str) -> str:
    if line.lstrip().startswith("#"):
        return ""
    code = line.partition("//")[0]
    return re.sub(r'"[^"]*"', lambda match: " " * len(match[0]), code)
