"""Inputs as users have them: exact numbers of long integers, names of data frames, units, targets in any form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from maskerade_fast.model.inputs import Inputs, check_names, frame_columns, targets


class Column:
    """A column of a data frame, with what `inputs` asks of pandas' and polars' ones."""

    def __init__(self, values: Any, name: Any = "a") -> None:
        self.values, self.name = np.asarray(values), name
        self.shape, self.dtype = self.values.shape, self.values.dtype

    name: Any = None

    def to_numpy(self) -> Any:
        return self.values

    def __len__(self) -> int:
        return len(self.values)


class PolarsLike:
    def __init__(self, **columns: Any) -> None:
        self._columns = [Column(values, name) for name, values in columns.items()]
        self.columns = list(columns)

    def get_columns(self) -> list[Column]:
        return self._columns

    def __len__(self) -> int:
        return len(self._columns[0]) if self._columns else 0


class PandasLike(PolarsLike):
    get_columns = None  # type: ignore[assignment]

    def to_numpy(self) -> Any:
        return np.stack([column.values for column in self._columns], axis=1)

    @property
    def iloc(self) -> Any:
        class Picker:
            def __getitem__(_, key: Any) -> Column:
                return self._columns[key[1]]

        return Picker()


class ArrowLike:
    def __init__(self, **columns: Any) -> None:
        self._columns = [Column(values, name) for name, values in columns.items()]
        self._names = list(columns)

    @property
    def column_names(self) -> list[str]:
        return self._names

    def column(self, k: int) -> Column:
        return self._columns[k]


@pytest.mark.parametrize("origin", [1_700_000_000_000_000_000, -(2**63), 2**63 - 1000, 2**53, -(2**53) - 3, 7, -7, 0])
@pytest.mark.parametrize("dtype", [np.int64, ">i8"])
def test_integers_keep_their_differences(origin: int, dtype: Any) -> None:
    """C39: an offset of any size changes no difference, and is a float64 number itself."""
    steps = np.array([0, 1, 2, 3, 500, 999])
    X = Inputs.of((np.int64(origin) + steps).astype(dtype))
    assert X.numbers.dtype == np.float64
    assert_array_equal(np.diff(X.numbers[:, 0]), np.diff(steps))
    assert [int(X.origins[0]) + int(number) for number in X.numbers[:, 0]] == [origin + int(step) for step in steps]


def test_unsigned_and_wide_integers() -> None:
    X = Inputs.of(np.array([2**64 - 1, 2**64 - 3], dtype=np.uint64))
    assert_array_equal(X.numbers[:, 0] - X.numbers[1, 0], [2.0, 0.0])
    wide = Inputs.of(np.array([-(2**63), 2**63 - 1]))  # their difference is no int64
    assert wide.numbers[1, 0] - wide.numbers[0, 0] == 2.0**64
    assert_array_equal(Inputs.of(np.array([3, 1], dtype=np.uint8)).numbers[:, 0], [3.0, 1.0])


def test_columns_have_origins_of_their_own() -> None:
    X = Inputs.of(np.array([[2**60 + 1, 5], [2**60 + 2, 6]]))
    assert X.origins[0] == 2.0**60
    assert X.origins[1] == 0.0
    assert_array_equal(X.numbers, [[1.0, 5.0], [2.0, 6.0]])
    assert_array_equal(X.relative_to(np.array([2.0**60 + 2048.0, 1.0])), [[-2047.0, 4.0], [-2046.0, 5.0]])
    assert X.relative_to(X.origins) is X.numbers


@pytest.mark.skipif(
    bool(np.finfo(np.longdouble).eps > 1e-18), reason="long double has no more digits than float64 here"
)
def test_long_doubles() -> None:
    x = np.longdouble(1.7e9) + np.longdouble(2) ** -30 * np.arange(5)
    X = Inputs.of(x)
    assert X.origins[0] == 1.7e9
    assert_array_equal(X.numbers[:, 0], 2.0**-30 * np.arange(5))
    plain = Inputs.of(np.array([0.1, 0.9], dtype=np.longdouble))
    assert_array_equal(plain.numbers[:, 0], [0.1, 0.9])
    assert not plain.origins.any()


@pytest.mark.parametrize("frame", [PandasLike, PolarsLike, ArrowLike])
def test_frames(frame: Any) -> None:
    X = Inputs.of(frame(a=[1, 2], b=[0.5, 0.25], c=[True, False]))
    assert X.names == ("a", "b", "c")
    assert_array_equal(X.numbers, [[1.0, 0.5, 1.0], [2.0, 0.25, 0.0]])
    with pytest.raises(TypeError, match=r"X: column 'when' holds datetime64\[D\], expected real numbers"):
        Inputs.of(frame(a=[1.0], when=np.array(["2020-01-01"], dtype="M8[D]")))
    with pytest.raises(TypeError, match="X: column 'name' holds <U1, expected real numbers"):
        Inputs.of(frame(name=["x"]))
    with pytest.raises(ValueError, match=r"X, column 'b'\[1\]: nan, expected a finite number"):
        Inputs.of(frame(a=[1.0, 2.0], b=[1.0, np.nan]))
    exact = Inputs.of(frame(t=2**60 + np.arange(3), z=np.zeros(3)))
    assert_array_equal(exact.numbers[:, 0], [0.0, 1.0, 2.0])


def test_series_and_names_that_are_no_text() -> None:
    assert Inputs.of(Column([1.0, 2.0], "t")).names == ("t",)
    assert Inputs.of(Column([1.0, 2.0], None)).names is None
    assert Inputs.of(Column([1.0, 2.0], 3)).names is None
    for array in (np.zeros(3), [1.0, 2.0], 3.0):
        assert frame_columns(array, "X") is None
    assert Inputs.of(PandasLike(**{"1": [1.0], "0": [2.0]})).names == ("1", "0")
    assert Inputs.of(3.0).numbers.shape == (1, 1)
    assert Inputs.of(PolarsLike()).numbers.shape == (0, 0)


def test_order_of_names() -> None:
    X = Inputs(np.array([[1.0, 2.0, 3.0]]), np.array([10.0, 20.0, 30.0]), ("a", "b", "c"))
    other = X.ordered_as(("c", "a", "b"))
    assert_array_equal(other.numbers, [[3.0, 1.0, 2.0]])
    assert_array_equal(other.origins, [30.0, 10.0, 20.0])
    assert X.ordered_as(None) is X
    nameless = Inputs(X.numbers, X.origins)
    assert nameless.ordered_as(("c", "a", "b")) is nameless
    check_names(("a", "a", "b"), ("a", "a", "b"), "X")
    with pytest.raises(ValueError, match="some of one name"):
        check_names(("b", "a", "a"), ("a", "a", "b"), "X")


@pytest.mark.parametrize(
    "y",
    [[1.0, 2.0], [[1], [2]], Column([1.0, 2.0]), PolarsLike(y=[1, 2]), np.array([[1.0], [2.0]], order="F")],
    ids=["list", "column", "series", "frame", "Fortran"],
)
def test_targets(y: Any) -> None:
    array, name = targets(y)
    assert_array_equal(array, [1.0, 2.0])
    assert array.flags.c_contiguous
    assert name == {Column: "a", PolarsLike: "y"}.get(type(y))


def test_bad_targets() -> None:
    with pytest.raises(ValueError, match="y: 2 columns, expected one"):
        targets(PolarsLike(a=[1], b=[2]))
    with pytest.raises(ValueError, match="y: expected a 1-D array"):
        targets(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"y: integers up to 1152921504606846979, too long for float64"):
        targets(2**60 + np.arange(4))
    assert targets(2.5)[0].shape == (1,)


class Quantity(np.ndarray):
    """As astropy's and unyt's: an array with a unit."""

    unit: Any = None


class Pint:
    """As pint's: no array, but turned into one."""

    units = ("second",)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1.0, 2.0])


def quantity(unit: Any) -> Quantity:
    array = np.array([1.0, 2.0]).view(Quantity)
    array.unit = unit
    return array


class Unit:
    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize("value", [quantity(Unit("min")), Pint(), [Pint()]], ids=["array", "object", "list"])
def test_c46_units_are_never_dropped(value: Any) -> None:
    with pytest.raises(TypeError, match=r"X: an array with a unit \(.*\), expected plain numbers; convert it"):
        Inputs.of(value)
    with pytest.raises(TypeError, match="y: an array with a unit"):
        targets(value)


def test_c46_numbers_without_a_unit_are_numbers() -> None:
    for unit in (None, Unit(""), Unit("dimensionless"), "a note"):
        assert_array_equal(Inputs.of(quantity(unit)).numbers[:, 0], [1.0, 2.0])


class Labelled:
    """As xarray's: one column with a name and coordinates, whose unit is text, or that of the array within."""

    name, coords, shape = "x", (), (2,)

    def __init__(self, data: Any, **attrs: str) -> None:
        self.data, self.attrs = data, attrs

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["attrs"][name]
        except KeyError:
            raise AttributeError(name) from None

    def to_numpy(self) -> Any:
        return np.array([1.0, 2.0])

    __array__ = Pint.__array__


def test_c46_units_of_labelled_arrays() -> None:
    for value in (Labelled(Pint()), Labelled(np.zeros(2), units="min")):
        with pytest.raises(TypeError, match="X: an array with a unit"):
            Inputs.of(value)
    assert_array_equal(Inputs.of(Labelled(np.zeros(2), units="1")).numbers[:, 0], [1.0, 2.0])


def test_names_of_text_and_others() -> None:
    """Labels that are no text are names as they print, so that another order is seen; a mixture is refused."""

    class Mixed(PandasLike):
        pass

    frame = Mixed(a=[1.0], b=[2.0])
    frame.columns = [("p", "a"), ("p", "b")]  # type: ignore[list-item]
    assert Inputs.of(frame).names == ("('p', 'a')", "('p', 'b')")
    frame.columns = [1, 0]  # type: ignore[list-item]
    assert Inputs.of(frame).names == ("1", "0")
    frame.columns = ["a", 1]  # type: ignore[list-item]
    with pytest.raises(TypeError, match="X: columns a, 1, some of which are named by text and some are not"):
        Inputs.of(frame)


def test_targets_lose_nothing_that_matters() -> None:
    assert_array_equal(targets(10**17 * np.arange(10, 14))[0], 1e17 * np.arange(10, 14))


def test_a_lazy_frame() -> None:
    class Lazy:
        def collect(self) -> None: ...
        def collect_schema(self) -> None: ...

    with pytest.raises(TypeError, match=r"X: a lazy frame, expected one with its numbers; call .collect\(\) first"):
        Inputs.of(Lazy())


def test_columns_of_objects_are_named() -> None:
    with pytest.raises(TypeError, match="X: expected real numbers, got an array of dtype object; column 1 holds 'red'"):
        Inputs.of(np.array([[1.0, "red"], [2.0, 3.0]], dtype=object))
    with pytest.raises(TypeError, match=r"dtype object; its entries are numbers, of which .astype\(float\) makes"):
        Inputs.of(np.array([[1.0, 2]], dtype=object))
