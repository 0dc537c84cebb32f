"""How commands speak and end: any encoding, closed, full and broken streams, interrupts, exit statuses."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import qmc

from maskerade_fast import BackendUnavailableError, DataError, MissingDependencyError, UsageError
from maskerade_fast._checks import positive
from maskerade_fast._start import is_command
from maskerade_fast._streams import Stream
from maskerade_fast.cli import console, main
from maskerade_fast.cli.console import Session, run
from maskerade_fast.run.drive import progress_bar
from maskerade_fast.storage import output_files

posix = pytest.mark.skipif(os.name != "posix", reason="signals, descriptors and /dev/full of POSIX")


class Failing(io.StringIO):
    """A stream of which `name` fails."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__()

        def fail(*_: Any) -> None:
            raise error

        setattr(self, name, fail)


def said(capsys: pytest.CaptureFixture[str], work: Callable[[Session], int]) -> tuple[int, str, str]:
    status = run(work)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def failing(error: BaseException) -> Callable[[Session], int]:
    def work(session: Session) -> int:
        session.program = "maskerade-fast fit"
        raise error

    return work


# ---- streams ----


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", b"1 +- 2 ?_$ ?\n"),
        ("latin-1", b"1 \xb1 2 ?_$ ?\n"),
        ("cp437", b"1 \xf1 2 ?_$ ?\n"),
        ("utf-8", "1 ± 2 漢_$ ?\n".encode()),
    ],
)
def test_what_an_encoding_lacks_is_replaced(encoding: str, shown: bytes) -> None:
    """The last one is half of a pair, as file names that are no UTF-8 have."""
    raw = io.BytesIO()
    stream = Stream(io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n"))
    print("1 ± 2 漢_$ \udce9", file=stream, flush=True)
    assert raw.getvalue() == shown
    assert stream.failure is None


def test_data_are_utf8_in_every_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", newline="\r\n"))

    def work(session: Session) -> int:
        print("first")
        session.data_writer()("漢,±\n")
        print("last")
        return 0

    assert run(work) == 0
    assert raw.getvalue() == "first\r\n漢,±\nlast\r\n".encode()


@pytest.mark.parametrize("name", ["write", "flush"])
@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (OSError(28, "No space left on device"), 2, "standard output: cannot be written (No space left on device)"),
        (ValueError("I/O operation on closed file"), 2, "standard output: cannot be written (I/O operation on closed"),
        (BrokenPipeError(32, "Broken pipe"), 0, ""),
    ],
)
def test_a_stream_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, status: int, line: str
) -> None:
    done, errors = [], io.StringIO()
    monkeypatch.setattr(sys, "stdout", Failing(name, error))
    monkeypatch.setattr(sys, "stderr", errors)

    def work(_: Session) -> int:
        print("report")
        print("more", flush=True)
        done.append(True)
        return 0

    assert run(work) == status
    assert done == [True]
    assert line in errors.getvalue()
    assert errors.getvalue().count("\n") == bool(line)


def test_no_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under pythonw, or `>&- 2>&-`: a lost report is status 2, lost messages beside a report are not."""

    def work(session: Session) -> int:
        session.warn("odd")
        print("report")
        return 0

    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert run(work) == 0
    monkeypatch.setattr(sys, "stdout", None)
    assert run(work) == 2

    def silent(session: Session) -> int:
        session.warn("odd")
        return 0

    assert run(silent) == 0


def test_streams_come_back() -> None:
    def state() -> list[Any]:
        return [sys.stdout, sys.stderr, sys.unraisablehook, signal.getsignal(signal.SIGINT), warnings.showwarning]

    before = state()
    assert [run(failing(DataError("x"))), run(failing(KeyboardInterrupt()))] == [2, 130]
    with pytest.raises(SystemExit) as stop:
        run(failing(SystemExit(3)))
    assert stop.value.code == 3
    assert state() == before


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work(session: Session) -> int:
        warnings.warn("first\nsecond", stacklevel=1)
        session.quiet = True
        warnings.warn("unheard", stacklevel=1)
        return 0

    assert said(capsys, work) == (0, "", "Warning: first second\n")


@pytest.mark.parametrize("stream", [None, Failing("write", OSError(5, "Input/output error"))])
def test_progress_bar_on_a_broken_stream(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(True, 100) as bar:
        bar.set_postfix_str("log evidence 1.00 ± 0.10", refresh=False)
        bar.update(50)


# ---- exit statuses ----


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DataError("d.csv: empty"), "d.csv: empty"),
        (UsageError("--columns: 'a,'"), "--columns: 'a,'"),
        (MissingDependencyError("a picture needs a library"), "a picture needs a library"),
        (BackendUnavailableError("no GPU\nhere"), "no GPU here"),
        (MemoryError("8 GB are needed"), "8 GB are needed"),
        (MemoryError(), "not enough memory"),
        (FileNotFoundError(2, "No such file or directory", "x.npz"), "x.npz: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_what_a_user_can_cause(capsys: pytest.CaptureFixture[str], error: Exception, line: str) -> None:
    assert said(capsys, failing(error)) == (2, "", f"maskerade-fast fit: {line}\n")


def test_arguments_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    """Their names tell them from the package's own faults; so does who raised."""
    assert said(capsys, lambda _: int(positive(-1.0, "time_budget"))) == (
        2,
        "",
        "maskerade-fast: time_budget: -1.0, expected > 0\n",
    )
    status, _, err = said(capsys, lambda _: int(positive(-1.0, "lengthscale")))
    assert status == 1
    assert "internal error: ValueError: lengthscale: -1.0, expected > 0" in err
    assert said(capsys, failing(ValueError("y: raised outside of the package")))[0] == 1


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), TypeError("'NoneType' object"), KeyError(3)])
def test_our_own_faults(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    status, out, err = said(capsys, failing(error))
    report = "(please report; MASKERADE_DEBUG=1 shows the traceback)"
    assert (status, out) == (1, "")
    assert err == f"maskerade-fast fit: internal error: {type(error).__name__}: {error} {report}\n"
    monkeypatch.setenv("MASKERADE_DEBUG", "1")
    assert "Traceback" in said(capsys, failing(error))[2]


def test_help_has_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "130 interrupted" in " ".join(capsys.readouterr().out.split())


# ---- interrupts ----


@posix
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals(capsys: pytest.CaptureFixture[str], number: str) -> None:
    def early(session: Session) -> int:
        signal.raise_signal(signal.Signals[number])
        return 0

    def late(session: Session) -> int:
        session.result_is_there()
        return early(session)

    def kept(session: Session) -> int:
        try:
            early(session)
        except KeyboardInterrupt:
            print("report")
        return 0

    def again(session: Session) -> int:
        late(session)
        session._raised = -math.inf  # some time later
        return early(session)

    assert said(capsys, early) == (130, "", "maskerade-fast: interrupted before there was a result\n")
    assert said(capsys, late) == (130, "", "maskerade-fast: interrupted; all is written\n")
    assert said(capsys, again) == (130, "", "maskerade-fast: interrupted before everything was written\n")
    rests = "maskerade-fast: interrupted; the result rests on what was evaluated until then\n"
    assert said(capsys, kept) == (130, "report\n", rests)


@posix
def test_a_second_interrupt_lets_the_first_clean_up(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cleaned = []

    def work(_: Session) -> int:
        try:
            with output_files.replacing(tmp_path / "a"):
                signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            cleaned.append(list(tmp_path.iterdir()))
        return 0

    assert said(capsys, work)[0] == 130
    assert cleaned == [[]]


@posix
def test_an_interrupt_that_gets_lost(capsys: pytest.CaptureFixture[str]) -> None:
    """In a destructor, or within an import that ends with another error."""

    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def destructor(_: Session) -> int:
        Interrupted()
        return 0

    def half_imported(session: Session) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException:
            raise NameError("name 'half' is not defined") from None
        return 0

    status, _, err = said(capsys, destructor)
    assert (status, err.count("\n")) == (130, 1)
    assert said(capsys, half_imported) == (130, "", "maskerade-fast: interrupted before there was a result\n")


@posix
@pytest.mark.parametrize("count", [1, 4])
def test_modules_are_loaded_whole_before_an_interrupt(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Python keeps C extensions that an interrupt has left half made, and they crash later; who insists gets out."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "module_of_this_test", raising=False)
    code = f"import signal\nfor _ in range({count}): signal.raise_signal(2)\nwhole = True\n"
    (tmp_path / "module_of_this_test.py").write_text(code)

    def work(_: Session) -> int:
        import module_of_this_test  # type: ignore[import-not-found]  # noqa: F401

        time.sleep(20.0)
        return 0

    started = time.monotonic()
    assert said(capsys, work)[0] == 130
    assert time.monotonic() - started < 15.0
    assert hasattr(sys.modules.get("module_of_this_test"), "whole") == (count == 1)


@posix
def test_an_interrupt_while_scipy_reads_its_table_of_sobol_directions(tmp_path: Path) -> None:
    """SciPy swallows it, with a traceback, and draws nets from half a table."""
    code = """if True:
        import signal, time
        import numpy as np
        from scipy.stats import qmc
        from maskerade_fast.cli.console import run

        def work(session):
            read = np.lib.npyio.NpzFile.__getitem__
            def interrupted(*arguments):
                signal.raise_signal(signal.SIGINT)
                return read(*arguments)
            np.lib.npyio.NpzFile.__getitem__ = interrupted
            try:
                qmc.Sobol(40)
                time.sleep(20.0)
            except KeyboardInterrupt:
                print(qmc.Sobol(40, scramble=False).random(4)[3].sum(), session.interrupts)
            return 0

        raise SystemExit(run(work))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    rests = "maskerade-fast: interrupted; the result rests on what was evaluated until then\n"
    assert (done.returncode, done.stderr) == (130, rests)
    assert done.stdout.split() == [str(qmc.Sobol(40, scramble=False).random(4)[3].sum()), "2"]


@posix
def test_signals_that_the_caller_ignores_stay_ignored() -> None:
    """As in the background of a shell script, or under nohup."""

    def interrupted(_: Session) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(interrupted) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_on_another_thread(capsys: pytest.CaptureFixture[str]) -> None:
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(run(lambda _: 0)))
    thread.start()
    thread.join()
    assert statuses == [0]


@posix
@pytest.mark.parametrize("command", [["-m", "maskerade_fast"], [str(Path(sys.executable).parent / "maskerade-fast")]])
@pytest.mark.parametrize("wait", [0.0, 0.2])
def test_an_interrupt_while_modules_load(command: list[str], wait: float, tmp_path: Path) -> None:
    """A module at the head of the path tells that loading has begun."""
    if not command[0].startswith("-") and not Path(command[0]).exists():
        pytest.skip("the command is not installed beside this Python")
    (tmp_path / "scipy.py").write_text("import sys, time\nsys.stdout.write('!')\nsys.stdout.flush()\ntime.sleep(9)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    started = subprocess.Popen(
        [sys.executable, *command, "info"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdout is not None
    assert started.stdout.read(1) == b"!"
    time.sleep(wait)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=20)
    assert (started.returncode, err) == (130, b"maskerade-fast: interrupted before there was a result\n")


@pytest.mark.parametrize(
    ("argv", "orig_argv", "command"),
    [
        (["/bin/maskerade-fast", "fit"], ["python", "/bin/maskerade-fast", "fit"], True),
        (["-m", "fit", "d.csv"], ["python", "-X", "dev", "-m", "maskerade_fast", "fit", "d.csv"], True),
        (["-m"], ["python", "-mmaskerade_fast"], True),
        (["-m", "maskerade_fast"], ["python", "-m", "pytest", "maskerade_fast"], False),
        (["/bin/maskerade-fast", "fit"], ["python", "-c", "from multiprocessing.spawn import spawn_main"], False),
        (["mine.py"], ["python", "mine.py"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_a_command_is_told_from_other_programs(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], orig_argv: list[str], command: bool
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", orig_argv)
    assert is_command() == command


def test_an_import_as_a_library_changes_no_handlers() -> None:
    code = "import signal; b = signal.getsignal(2); import maskerade_fast; assert signal.getsignal(2) is b"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_of_arguments_are_those_of_marginalise() -> None:
    import inspect

    from maskerade_fast import marginalise

    assert {"X", "y", "budget", "trend", "seed"} <= set(inspect.signature(marginalise).parameters)
    assert {"X", "y", "budget", "trend", "seed"} <= console.USERS_ARGUMENTS
