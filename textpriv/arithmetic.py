"""Elementary functions and sums that round alike on every processor.

A draw under a key must be the same wherever it is made. What libraries of linear algebra and of elementary functions return
differs in the last digits with the vector unit that they find; additions, multiplications, divisions and square roots of
IEEE 754 in a written order do not. Whatever decides what is drawn is therefore computed from these alone, without fused
operations and without leave to reorder: here stand the functions and the sums over coordinates that this takes. No law
stands here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = [
    "FEW",
    "LANES",
    "arctangent",
    "column_means",
    "cosine_and_sine",
    "eigenvectors",
    "exp",
    "expm1",
    "expm1s",
    "exps",
    "fixed_sum",
    "lane_sum",
    "log",
    "log1p",
    "log1ps",
    "logs",
    "principal_directions",
    "row_products",
]


def fixed_sum(values: NDArray[Any]) -> float:
    """The sum of some numbers, correctly rounded, so that no order of summation shows."""
    return math.fsum(values.ravel().tolist())


# ----------------------------------------------------------------------------------------------
# Sums over two rows
# ----------------------------------------------------------------------------------------------

LANES, FEW = 16, 4  # partial sums that run side by side: over most of a row, and over the rest


def _summand(builder: Any, name: str, left: Any, right: Any) -> Any:
    """What one column, or a vector of them, adds to a sum of this name."""
    from llvmlite import ir
    from numba.core import cgutils

    if name == "products":
        return builder.fmul(left, right)
    one = builder.fadd(left, right) if name == "together" else builder.fsub(left, right)
    if name != "absolute":
        return builder.fmul(one, one)
    size = f"v{one.type.count}f64" if isinstance(one.type, ir.VectorType) else "f64"
    kind = ir.FunctionType(one.type, [one.type])
    absolute = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fabs.{size}")
    return builder.call(absolute, [one])


def _folded(builder: Any, total: Any, lanes: int, left: int) -> Any:
    """Add the second half of partial sums to the first until so many are left."""
    from llvmlite import ir

    while lanes > left:
        lanes //= 2
        halves = []
        for first in (0, lanes):
            which = ir.Constant(
                ir.VectorType(ir.IntType(32), lanes), [*range(first, first + lanes)]
            )
            nothing = ir.Constant(total.type, ir.Undefined)
            halves.append(builder.shuffle_vector(total, nothing, which))
        total = builder.fadd(*halves)
    return total if left > 1 else builder.extract_element(total, ir.Constant(ir.IntType(64), 0))


@intrinsic(prefer_literal=True)
def lane_sum(
    context: Any, what: Any, a: Any, i: Any, b: Any, j: Any
) -> tuple[Any, Callable[..., Any]]:
    """``lane_sum(what, a, i, b, j)``: a sum over row i of ``a`` (m, n) and row j of ``b`` (p, n), in double precision.

    ``what`` is a literal: "squares" of differences, "absolute" differences, "products", or "both" for a pair of sums, of
    squares of differences and of squares of sums.
    The first ``n - n % 16`` columns go to 16 partial sums in turn; the second half of these is added to the first until 4
    are left. The next columns go to them in turn, as many as 4 divides; halves are added until one sum is left, and to it
    the last columns. Compiled code takes as many lanes at a time as the processor has; none of it may be fused or reordered,
    since no operation carries a flag that allows it.
    """
    # Needed only to compile: what is kept on disk is loaded without.
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.np.arrayobj import make_array

    if {a.layout, b.layout} != {"C"} or {a.ndim, b.ndim} != {2}:
        raise TypeError("rows of coordinates must lie in memory one after the other")
    names = ("squares", "together") if what.literal_value == "both" else (what.literal_value,)
    double, number = ir.DoubleType(), ir.IntType(64)

    def compiled(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        tables = [make_array(signature.args[at])(context, builder, values[at]) for at in (1, 3)]
        kinds = [context.get_data_type(table.dtype) for table in (a, b)]
        columns = cgutils.unpack_tuple(builder, tables[0].shape)[1]
        rows = [
            builder.gep(table.data, [builder.mul(values[at], columns)])
            for table, at in zip(tables, (2, 4), strict=True)
        ]

        def summands(column: Any, lanes: int) -> list[Any]:
            pair = []
            for row, kind in zip(rows, kinds, strict=True):
                narrow = ir.VectorType(kind, lanes) if lanes > 1 else kind
                at = builder.bitcast(builder.gep(row, [column]), narrow.as_pointer())
                numbers = builder.load(at, align=context.get_abi_alignment(kind))
                wide = ir.VectorType(double, lanes) if lanes > 1 else double
                pair.append(numbers if kind == double else builder.fpext(numbers, wide))
            return [_summand(builder, name, *pair) for name in names]

        begin = ir.Constant(number, 0)
        zeros = ir.Constant(ir.VectorType(double, LANES), [0.0] * LANES)
        totals: list[Any] = [zeros for _ in names]
        for lanes, left in ((LANES, FEW), (FEW, 1), (1, 1)):
            sums = [cgutils.alloca_once_value(builder, total) for total in totals]
            step = ir.Constant(number, lanes)
            end = builder.sub(columns, builder.srem(columns, step))
            with cgutils.for_range_slice(builder, begin, end, step, number) as (column, _):
                for one, more in zip(sums, summands(column, lanes), strict=True):
                    builder.store(builder.fadd(builder.load(one), more), one)
            totals, begin = [builder.load(one) for one in sums], end
            if lanes > 1:
                totals = [_folded(builder, total, lanes, left) for total in totals]
        if len(names) == 1:
            return totals[0]
        return context.make_tuple(builder, signature.return_type, totals)

    result = types.float64 if len(names) == 1 else types.UniTuple(types.float64, len(names))
    return result(what, a, types.intp, b, types.intp), compiled


# ----------------------------------------------------------------------------------------------
# Elementary functions
# ----------------------------------------------------------------------------------------------

# Tables and constants are rounded once from forty digits.
with localcontext() as _digits:
    _digits.prec = 60
    _LN2 = Decimal(2).ln()
    _POWERS = [Decimal(2) ** (Decimal(j) / 64) for j in range(64)]

    def _arctangents(steps: int) -> list[Decimal]:
        """``atan(j / steps)``, by the series of Euler for ``atan(x) = x / (1 + x^2) sum_k (2k)!! / (2k + 1)!! z^k``."""
        found = []
        for j in range(steps + 1):
            x = Decimal(j) / steps
            z = x * x / (1 + x * x)
            term = total = x / (1 + x * x)
            for k in range(1, 250):
                term *= z * 2 * k / (2 * k + 1)
                total += term
            found.append(total)
        return found

    _ARCTANGENTS = _arctangents(8)
    _TWO_TO = np.array([float(power) for power in _POWERS])
    _TWO_TO_REST = np.array([float(power - Decimal(float(power))) for power in _POWERS])
    _ATAN = np.array([float(angle) for angle in _ARCTANGENTS])
    _HALF_PI = float(2 * _ARCTANGENTS[8])
    _QUARTER = float(_ARCTANGENTS[8])
    _PER_LN2 = float(64 / _LN2)
    # With so few digits that a product with a whole number below 2^17 is exact, and what is left.
    _STEP = float(Decimal(math.floor(_LN2 / 64 * 2**41)) / 2**41)
    _STEP_REST = float(_LN2 / 64 - Decimal(_STEP))
    _WHOLE = float(Decimal(math.floor(_LN2 * 2**40)) / 2**40)
    _WHOLE_REST = float(_LN2 - Decimal(_WHOLE))

_SQRT_HALF = math.sqrt(0.5)
_ODD = tuple(2.0 / n for n in range(3, 23, 2))
_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(9))
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(10))


@intrinsic
def _as_float(context: Any, bits: Any) -> tuple[Any, Callable[..., Any]]:
    from llvmlite import ir
    from numba import types

    def compiled(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.DoubleType())

    return types.float64(types.int64), compiled


@intrinsic
def _as_bits(context: Any, number: Any) -> tuple[Any, Callable[..., Any]]:
    from llvmlite import ir
    from numba import types

    def compiled(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.IntType(64))

    return types.int64(types.float64), compiled


@njit(cache=True, nogil=True)
def exp(x: float) -> float:
    """``e^x`` to a relative error below 2^-51; 0 below -708, and x at most 709."""
    if x < -708.0:
        return 0.0
    # x = (k ln 2) / 64 + r, and e^x = 2^(k // 64) 2^(k % 64 / 64) e^r.
    k = np.int64(x * _PER_LN2 + (0.5 if x > 0.0 else -0.5))
    r = (x - k * _STEP) - k * _STEP_REST
    rest = r + (r * r) * ((0.5 + r * (1.0 / 6.0)) + (r * r) * (1.0 / 24.0 + r * (1.0 / 120.0)))
    base = _TWO_TO[k & 63]
    return (base + base * rest) * _as_float(((k >> 6) + 1023) << 52)  # type: ignore[call-arg]


@njit(cache=True, nogil=True)
def expm1(x: float) -> float:
    """``e^x - 1`` to a relative error below 2^-50, for x at most 709."""
    if x < -40.0:
        return -1.0
    k = np.int64(x * _PER_LN2 + (0.5 if x > 0.0 else -0.5))
    r = (x - k * _STEP) - k * _STEP_REST
    high = 1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0))
    rest = r + (r * r) * ((0.5 + r * (1.0 / 6.0)) + (r * r) * high)
    scale: float = _as_float(((k >> 6) + 1023) << 52)  # type: ignore[call-arg]
    base = _TWO_TO[k & 63]
    return (base * scale - 1.0) + scale * (_TWO_TO_REST[k & 63] + base * rest)


@njit(cache=True, nogil=True)
def _odd(s: float) -> float:
    """``2 atanh(s) / s - 2``, for s from -0.18 to 0.18."""
    z = s * s
    w = z * z
    # Pairs of terms, and pairs of pairs, that need not wait for one another.
    first = (_ODD[0] + _ODD[1] * z) + w * (_ODD[2] + _ODD[3] * z)
    second = (_ODD[4] + _ODD[5] * z) + w * (_ODD[6] + _ODD[7] * z)
    return z * (first + (w * w) * (second + (w * w) * (_ODD[8] + _ODD[9] * z)))


@njit(cache=True, nogil=True)
def log(x: float) -> float:
    """Natural logarithm of a normal positive number to a relative error below 2^-50; minus infinity at 0 and below."""
    if not x > 0.0:
        return -np.inf
    bits: int = _as_bits(x)  # type: ignore[call-arg]
    power = (bits >> 52) - 1022
    part = _as_float((bits & ((1 << 52) - 1)) | (1022 << 52))
    if part < _SQRT_HALF:
        part *= 2.0
        power -= 1
    s = (part - 1.0) / (part + 1.0)
    return power * _WHOLE + (2.0 * s + (s * _odd(s) + power * _WHOLE_REST))


@njit(cache=True, nogil=True)
def log1p(x: float) -> float:
    """``ln(1 + x)`` to a relative error below 2^-50; minus infinity at -1."""
    if not -0.25 < x < 0.25:
        return log(1.0 + x)
    s = x / (2.0 + x)
    return 2.0 * s + s * _odd(s)


@njit(cache=True, nogil=True)
def arctangent(y: float, x: float) -> float:
    """The angle of the point (x, y), neither negative, to a relative error below 2^-50; 0 for both zero."""
    if y == 0.0:
        return 0.0
    q = min(x, y) / max(x, y)
    j = np.int64(q * 8.0 + 0.5)
    z = (q - j * 0.125) / (1.0 + q * (j * 0.125))
    w = z * z
    # Of the series to z^13: z is at most 1/16.
    first = (1.0 / 3.0 - w * (1.0 / 5.0)) + (w * w) * (1.0 / 7.0 - w * (1.0 / 9.0))
    series = w * (first + (w * w) * (w * w) * (1.0 / 11.0 - w * (1.0 / 13.0)))
    angle = _ATAN[j] + (z - z * series)
    return _HALF_PI - angle if y > x else angle


@njit(cache=True, nogil=True)
def cosine_and_sine(turns: float) -> tuple[float, float]:
    """Cosine and sine of an angle given in turns, from 0 to 1, to an absolute error below 2^-51."""
    eighth = np.int64(turns * 8.0 + 0.5)
    # Exact: what is left of the turn, as a part of an eighth of it.
    x = (turns * 8.0 - eighth) * _QUARTER
    z = x * x
    cosine, sine = 0.0, 0.0
    for place in range(len(_COSINE)):
        cosine = cosine * z + _COSINE[len(_COSINE) - 1 - place]
    for place in range(len(_SINE)):
        sine = sine * z + _SINE[len(_SINE) - 1 - place]
    sine *= x
    if eighth & 1:
        # The angle is that of an odd eighth and x: turned by 45 degrees.
        cosine, sine = (cosine - sine) * _SQRT_HALF, (cosine + sine) * _SQRT_HALF
    quarter = (eighth >> 1) & 3
    if quarter == 1:
        return -sine, cosine
    if quarter == 2:
        return -cosine, -sine
    if quarter == 3:
        return sine, -cosine
    return cosine, sine


@njit(cache=True, nogil=True)
def exps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """:func:`exp` of every number of an array, in the same shape."""
    out = np.empty(values.size)
    for place, value in enumerate(values.ravel()):
        out[place] = exp(value)
    return out.reshape(values.shape)


@njit(cache=True, nogil=True)
def expm1s(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """:func:`expm1` of every number of an array, in the same shape."""
    out = np.empty(values.size)
    for place, value in enumerate(values.ravel()):
        out[place] = expm1(value)
    return out.reshape(values.shape)


@njit(cache=True, nogil=True)
def logs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """:func:`log` of every number of an array, in the same shape."""
    out = np.empty(values.size)
    for place, value in enumerate(values.ravel()):
        out[place] = log(value)
    return out.reshape(values.shape)


@njit(cache=True, nogil=True)
def log1ps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """:func:`log1p` of every number of an array, in the same shape."""
    out = np.empty(values.size)
    for place, value in enumerate(values.ravel()):
        out[place] = log1p(value)
    return out.reshape(values.shape)


# ----------------------------------------------------------------------------------------------
# Tables
# ----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def column_means(table: NDArray[Any]) -> NDArray[np.float64]:
    """Means of the columns of a table (V, n), summed row after row in double precision."""
    total = np.zeros(table.shape[1])
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            total[column] += table[row, column]
    return total / table.shape[0]


@njit(cache=True, nogil=True)
def row_products(a: NDArray[Any], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inner products of the rows of ``a`` (m, n) and ``b`` (p, n), shape (m, p)."""
    out = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            out[i, j] = lane_sum("products", a, i, b, j)  # type: ignore[call-arg]
    return out


def principal_directions(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Orthonormal directions (n, n) along which some rows (V, n) vary, most first, to about seven digits.

    Rows are rounded to whole numbers so short that sums of their products are exact, in whichever order they are taken.
    """
    centred = rows.astype(np.float64) - column_means(rows)
    bits = (53 - (len(rows) - 1).bit_length()) // 2
    largest = float(np.abs(centred).max(initial=0.0))
    whole = np.rint(np.ldexp(centred, bits - math.frexp(largest)[1]))
    squares, directions = eigenvectors(whole.T @ whole)
    return np.ascontiguousarray(directions[:, np.argsort(-squares, kind="stable")].T)


@njit(cache=True, nogil=True)
def eigenvectors(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues (n,) of a symmetric matrix (n, n), in no order, and orthonormal eigenvectors as columns (n, n).

    By the rotations of Jacobi, plane after plane. Errors seen were below 2 n units in the last place of the largest value.
    """
    a, size = matrix.copy(), matrix.shape[0]
    vectors = np.eye(size)
    scale = np.abs(a).max()
    for _ in range(60):
        largest = 0.0
        for p in range(size - 1):
            for q in range(p + 1, size):
                off = a[p, q]
                largest = max(largest, abs(off))
                if abs(off) <= 1e-17 * scale:
                    continue
                # Golub and Van Loan, "Matrix Computations", 8.5: the smaller of the two angles.
                theta = (a[q, q] - a[p, p]) / (2.0 * off)
                tangent = 1.0 / (abs(theta) + np.sqrt(theta * theta + 1.0))
                tangent = -tangent if theta < 0.0 else tangent
                cosine = 1.0 / np.sqrt(tangent * tangent + 1.0)
                sine = tangent * cosine
                for k in range(size):
                    left, right = a[k, p], a[k, q]
                    a[k, p], a[k, q] = cosine * left - sine * right, sine * left + cosine * right
                for k in range(size):
                    left, right = a[p, k], a[q, k]
                    a[p, k], a[q, k] = cosine * left - sine * right, sine * left + cosine * right
                    left, right = vectors[k, p], vectors[k, q]
                    vectors[k, p] = cosine * left - sine * right
                    vectors[k, q] = sine * left + cosine * right
        if largest <= 1e-15 * scale:
            break
    return np.diag(a).copy(), vectors
