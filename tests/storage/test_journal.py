"""Checkpoints: the same bits from any moment, what is refused and by which name, full disks, damage, kills."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import killing
import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.quadrature import problem
from maskerade_fast.storage import journal

QUICK: dict[str, Any] = {"budget": 150, "batch_size": 10, "nodes": 64, "max_components": 2, "seed": 3, "device": "cpu"}
PRIOR: dict[str, Any] = {**QUICK, "proposals": "prior", "initial": 20, "budget": 40, "acquisition": "random"}
BOTH = pytest.mark.parametrize("settings", [QUICK, PRIOR], ids=["laplace", "prior"])


def data(n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Such that draws from the prior do not suffice: modes are sought, with gradients."""
    x = np.linspace(0.0, 1.0, n) ** 1.2
    return x, np.sin(2 * np.pi * 3 * x) + 0.3 * np.cos(40 * x)


def fit(settings: dict[str, Any], path: Path | None = None, **others: Any) -> mf.Posterior:
    return mf.marginalise(*data(), **{**settings, "checkpoint": path, **others})


def assert_same(a: mf.Posterior, b: mf.Posterior, *, clock: bool = False) -> None:
    """The same bits in everything that is not a time; with `clock` in that too."""
    for name in ("log_likelihoods", "pair_weights", "factor", "node_probabilities", "component_probabilities"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in ("offsets", "weights", "means", "scales", "noise_variances"):
        np.testing.assert_array_equal(getattr(a.mixtures, name), getattr(b.mixtures, name))
    timeless = [[dataclasses.replace(row, seconds=0.0) for row in post.history] for post in (a, b)]
    assert timeless[0] == timeless[1]
    assert not clock or a.history == b.history
    assert (a.log_evidence, a.log_evidence_sd) == (b.log_evidence, b.log_evidence_sd)


class Counter:
    """Counts the likelihoods that are really evaluated, and fails from one of the calls on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.calls, self.fail_at = 0, 0, -1
        real = mf.log_likelihood

        def counted(g: mf.GMMBatch, *args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls - 1 == self.fail_at:
                raise RuntimeError("the simulator is down")
            self.count += len(g)
            return real(g, *args, **options)

        monkeypatch.setattr(problem, "log_likelihood", counted)


@BOTH
def test_a_checkpoint_changes_nothing_and_gives_the_run_again(
    settings: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, written = fit(settings), fit(settings, path)
    assert_same(plain, written)
    content, counter = path.read_bytes(), Counter(monkeypatch)
    assert_same(written, fit(settings, path), clock=True)
    assert counter.count == 0
    assert path.read_bytes() == content


@BOTH
def test_searches_are_made_again(settings: dict[str, Any], path: Path) -> None:
    settings = {**settings, "acquisition": "information", "batch_size": 5}
    settings |= {"budget": 36, "initial": 30, "nodes": 32}
    whole = fit(settings, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    assert_same(whole, fit(settings, path))


@BOTH
def test_a_file_cut_anywhere_goes_on_to_the_same_bits(
    settings: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the ends of records, a byte off, in the header, and at random; no likelihood of a whole record twice."""
    whole = fit(settings, path)
    content = path.read_bytes()
    ends, place = [], content.index(b"\n") + 1
    while place < len(content):
        place += 28 + int.from_bytes(content[place : place + 8], "little")
        ends.append(place)
    cuts = {0, 5, content.index(b"\n") + 1, ends[0], ends[0] - 1, ends[1] + 1, ends[-2], ends[-1] - 1}
    cuts |= {int(c) for c in np.random.default_rng(0).integers(len(content), size=6)}
    counter = Counter(monkeypatch)
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        kept, counter.count = killing.size_and_count(path)[1], 0
        assert_same(whole, fit(settings, path))
        assert counter.count + kept == whole.history[-1].evaluations
        assert killing.size_and_count(path)[1] == whole.history[-1].evaluations


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Five times SIGKILL; ``python tests/killing.py 50`` does fifty."""
    chance = random.Random(7)
    for proposals, kills in (("laplace", 3), ("prior", 2)):
        bits, seconds = killing.timed(proposals, 300, 120, None)
        path = tmp_path / proposals
        for _ in range(kills):
            killing.killed(proposals, 300, 120, path, chance, seconds)
        assert killing.run(proposals, 300, 120, str(path)) == bits


@BOTH
def test_a_likelihood_that_fails_leaves_the_batches_before(
    settings: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)
    whole = fit(settings)
    counter.calls, counter.fail_at = 0, counter.calls - 1
    with pytest.raises(RuntimeError, match="the simulator is down") as error:
        fit(settings, path)
    kept = killing.size_and_count(path)[1]
    assert error.value.__notes__ == [f"checkpoint: {path} keeps the {kept} likelihoods of the batches before"]
    assert kept >= 20
    counter.count = 0
    assert_same(whole, fit(settings, path))
    assert counter.count == whole.history[-1].evaluations - kept


@BOTH
def test_ctrl_c_and_callbacks_end_a_run_that_can_go_on(settings: dict[str, Any], path: Path) -> None:
    whole = fit(settings)

    def interrupt(row: mf.HistoryRow) -> None:
        if row.evaluations >= 20:
            raise KeyboardInterrupt

    for _ in range(2):  # the second time within the journal
        assert any("interrupted" in warning for warning in fit(settings, path, callback=interrupt).warnings)
    assert fit(settings, path, callback=lambda row: True).history[0].evaluations <= 20
    assert_same(whole, fit(settings, path))


def test_prior_proposals_take_a_larger_budget(path: Path) -> None:
    """A last batch that the smaller budget had cut short is evaluated anew."""
    for budget in (27, 40, 43, 60):
        assert_same(fit(PRIOR, path, budget=budget), fit(PRIOR, budget=budget))
    before = path.read_bytes()
    with pytest.raises(mf.DataError, match="holds more than this budget asks for: 60 likelihoods"):
        fit(PRIOR, path, budget=37)
    assert fit(PRIOR, path, budget=30).history[-1].evaluations == 30
    assert path.read_bytes() == before


@BOTH
def test_time_budgets_follow_the_clock_of_the_file(settings: dict[str, Any], path: Path) -> None:
    """Decisions by time are repeated as they were taken; the clock goes on where the file ends."""
    settings = {**settings, "budget": None, "time_budget": 1.0}
    whole = fit(settings, path)
    assert_same(whole, fit(settings, path), clock=True)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again = fit(settings, path)
    count = len([row for row in again.history if row in whole.history])
    assert count >= 1
    assert again.history[:count] == whole.history[:count]
    assert all(b.seconds > a.seconds for a, b in zip(again.history, again.history[1:], strict=False))
    assert again.history[-2].seconds < 2.0


def test_prior_proposals_take_more_time(path: Path) -> None:
    short = fit(PRIOR, path, budget=None, time_budget=0.4)
    longer = fit(PRIOR, path, budget=None, time_budget=1.2)
    count = len(short.history)
    assert longer.history[:count] == short.history
    assert len(longer.history) >= count
    assert_same(longer, fit(PRIOR, path, budget=None, time_budget=1.2), clock=True)


def test_without_a_seed_the_file_keeps_one(path: Path) -> None:
    whole = fit(QUICK, path, seed=None)
    path.write_bytes(path.read_bytes()[:-300])
    assert_same(whole, fit(QUICK, path, seed=None))
    assert fit(QUICK, seed=None).log_evidence != whole.log_evidence


def test_generators_are_compared_by_their_state(path: Path) -> None:
    whole = fit(QUICK, path, seed=np.random.default_rng(1))
    path.write_bytes(path.read_bytes()[:-300])
    used = np.random.default_rng(1)
    used.normal()
    for other in (used, None, 1):
        with pytest.raises(mf.DataError, match="of another run: seed differs"):
            fit(QUICK, path, seed=other)
    assert_same(whole, fit(QUICK, path, seed=np.random.default_rng(1)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": data()[1] + 1e-15 * (np.arange(30) == 3)}, "another run: y differs"),
        ({"X": data()[0] + 1.0}, "another run: X differs"),
        ({"X": np.float32(data()[0])}, "X differs"),
        ({"budget": 151}, "another run: budget is 150 there, 151 here"),
        ({"time_budget": 9.0}, "another run: time_budget is None there, 9.0 here"),
        ({"seed": 4}, "another run: seed is 3 there, 4 here"),
        ({"nodes": 65}, "another run: nodes is 64 there, 65 here"),
        ({"batch_size": 11}, "another run: batch_size is 10 there, 11 here"),
        ({"initial": 50}, "another run: initial is 100 there, 50 here"),
        ({"trend": "none"}, "another run: trend is linear there, none here"),
        ({"acquisition": "information"}, "another run: acquisition is random there, information here"),
        ({"standardise": False}, "standardise is True there, False here"),
        ({"max_components": 3}, "max_components is 2 there, 3 here, prior.size_probabilities differs"),
        ({"noise_variance": 0.1}, "another run: prior.noise_variance is LogNormal"),
        ({"proposals": "prior", "acquisition": "random"}, "another run: proposals is laplace there, prior here"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_runs_are_refused_by_name(changes: dict[str, Any], message: str, written: bytes, path: Path) -> None:
    path.write_bytes(written)
    values = {"X": data()[0], "y": data()[1], **QUICK, **changes}
    with pytest.raises(mf.DataError) as error:
        mf.marginalise(values.pop("X"), values.pop("y"), checkpoint=path, **values)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint that is not there yet."""
    return tmp_path / "run.checkpoint"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a finished run."""
    path = tmp_path_factory.mktemp("written") / "run.checkpoint"
    fit(QUICK, path)
    return path.read_bytes()


def test_other_priors_and_versions_are_refused_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**QUICK, "max_components": None, "trend": "none"}
    prior = mf.Prior.from_data(data()[0], 2)
    fit(settings, path, prior=prior)
    with pytest.raises(mf.DataError, match=r"another run: prior\.concentration is 1\.0 there, 2\.0 here"):
        fit(settings, path, prior=dataclasses.replace(prior, concentration=2.0))
    with pytest.raises(mf.DataError, match=r"another run: prior\.mean_sd differs"):
        fit(settings, path, prior=dataclasses.replace(prior, mean_sd=2 * prior.mean_sd))
    monkeypatch.setattr(journal, "__version__", "9.0")
    with pytest.raises(mf.DataError, match=r"another run: version is .* there, 9\.0 here"):
        fit(settings, path, prior=prior)


def test_batches_of_another_state_of_the_package_are_refused(
    written: bytes, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All names agree, but the run asks for other mixtures: better no result than one of two halves."""
    path.write_bytes(written)
    monkeypatch.setattr("maskerade_fast.adaptive.adaptation._WIDER", 1.3)
    with pytest.raises(mf.DataError, match=r"not batch \d+: was it written on another CPU model"):
        fit(QUICK, path)
    assert path.read_bytes() == written


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x,y\n1,2\n", "not a checkpoint; it is left as it is"),
        (b"maskerade_fast checkpoint of old", "not a checkpoint"),
        (b"maskerade_fast checkpoint 2\n", "written by a newer maskerade_fast"),
        (b"maskerade_fast checkpoint 1\n" + b"\x01" * 40, "damaged at byte 28"),
    ],
)
def test_other_files_are_left_alone(content: bytes, message: str, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(mf.DataError, match=message):
        fit(QUICK, path)
    assert path.read_bytes() == content


def test_damage_is_refused_and_a_lost_tail_is_not(written: bytes, path: Path) -> None:
    """A flipped bit anywhere but in what may be a torn tail is damage; zeros behind the end are a power failure."""
    whole = fit(QUICK)
    chance = np.random.default_rng(1)
    last = written[: killing.size_and_count(_file(path, written))[0]]
    for place in chance.integers(40, len(last) - 2000, size=12):
        changed = bytearray(written)
        changed[place] ^= 1 << int(chance.integers(8))
        with pytest.raises(mf.DataError, match=r"damaged at byte|of another run"):
            fit(QUICK, _file(path, changed))
        assert path.read_bytes() == changed
    end = killing.size_and_count(_file(path, written[:-200]))[0]
    length = 28 + int.from_bytes(written[end : end + 8], "little")
    for kept, tail in ((0, bytes(1)), (0, bytes(11)), (0, bytes(5000)), (20, b""), (40, bytes(length - 40))):
        assert_same(whole, fit(QUICK, _file(path, written[: end + kept] + tail)))


def _file(path: Path, content: bytes | bytearray) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("make", ["folder", "absent", "fifo", "device"])
def test_what_cannot_be_a_checkpoint_is_said_before_the_run(
    make: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, counter = tmp_path / "there", Counter(monkeypatch)
    if make == "folder":
        path.mkdir()
    elif make == "absent":
        path = path / "run.checkpoint"
    elif make == "device":
        path = Path(os.devnull)
    elif hasattr(os, "mkfifo"):
        os.mkfifo(path)
    with pytest.raises(mf.DataError, match=f"^checkpoint: {path}: (cannot|not a file)"):
        fit(QUICK, path)
    assert counter.calls == 0


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no file modes here")
def test_a_folder_that_cannot_be_written() -> None:
    """As a user other than root, whom modes do not bind."""
    with tempfile.TemporaryDirectory() as name:
        folder, user = Path(name), os.geteuid()
        folder.chmod(0o555)
        if user == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(mf.DataError, match=r"cannot be written \(Permission denied\)"):
                fit(QUICK, folder / "run.checkpoint")
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


def test_a_full_disk_keeps_what_is_there(path: Path) -> None:
    """By the largest file a process may write; the disk itself was filled by hand (docs/measured/limits.md)."""
    pytest.importorskip("resource", reason="no resource limits here")
    code = f"""
import resource, sys
sys.path[:0] = {sys.path!r}
import test_journal as t
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    t.fit(t.QUICK, t.Path({str(path)!r}))
except t.mf.DataError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    length, kept = killing.size_and_count(path)
    assert kept > 0
    assert path.stat().st_size == length
    reason = f"cannot be written (File too large); it keeps the {kept} likelihoods of the batches before"
    assert done.stdout == f"checkpoint: {path}: {reason}\n"
    assert_same(fit(QUICK), fit(QUICK, path))


def test_one_run_at_a_time(path: Path) -> None:
    pytest.importorskip("fcntl", reason="no locks here")

    def second(row: mf.HistoryRow) -> bool:
        with pytest.raises(mf.DataError, match="in use by another run"):
            fit(QUICK, path)
        return True

    fit(QUICK, path, callback=second)
    fit(QUICK, path)


def test_size_is_bounded_by_the_budget(written: bytes) -> None:
    """docs/measured/limits.md has the formula: numbers of values and gradients, some bytes a batch, the header."""
    evaluations, n, d = QUICK["budget"], QUICK["max_components"], 1
    assert len(written) <= 4096 + evaluations * (200 + 8 * (2 + n * (1 + 2 * d)))


def test_hostile_files_end_in_one_line(written: bytes, tmp_path: Path) -> None:
    """Records with right checksums and wrong content: no memory for what is only claimed, no other error."""
    import hashlib
    import struct
    import zlib

    def record(payload: bytes) -> bytes:
        head = struct.pack("<Q", len(payload))
        return head + struct.pack("<I", zlib.crc32(head)) + payload + hashlib.blake2b(payload, digest_size=16).digest()

    start = written.index(b"\n") + 1
    header = written[: start + 28 + int.from_bytes(written[start : start + 8], "little")]
    digest = bytes(16)
    payloads = [
        b"Q",
        b"B",
        b"B" + digest + struct.pack("<Q", 2**60),
        b"B" + digest + struct.pack("<QdQ", 0, 0.0, 5),
        b"B" + digest + struct.pack("<QdQB2Q", 0, 0.0, 5, 2, 2**40, 2**40),
        b"B" + digest + struct.pack("<QdQBQ", 0, 0.0, 5, 1, 2**62),
        b"B" + digest + struct.pack("<QdQB", 0, 0.0, 5, 255),
        b"B" + digest + struct.pack("<QdQB", 0, 0.0, 1, 0) + bytes(8),
        b"E",
        b"E" + struct.pack("<Q", 2**50),
    ]
    for payload in payloads:
        with pytest.raises(mf.DataError, match="damaged at byte"):
            fit(QUICK, _file(tmp_path / "run.checkpoint", header + record(payload)))
    for text in (b"[]", b"{", b"\xff", b"1e999", b"[" * 100_000):
        with pytest.raises(mf.DataError, match=r"damaged at byte|of another run"):
            fit(QUICK, _file(tmp_path / "run.checkpoint", written[:start] + record(text)))
