"""Files that the user asks for: written whole or not at all, and refused before the work if they cannot be."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maskerade_fast import DataError, MissingDependencyError, UsageError
from maskerade_fast.storage import output_files
from maskerade_fast.storage.archive import load_arrays, save_arrays
from maskerade_fast.storage.output_checks import check_outputs
from maskerade_fast.storage.output_files import replacing, replacing_text

posix = pytest.mark.skipif(os.name != "posix", reason="links, pipes, devices and modes of POSIX")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "a"


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert list(tmp_path.rglob("*.tmp")) == []
    assert output_files._unfinished == {}


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


def fail_within(writer: Any, half: Any, error: BaseException) -> None:
    with writer as file:
        file.write(half)
        raise error


def refused(option: str, path: Any, *inputs: Path, **others: Path) -> str:
    """The one line, which names option and path."""
    outputs = {f"--{name}": other for name, other in others.items()} | {option: path}
    with pytest.raises(UsageError) as caught:
        check_outputs(outputs, inputs)
    message = str(caught.value)
    assert message.startswith(f"{option}: ")
    assert "\n" not in message
    return message


# ---- replacing ----


def test_new_and_old_files(path: Path) -> None:
    write(path, b"first and longer")
    write(path, b"second")
    assert path.read_bytes() == b"second"
    with replacing_text(path) as text:
        text.write("±漢\n")
    assert path.read_bytes() == "±漢\n".encode()


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
@pytest.mark.parametrize("old", [None, b"old"])
def test_an_error_leaves_what_was_there(path: Path, error: BaseException, old: bytes | None) -> None:
    if old is not None:
        path.write_bytes(old)
    for writer in (replacing, replacing_text):
        half = "half" if writer is replacing_text else b"half"
        with pytest.raises(type(error)):
            fail_within(writer(path), half, error)
        assert (path.read_bytes() if path.exists() else None) == old


def test_an_interrupt_while_the_content_goes_to_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"old")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                write(path)
        assert path.read_bytes() == b"old"


def test_what_a_second_interrupt_leaves_goes_at_the_end_of_the_process(tmp_path: Path) -> None:
    temporary = Path(output_files.temporary_name(str(tmp_path / "a")))
    temporary.write_bytes(b"half")
    output_files._unfinished["/of/another/process.tmp"] = -1
    output_files.remove_unfinished()
    assert not temporary.exists()
    assert output_files._unfinished.pop("/of/another/process.tmp") == -1


@posix
def test_links_stay_and_their_targets_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link, dangling = tmp_path / "folder" / "target", tmp_path / "link", tmp_path / "dangling"
    target.write_bytes(b"old")
    link.symlink_to("folder/target")
    dangling.symlink_to(tmp_path / "folder" / "fresh")
    write(link)
    write(dangling)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert target.read_bytes() == (tmp_path / "folder" / "fresh").read_bytes() == b"new"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "loop")


@posix
def test_modes(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"")
    for mode in (0o600, 0o640, 0o755):
        old.chmod(mode)
        write(old)
        assert stat.S_IMODE(old.stat().st_mode) == mode
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            write(new)
        finally:
            os.umask(before)
        assert stat.S_IMODE(new.stat().st_mode) == 0o666 & ~mask
        new.unlink()


@posix
def test_a_private_file_is_private_while_it_is_written(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o600)
    with replacing(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600


@posix
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_owners(path: Path) -> None:
    path.write_bytes(b"")
    os.chown(path, 1234, 2345)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


@posix
def test_a_name_of_255_bytes(tmp_path: Path) -> None:
    path = tmp_path / ("漢" * 85)
    write(path)
    check_outputs({"--save": path}, [])
    assert path.read_bytes() == b"new"
    assert "cannot be written (File name too long)" in refused("--save", tmp_path / ("x" * 256))


def test_two_writers_leave_one_whole_file(path: Path) -> None:
    contents = [bytes([65 + k]) * 200_000 for k in range(8)]
    threads = [threading.Thread(target=write, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_that_takes_no_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The old file is written into; a new one cannot be."""
    old, opened = tmp_path / "old", os.open
    old.write_bytes(b"long enough to be cut")

    def closed(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT and Path(path).parent == tmp_path:
            raise OSError(code, os.strerror(code))
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", closed)
    check_outputs({"--save": old}, [])
    write(old)
    assert old.read_bytes() == b"new"
    assert f"cannot be written ({os.strerror(code)})" in refused("--save", tmp_path / "new")
    with pytest.raises(OSError, match=os.strerror(code)):
        write(tmp_path / "new")


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EPERM])
def test_a_file_that_cannot_be_renamed_over(path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """One that is mounted by itself, as containers do, or another's in a folder like /tmp."""

    def busy(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    path.write_bytes(b"long enough to be cut")
    monkeypatch.setattr(os, "replace", busy)
    write(path)
    assert path.read_bytes() == b"new"


def test_a_read_only_file_is_not_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may always write
    with pytest.raises(PermissionError):
        write(path)
    assert path.read_bytes() == b"old"
    assert "cannot be written (Permission denied)" in refused("--save", path)


def test_a_folder_is_refused_before_the_block(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), replacing(tmp_path):
        pytest.fail("the block began")


# ---- pipes and devices ----


@posix
def test_devices_stay(tmp_path: Path) -> None:
    before = os.stat(os.devnull)
    write(Path(os.devnull))
    assert os.path.samestat(before, os.stat(os.devnull))
    check_outputs({"--save": Path(os.devnull), "--predictions": Path(os.devnull)}, [Path(os.devnull)])
    if Path("/dev/full").exists():
        with pytest.raises(OSError, match="No space left"):
            write(Path("/dev/full"))
        with pytest.raises(DataError, match=r"/dev/full: cannot be written \(No space left on device\)"):
            save_arrays("/dev/full", {"a": 1.0}, kind="thing", version=1)


@posix
def test_standard_output_as_a_file(tmp_path: Path) -> None:
    """Into a pipe, and behind what a file has already; a link to it is the same."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    code = """if True:
        import sys
        from maskerade_fast.storage.archive import save_arrays
        from maskerade_fast.storage.output_checks import check_outputs
        check_outputs({"--save": sys.argv[1]}, [])
        save_arrays(sys.argv[1], {"a": [1.0, 2.0]}, kind="thing", version=1)
    """
    for name in ("/dev/stdout", str(tmp_path / "link")):
        command = [sys.executable, "-c", code, name]
        content = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        (tmp_path / "model").write_bytes(content)
        assert load_arrays(tmp_path / "model", kind="thing", version=1)["a"].tolist() == [1.0, 2.0]
    log = tmp_path / "log"
    log.write_bytes(b"before ")
    with log.open("ab") as end:
        subprocess.run(command, stdout=end, check=True)
    assert log.read_bytes()[:9] == b"before PK"


@posix
def test_descriptors(tmp_path: Path) -> None:
    end, start = os.pipe()
    try:
        check_outputs({"--predictions": Path(f"/dev/fd/{start}")}, [])
        write(Path(f"/dev/fd/{start}"), b"through")
        assert os.read(end, 100) == b"through"
        assert "open for reading only" in refused("--save", Path(f"/dev/fd/{end}"))
    finally:
        os.close(end)
        os.close(start)
    assert "Bad file descriptor" in refused("--save", Path(f"/dev/fd/{start}"))


@posix
def test_named_pipes(tmp_path: Path) -> None:
    """One without a reader would wait for ever; one with a reader is written, and seen to end but once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "a pipe that nobody reads" in refused("--save", pipe)
    with pytest.raises(OSError, match="No such device or address"):
        write(pipe)
    for checked in (True, False):
        reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
        if checked:
            while True:  # until cat has opened it
                try:
                    check_outputs({"--save": pipe}, [])
                    break
                except UsageError:
                    pass
            write(pipe, b"all" * 10_000)
        else:
            while True:
                try:
                    write(pipe, b"all" * 10_000)
                    break
                except OSError:
                    pass
        assert reader.communicate(timeout=20)[0] == b"all" * 10_000
    assert output_files._pipes == {}


@posix
def test_sockets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.chdir(tmp_path)  # their names are short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        assert "a disk or a socket" in refused("--save", Path("s"))


# ---- check_outputs ----


def test_good_outputs_are_left_alone(tmp_path: Path) -> None:
    old = tmp_path / "old.ckpt"
    old.write_bytes(b"kept")
    data = tmp_path / "d.csv"
    data.write_bytes(b"1,2\n")
    outputs = {"--save": tmp_path / "m.npz", "--checkpoint": old, "--predictions": None}
    check_outputs(outputs, [data, tmp_path / "none"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.csv", "old.ckpt"]
    assert old.read_bytes() == b"kept"


def test_the_same_file_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, new = tmp_path / "d.csv", tmp_path / "new"
    data.write_bytes(b"1,2\n")
    monkeypatch.chdir(tmp_path)
    message = refused("--save", Path("d.csv"), data)
    assert message == f"--save: d.csv: the same file as the input {data}, expected another name"
    assert "the same file as --predictions new" in refused("--save", new, predictions=Path("new"))
    assert "the same file as --checkpoint" in refused("--save", Path("x/../new"), checkpoint=new)
    assert data.read_bytes() == b"1,2\n"


@posix
def test_the_same_file_by_links(tmp_path: Path) -> None:
    data, hard, soft = tmp_path / "d.csv", tmp_path / "hard", tmp_path / "soft"
    data.write_bytes(b"1,2\n")
    hard.hardlink_to(data)
    soft.symlink_to(data)
    (tmp_path / "there").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to("new")
    for path in (hard, soft, tmp_path / "there" / "d.csv"):
        assert "the same file as the input" in refused("--save", path, data)
    assert "the same file as --checkpoint" in refused("--save", tmp_path / "there" / "p", checkpoint=tmp_path / "p")
    assert "the same file as --predictions" in refused("--save", tmp_path / "dangling", predictions=tmp_path / "new")


def test_names_that_differ_by_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files where the folder tells them apart, else one."""
    pair = {"predictions": tmp_path / "out"}
    alike = (tmp_path / "out").exists() or not _tells_case(tmp_path)
    if not alike:
        check_outputs({"--save": tmp_path / "OUT", "--predictions": tmp_path / "out"}, [])
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: exists(path) or str(path).endswith(".TMP"))
    assert "the same file as" in refused("--save", tmp_path / "OUT", **pair)


def _tells_case(folder: Path) -> bool:
    (folder / "case").write_bytes(b"")
    try:
        return not (folder / "CASE").exists()
    finally:
        (folder / "case").unlink()


def test_places_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "a folder, expected the name of a file" in refused("--save", tmp_path)
    assert "no folder" in refused("--save", tmp_path / "none" / "m.npz")
    assert "cannot be written (Not a directory)" in refused("--save", tmp_path / "file" / "m.npz")
    assert "an empty name" in refused("--save", "")
    assert "a folder" in refused("--save", Path())
    assert repr("a\nb")[1:-1] in refused("--save", tmp_path / "a\nb" / "c")


def test_the_file_that_the_report_goes_to(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from maskerade_fast.storage.output_checks import check_outputs
        check_outputs({"--save": sys.argv[1]}, [])
    """
    for stream in ("stdout", "stderr"):
        with (tmp_path / stream).open("wb") as log:
            command = [sys.executable, "-c", code, str(tmp_path / stream)]
            done = subprocess.run(command, **{**{"stdout": -1, "stderr": -1}, stream: log})  # type: ignore[call-overload]
            said = (done.stderr or (tmp_path / stream).read_bytes()).decode()
        assert done.returncode == 1
        assert f"the file that standard {'output' if stream == 'stdout' else 'error'} goes to" in said


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.png", "a.PDF", "a", ".png", "a.b.svg"):
        check_outputs({"--plot": tmp_path / name}, [])
    message = refused("--plot", tmp_path / "fit.2024")
    assert "no picture has the suffix .2024, expected one of ." in message
    assert ".png" in message
    assert "no picture has the suffix .pgf" in refused("--plot", tmp_path / "a.pgf")
    check_outputs({"--save": tmp_path / "fit.2024"}, [])
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    with pytest.raises(MissingDependencyError, match=r"--plot needs matplotlib: pip install 'maskerade_fast\[plot\]'"):
        check_outputs({"--plot": tmp_path / "a.png"}, [])


def test_matplotlib_is_imported_for_a_plot_only(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from maskerade_fast.storage.output_checks import check_outputs
        check_outputs({"--save": sys.argv[1], "--plot": None}, [])
        sys.exit("matplotlib" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")]).returncode == 0
