"""Archives: what was saved, or one line that names the file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from maskerade_fast import DataError
from maskerade_fast.storage.archive import load_arrays, save_arrays


def written(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_archive_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "model"  # no suffix is added
    arrays: dict[str, Any] = {
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">f4"),
        "flags": np.array([True, False]),
        "number": 0.1,
        "words": np.array(["a", "µ"]),
        "no words": np.array([], dtype=np.str_),
        "no word": np.array(""),
        "none": np.empty((0, 2)),
        "cube": np.arange(8).reshape(2, 2, 2),
    }
    save_arrays(path, arrays, kind="thing", version=2)
    loaded = load_arrays(path, kind="thing", version=2)
    assert loaded.keys() == arrays.keys()
    for name, value in arrays.items():
        assert_array_equal(loaded[name], np.asarray(value), strict=True)
        assert loaded[name].flags.writeable
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_archive_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.npz"
    save_arrays(path, {"a": 1.0}, kind="thing", version=1)

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
        save_arrays(path, {"a": 2.0}, kind="thing", version=1)
    assert load_arrays(path, kind="thing", version=1)["a"] == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_archive_refuses_objects(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"arrays\['a'\]: dtype object"):
        save_arrays(tmp_path / "model.npz", {"a": np.array([None])}, kind="thing", version=1)


def test_archive_refuses_other_files(tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    save_arrays(good, {"a": np.arange(1000.0)}, kind="thing", version=3)
    content = good.read_bytes()
    foreign = tmp_path / "foreign.npz"
    np.savez(foreign, a=1.0)
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, a=np.array([{}], dtype=object), maskerade_fast_kind="thing", maskerade_fast_version=3)
    other_zip = tmp_path / "other.zip"
    with zipfile.ZipFile(other_zip, "w") as archive:
        archive.writestr("hello.txt", "hello")
    middle = len(content) // 2
    cases = [
        (written(tmp_path, content[:-30], "cut.npz"), "damaged, or not a file saved"),
        (written(tmp_path, content[:middle] + b"\0" * 40 + content[middle + 40 :], "hit.npz"), "damaged"),
        (written(tmp_path, "a,b\n1,2\n", "text.npz"), "damaged, or not a file saved"),
        (written(tmp_path, b"", "empty.npz"), "damaged, or not a file saved"),
        (tmp_path / "none.npz", "No such file"),
        (tmp_path, "cannot be read"),
        (foreign, "not a file saved by maskerade_fast"),
        (other_zip, "not a file saved by maskerade_fast"),
        (pickled, "damaged"),
    ]
    for path, message in cases:
        with pytest.raises(DataError, match=message) as caught:
            load_arrays(path, kind="thing", version=3)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"written by a newer maskerade_fast \(layout 3 > 2\)"):
        load_arrays(good, kind="thing", version=2)
    with pytest.raises(DataError, match="holds a thing, expected a posterior"):
        load_arrays(good, kind="posterior", version=3)
