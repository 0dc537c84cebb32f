"""Runs with a checkpoint, killed at random moments until one comes through: ``python tests/killing.py 50``.

A child says when it starts and each history row as it is reported; the parent kills it (SIGKILL) after a random part of
what an undisturbed run takes. After each kill the file must hold every likelihood of the rows that were reported, and
what it held before; the run that comes through must give the bits of the undisturbed one.
"""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import maskerade_fast as mf


def run(proposals: str, n_points: int, budget: int, checkpoint: str | None, callback: Any = None) -> str:
    """A run of some seconds; the bits of its result but for the clock's."""
    x = np.linspace(0.0, 1.0, n_points) ** 1.1
    y = np.sin(20 * x) + 0.1 * np.random.default_rng(0).normal(size=n_points)
    options: dict[str, Any] = {"initial": 40, "batch_size": 8, "nodes": 256, "max_components": 3, "seed": 5}
    options |= {"acquisition": "random", "proposals": proposals, "device": "cpu", "callback": callback}
    post = mf.marginalise(x, y, budget=budget, checkpoint=checkpoint, **options)
    g = post.mixtures_standardised
    rows = [(r.evaluations, r.cost, r.log_evidence, r.log_evidence_sd, r.best_log_likelihood) for r in post.history]
    parts = [post.log_likelihoods, post.pair_weights, g.weights, g.means, g.scales, post.node_probabilities]
    parts += [np.array(rows), np.array([post.log_evidence, post.log_evidence_sd]), post.component_probabilities]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(np.ascontiguousarray(part).tobytes())
    return whole.hexdigest()


def child(proposals: str, n_points: str, budget: str, checkpoint: str) -> None:
    """What is killed."""
    run(proposals, 20, 12, None)  # loads what is compiled
    print("start", flush=True)
    run(proposals, int(n_points), int(budget), checkpoint, lambda row: print("row", row.evaluations, flush=True))


class Kill(NamedTuple):
    """What one kill left."""

    after: float  # seconds from the start of the run
    reported: int  # likelihoods in the last row
    kept: int  # likelihoods in the file
    torn: int  # bytes of a batch that was being written


def timed(proposals: str, n_points: int, budget: int, checkpoint: str | None) -> tuple[str, float]:
    """Bits of an undisturbed run, and the seconds it takes."""
    run(proposals, 20, 12, None)
    began = time.perf_counter()
    bits = run(proposals, n_points, budget, checkpoint)
    return bits, time.perf_counter() - began


def killed(proposals: str, n_points: int, budget: int, path: Path, chance: random.Random, seconds: float) -> Kill:
    """One start, killed at a random moment of the run."""
    held = size_and_count(path)[1]
    command = [sys.executable, __file__, "child", proposals, str(n_points), str(budget), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "start\n"
    after = chance.uniform(0.0, seconds)
    time.sleep(after)
    process.kill()
    output = process.communicate()[0]
    rows = [int(number) for number in re.findall(r"^row (\d+).*\n", output, re.MULTILINE)]  # the last may be cut short
    reported = rows[-1] if rows else 0
    length, kept = size_and_count(path)
    assert kept >= max(held, reported), (held, reported, kept)
    return Kill(after, reported, kept, (path.stat().st_size if path.exists() else 0) - length)


def size_and_count(path: Path) -> tuple[int, int]:
    """Bytes of whole records in a journal, and likelihoods in them; read by the layout, not by the package."""
    content = path.read_bytes() if path.exists() else b""
    place = content.find(b"\n") + 1
    count, first = 0, True
    while place and place + 12 <= len(content):
        length = int.from_bytes(content[place : place + 8], "little")
        if place + 28 + length > len(content):
            break
        payload = content[place + 12 : place + 12 + length]
        if payload[:1] == b"B" and not first:
            readings = int.from_bytes(payload[17:25], "little")
            count += int.from_bytes(payload[33 + 8 * readings : 41 + 8 * readings], "little")
        first = False
        place += 28 + length
    return place, count


def main(kills: int) -> None:
    """Kill so many runs, half of each kind of proposals, with the seed of the day in the log."""
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    print(f"# {kills} kills (SIGKILL) at random moments, seed {seed}; Python {sys.version.split()[0]}", flush=True)
    for proposals, n_points, budget in (("laplace", 1500, 300), ("prior", 1000, 200)):
        bits, seconds = timed(proposals, n_points, budget, None)
        print(f"# {proposals}: N = {n_points}, budget {budget}, undisturbed {seconds:.2f} s, bits {bits[:16]}")
        done = 0
        while done < kills // 2:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.checkpoint"
                for _ in range(min(5, kills // 2 - done)):  # one file, killed up to five times on its way
                    kill = killed(proposals, n_points, budget, path, chance, seconds)
                    done += 1
                    print(
                        f"{proposals} {done:2d}: killed after {kill.after:5.2f} s, rows had {kill.reported:3d}, "
                        f"file has {kill.kept:3d} likelihoods, {kill.torn} bytes torn"
                    )
                last, again = timed(proposals, n_points, budget, str(path))
                print(f"{proposals}: came through in {again:.2f} s, bits {'the same' if last == bits else 'DIFFER'}")
                assert last == bits
    print("# all came through to the same bits")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
