"""Other ways to write parts of the kernels, as texts that `variants.py` puts in their place until a card has decided.

Bits are those of the default: each computes the same numbers in the same order.
"""

from __future__ import annotations

Text = tuple[str, str, str]
"""File of kernels/, a text that it has exactly once, and what stands there instead."""

_COEFFICIENTS = (
    *("2.51003758422237e-08", "2.7620075892548164e-07", "2.7557268480289716e-06", "2.480152132234228e-05"),
    *("0.00019841269863040559", "0.0013888888917196736", "0.008333333333330065", "0.041666666666624164"),
    *("0.16666666666666669", "0.5000000000000001", "1.0", "1.0"),
)
_STEPS = "".join(f"    p = fma(p, r, {number});\n" for number in _COEFFICIENTS[1:])

CONSTANT_MEMORY: list[Text] = [
    (
        "gram.cuh",
        "// e^x for x <= 0, or NaN:",
        "#ifdef MF_EMULATED\nstatic const\n#else\n__constant__\n#endif\n"
        f"double DECAY[{len(_COEFFICIENTS)}] = {{{', '.join(_COEFFICIENTS)}}};\n\n// e^x for x <= 0, or NaN:",
    ),
    (
        "gram.cuh",
        f"    double p = {_COEFFICIENTS[0]};\n{_STEPS}",
        "    double p = DECAY[0];\n#pragma unroll\n"
        f"    for (int t = 1; t < {len(_COEFFICIENTS)}; ++t) {{\n        p = fma(p, r, DECAY[t]);\n    }}\n",
    ),
]
"""The exponential's coefficients from constant memory: an operand of the instruction instead of two moves each."""


def _filled(entry: str) -> str:
    return f"""#pragma unroll
        for (int a = 0; a < ROWS; ++a) {{
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {{
                {entry}
            }}
        }}
"""


INTERIOR_TILES: list[Text] = [
    (
        "likelihood.cuh",
        _filled("tile(i[a] % TILE, j[c] % TILE) = -covariance_entry(p, i[a], j[c], k[a][c], jitter);"),
        "        if (place.row > place.column && (first + place.row + 1) * TILE <= p.n_points) {\n"
        + _filled("tile(row + a * (TILE / ROWS), column + c * (TILE / COLUMNS)) = -k[a][c];")
        + "        } else {\n"
        + _filled("tile(i[a] % TILE, j[c] % TILE) = -covariance_entry(p, i[a], j[c], k[a][c], jitter);")
        + "        }\n",
    ),
]
"""Tiles without diagonal and padding are stored without asking each entry where it lies."""

SHARED_COLUMNS: list[Text] = [
    (
        "elimination.cuh",
        "    double pivot = __shfl_sync(FULL_WARP, a[0], 0);\n",
        "    MF_SHARED(EntryPair, columns, TILE); // the column in work, and the one before\n"
        "    double pivot = __shfl_sync(FULL_WARP, a[0], 0);\n",
    ),
    (
        "elimination.cuh",
        """#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (c == k + 1) {
                next = __shfl_sync(FULL_WARP, a[c], c);
            }
            if (c > k) {
                entry[c] = __shfl_sync(FULL_WARP, a[k], c);
            }
        }
""",
        """        constexpr int LAST = TILE - 1;
        const int ahead = k < LAST ? k + 1 : LAST;
        if (k < LAST) { // what the next pivot waits for still goes by shuffles
            next = __shfl_sync(FULL_WARP, a[ahead], ahead);
            entry[ahead] = __shfl_sync(FULL_WARP, a[k], ahead);
        }
        if (k + 1 < LAST) {
            EntryPair* const column = columns + k % 2 * (TILE / 2);
            if (!below) {
                reinterpret_cast<double*>(column)[row] = a[k];
            }
            __syncwarp();
#pragma unroll
            for (int c = 0; c < TILE; c += 2) {
                if (c >= k + 1) {
                    const EntryPair both = column[c / 2];
                    if (c > k + 1) {
                        entry[c] = both.first;
                    }
                    entry[c + 1] = both.second;
                }
            }
        }
""",
    ),
]
"""A column of a tile goes round through shared memory, two numbers a load, instead of by fifteen shuffles."""

ALL = [*CONSTANT_MEMORY, *INTERIOR_TILES, *SHARED_COLUMNS]
