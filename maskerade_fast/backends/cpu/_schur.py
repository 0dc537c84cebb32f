"""Schur's algorithm on a symmetric positive definite Toeplitz matrix, in O(N^2) time and O(N) memory.

Step t of it makes column t of the Cholesky factor out of two generators by one fused multiply-add an entry, and is as
stable as Cholesky's own elimination (Bojanczyk, Brent, de Hoog and Sweet, SIAM J. Matrix Anal. Appl. 16, 1995). Place m
of the second generator meets entry m + t of the first:

    p_{m+t} <- p_{m+t} + g_t q_m,   q_m <- q_m + g_t p_{m+t},   y_{m+t} <- y_{m+t} - c_t q_m

where g_t makes p_t vanish, v_t = q_0 is the pivot, q_m the entry L_{m+t,t} sqrt(v_t), and c_t = y_t / v_t eliminates
the targets. The very same recursion on the places m < 0 is Levinson's: there p_{m+t}, zero before, becomes minus the
predictor's coefficient, q its reversal, and y the solution of the leading t + 1 equations. So one loop over the places
serves both, the second part only where a gradient is computed.

Several right-hand sides y share the two generators: each costs a multiply-add an entry more.

Entry m + t after step t depends on entry m + 1 after step t - 1, and on nothing below: steps are done `STEPS` at a time
over tiles of places from the highest down, in place, once the few entries that decide on g and c have run ahead.
"""

from __future__ import annotations

import math

import numpy as np

from ..._checks import Array
from ._jit import inner
from ._math import fma

STEPS = 32  # in one sweep: more would make the entries that run ahead count
TILE = 1024  # places at a time: three times 8 KB stay in L1
LAGS = 256  # diagonals at a time


@inner
def lattice(gamma: float, ratio: float, width: int, p: Array, q: Array, y: Array) -> None:
    """One step on the places ``[:width]``."""
    for k in range(width):
        old_p = p[k]
        old_q = q[k]
        new_q = fma(gamma, old_p, old_q)
        p[k] = fma(gamma, old_q, old_p)
        q[k] = new_q
        y[k] = fma(-ratio, new_q, y[k])


@inner
def eliminate(ratio: float, width: int, q: Array, y: Array) -> None:
    """What a step does to another right-hand side on the places ``[:width]``, once `lattice` has made q new."""
    for k in range(width):
        y[k] = fma(-ratio, q[k], y[k])


@inner
def run_ahead(first: int, width: int, bound: float, head: Array, out: Array) -> int:
    """g, v, the c and the targets of the steps ``first : first + width`` into the rows of `out`; returns info.

    `head` has copies of the first `width` entries of p, q and the right-hand sides, which are all that matters.
    """
    sides = head.shape[0] - 2
    p, q, y = head[0], head[1], head[2:]
    for s in range(width):
        gamma = -p[s] / q[0] if first + s > 0 else 0.0
        pivot = fma(gamma, p[s], q[0])
        if not bound < pivot < math.inf:
            return first + s + 1
        out[0, s] = gamma
        out[1, s] = pivot
        for k in range(sides):
            out[2 + k, s] = y[k, s] / pivot
            out[2 + sides + k, s] = y[k, s]
        lattice(gamma, out[2, s], width - s, p[s:], q, y[0, s:])
        for k in range(1, sides):
            eliminate(out[2 + k, s], width - s, q, y[k, s:])
    return 0


@inner
def sweep(
    first: int, steps: int, low: int, high: int, out: Array, p: Array, q: Array, y: Array, origin: int, panel: Array
) -> None:
    """Steps ``first : first + steps`` on the places ``low : high``; place m is entry ``origin + m`` of q.

    Row s of `panel`, where it has rows, receives column ``first + s`` of the factor.
    """
    n = len(p)
    for top in range(high, low, -TILE):
        bottom = max(top - TILE, low)
        for s in range(steps):
            t = first + s
            begin = max(bottom, -t)
            end = min(top, n - t)
            if begin < end:
                entries = slice(begin + t, end + t)
                column = q[origin + begin : origin + end]
                lattice(out[0, s], out[2, s], end - begin, p[entries], column, y[0, entries])
                for k in range(1, y.shape[0]):
                    eliminate(out[2 + k, s], end - begin, column, y[k, entries])
                if panel.shape[0] > 0:
                    scale = 1.0 / math.sqrt(out[1, s])
                    target = panel[s, begin + t : end + t]
                    for k in range(end - begin):
                        target[k] = scale * column[k]


@inner
def advance(
    first: int, bound: float, whole: bool, p: Array, q: Array, y: Array, head: Array, out: Array, panel: Array
) -> int:
    """The steps from `first` on, `STEPS` or as many as there are, for right-hand sides y (r, N); returns info.

    `whole`: also the places below 0, for which q has N entries more in front. Then p[:t] is minus the predictor and
    y[:, :t] the solutions after t steps. `head` (2 + r, STEPS) is scratch, `out` (2 + 2 r, STEPS) what `run_ahead` says
    of each step.
    """
    n = len(p)
    origin = len(q) - n
    width = min(STEPS, n - first)
    sides = y.shape[0]
    for k in range(width):
        head[0, k] = p[first + k]
        head[1, k] = q[origin + k]
        for c in range(sides):
            head[2 + c, k] = y[c, first + k]
    info = run_ahead(first, width, bound, head, out)
    if info != 0:
        return info
    sweep(first, width, 1, n - first, out, p, q, y, origin, panel)
    q[origin] = out[1, width - 1]
    for s in range(width):
        t = first + s
        p[t] = -out[0, s] if t > 0 else -1.0
        for c in range(sides):
            y[c, t] = out[2 + c, s]
        if panel.shape[0] > 0:
            panel[s, t] = math.sqrt(out[1, s])
    if whole:
        sweep(first, width, -first - width + 1, 0, out, p, q, y, origin, panel[:0])
    return 0


@inner
def start_schur(column: Array, diagonal: float, targets: Array, p: Array, q: Array, y: Array) -> None:
    """Generators of the matrix whose first column is `column`, but for its diagonal; `targets` and y are (r, N)."""
    n = len(column)
    origin = len(q) - n
    for k in range(origin):
        q[k] = 0.0
    for k in range(n):
        p[k] = column[k]
        q[origin + k] = column[k]
    for c in range(y.shape[0]):
        for k in range(n):
            y[c, k] = targets[c, k]
    p[0] = 0.0
    q[origin] = diagonal


@inner
def schur(bound: float, whole: bool, p: Array, q: Array, y: Array, white: Array) -> tuple[int, float, float]:
    """All steps; returns info, log det L, with |L^-1 y|^2 / 2 where `white` has no rows, and the last pivot.

    `white` (r, N) receives L^-1 y, or has no rows: y is then one right-hand side. With `whole`, p is minus the last
    predictor a and y is C^-1 y afterwards: the first column of the inverse is a / v.
    """
    sides = y.shape[0]
    half = 0.0
    head = np.empty((2 + sides, STEPS))
    out = np.empty((2 + 2 * sides, STEPS))
    panel = np.empty((0, 0))
    for first in range(0, len(p), STEPS):
        info = advance(first, bound, whole, p, q, y, head, out, panel)
        if info != 0:
            return info, 0.0, 0.0
        for s in range(min(STEPS, len(p) - first)):
            square = out[2, s] * out[3, s] if white.shape[0] == 0 else 0.0
            half += 0.5 * (square + math.log(out[1, s]))
            for c in range(white.shape[0]):
                white[c, first + s] = out[2 + sides + c, s] / math.sqrt(out[1, s])
    return 0, half, q[len(q) - len(p)]


@inner
def diagonal_sums(negated: Array, pivot: float, solutions: Array, sums: Array) -> None:
    """Sums along the diagonals d of G = (S' S - C^-1) / 2 into `sums` (N,), from ``negated = -a`` and v.

    S are the rows of `solutions` (r, N): alpha, and with a trend the columns that it takes from the inverse. The
    inverse's own are sum_l (N - d - 2 l) a_l a_{l+d} / v, by Gohberg and Semencul's formula.
    """
    sides, n = solutions.shape
    padded = np.zeros((1 + sides, n + LAGS + 4))  # zeros beyond the end, so that all tiles are whole
    left = np.zeros((1 + sides, n + 4))
    for l in range(n):
        for c in range(sides):
            padded[c, l] = solutions[c, l]
            left[c, l] = solutions[c, l]
        padded[sides, l] = negated[l]
        left[sides, l] = negated[l] / pivot
    total = np.empty(LAGS)
    plain = np.empty(LAGS)
    for first in range(0, n, LAGS):
        for k in range(LAGS):
            total[k] = 0.0
            plain[k] = 0.0
        for l in range(0, n - first, 4):
            x = padded[0, l + first : l + first + LAGS + 3]
            z = padded[sides, l + first : l + first + LAGS + 3]
            x0, x1, x2, x3 = left[0, l], left[0, l + 1], left[0, l + 2], left[0, l + 3]
            z0, z1, z2, z3 = left[sides, l], left[sides, l + 1], left[sides, l + 2], left[sides, l + 3]
            place = np.float64(n - 2 * l)
            w0, w1, w2, w3 = -place * z0, (2.0 - place) * z1, (4.0 - place) * z2, (6.0 - place) * z3
            for k in range(LAGS):
                b0, b1, b2, b3 = z[k], z[k + 1], z[k + 2], z[k + 3]
                both = fma(x0, x[k], fma(x1, x[k + 1], fma(x2, x[k + 2], fma(x3, x[k + 3], total[k]))))
                total[k] = fma(w0, b0, fma(w1, b1, fma(w2, b2, fma(w3, b3, both))))
                plain[k] = fma(z0, b0, fma(z1, b1, fma(z2, b2, fma(z3, b3, plain[k]))))
            for c in range(1, sides):
                x = padded[c, l + first : l + first + LAGS + 3]
                x0, x1, x2, x3 = left[c, l], left[c, l + 1], left[c, l + 2], left[c, l + 3]
                for k in range(LAGS):
                    total[k] = fma(x0, x[k], fma(x1, x[k + 1], fma(x2, x[k + 2], fma(x3, x[k + 3], total[k]))))
        for k in range(min(LAGS, n - first)):
            sums[first + k] = 0.5 * fma(np.float64(first + k), plain[k], total[k])
