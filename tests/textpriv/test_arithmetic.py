"""What decides a draw rounds alike everywhere: functions against forty digits, sums against their written order."""

from __future__ import annotations

import math
import re
from decimal import Decimal, localcontext
from fractions import Fraction

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba import carray, cfunc, njit, types

from textpriv import arithmetic
from textpriv.arithmetic import (
    FEW,
    LANES,
    arctangent,
    column_means,
    cosine_and_sine,
    eigenvectors,
    exp,
    expm1,
    exps,
    fixed_sum,
    log,
    log1p,
    logs,
    principal_directions,
    row_products,
)
from textpriv.metrics import ANGULAR, CHEBYSHEV, EUCLIDEAN, MANHATTAN, row_distance

RNG = np.random.default_rng(8)
SMALL = 10.0 ** RNG.uniform(-18, 0, 300)


def error_of(found: float, true: Decimal) -> float:
    """Relative error of a number, whose true value is known to many digits."""
    return 0.0 if true == found else float(abs((Decimal(found) - true) / true))


def sine_of(angle: Decimal) -> Decimal:
    term = total = angle
    for n in range(1, 40):
        term *= -angle * angle / (2 * n * (2 * n + 1))
        total += term
    return total


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


@pytest.mark.parametrize(
    ("function", "true", "points"),
    [
        (exp, lambda x: x.exp(), np.concatenate([RNG.uniform(-708, 709, 300), SMALL, -SMALL])),
        (expm1, lambda x: x.exp() - 1, np.concatenate([RNG.uniform(-60, 60, 300), SMALL, -SMALL])),
        (log, lambda x: x.ln(), np.concatenate([10 ** RNG.uniform(-300, 300, 300), 1 + SMALL])),
        (log1p, lambda x: (1 + x).ln(), np.concatenate([RNG.uniform(-1, 9, 300), SMALL, -SMALL])),
    ],
    ids=["exp", "expm1", "log", "log1p"],
)
def test_function_is_within_its_bound_of_the_true_value(function, true, points):
    with localcontext() as digits:
        digits.prec = 60
        errors = [error_of(function(float(x)), true(Decimal(float(x)))) for x in points]
    assert max(errors) < 2.0**-50


def test_angles_are_within_their_bound_of_the_true_value():
    with localcontext() as digits:
        digits.prec = 60
        for turns in (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, *RNG.random(300)):
            cosine, sine = cosine_and_sine(float(turns))
            angle = 2 * PI * Decimal(float(turns))
            assert abs(Decimal(sine) - sine_of(angle)) < Decimal(2) ** -51
            assert abs(Decimal(cosine) - sine_of(PI / 2 - angle)) < Decimal(2) ** -51
        for angle in RNG.uniform(0, math.pi / 2, 300):
            # Where the point lies, to more digits than the angle is asked for, tells how far off the angle is.
            y, x = math.sin(angle), math.cos(angle)
            found = Decimal(arctangent(y, x))
            off = sine_of(found) * Decimal(x) - sine_of(PI / 2 - found) * Decimal(y)
            assert abs(off) < found * Decimal(2) ** -50
    assert arctangent(0.0, 0.0) == 0.0
    assert arctangent(1.0, 0.0) == math.pi / 2


def test_ends_of_the_ranges():
    assert exp(0.0) == 1.0
    assert exp(-708.5) == 0.0
    assert exp(-1e300) == 0.0
    assert expm1(-1e300) == -1.0
    assert expm1(0.0) == log1p(0.0) == log(1.0) == 0.0
    assert log(0.0) == log1p(-1.0) == -math.inf


def test_arrays_are_functions_of_their_numbers():
    points = RNG.uniform(-30, 5, size=(4, 7))
    assert exps(points).tolist() == [[exp(x) for x in row] for row in points]
    assert logs(np.abs(points)).tolist() == [[log(x) for x in row] for row in np.abs(points)]


def test_a_sum_is_correctly_rounded():
    values = RNG.normal(size=1000) * 10.0 ** RNG.uniform(-20, 20, 1000)
    assert fixed_sum(values) == float(sum(map(Fraction, values)))
    assert fixed_sum(values[::-1].reshape(10, 100)) == fixed_sum(values)


def test_directions_are_orthonormal_and_those_along_which_rows_vary_most():
    rows = RNG.normal(size=(400, 30)) * np.linspace(1, 3, 30) + 50.0
    turn, _ = np.linalg.qr(RNG.normal(size=(30, 30)))
    rows = rows @ turn
    found = principal_directions(rows)
    np.testing.assert_allclose(found @ found.T, np.eye(30), atol=1e-13)
    centred = rows - rows.mean(axis=0)
    variances = (row_products(centred, found) ** 2).sum(axis=0)
    # Coordinates are rounded to 22 bits of the largest.
    np.testing.assert_allclose(variances, np.linalg.eigvalsh(centred.T @ centred)[::-1], rtol=1e-5)
    np.testing.assert_allclose(column_means(rows), rows.mean(axis=0), rtol=1e-14)


def test_equal_rows_have_some_directions():
    found = principal_directions(np.ones((5, 3), dtype=np.float32))
    np.testing.assert_array_equal(found @ found.T, np.eye(3))


def lanes(values: np.ndarray) -> float:
    """The order of summation that is written down for two rows."""
    sums, at = np.zeros(LANES), 0
    for width in (LANES, FEW, 1):
        while len(sums) > width:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        while at + width <= len(values):
            sums = sums + values[at : at + width]
            at += width
    return float(sums[0])


@pytest.mark.parametrize("rank", [0, 1, 9, 24])
def test_eigenvectors_give_the_matrix_back_but_for_rounding(rank):
    factor = np.random.default_rng(rank).integers(-9, 10, size=(24, rank)).astype(float)
    values, basis = eigenvectors(factor @ factor.T)
    bound = 2 * 24 * np.finfo(float).eps
    assert np.abs((basis * values) @ basis.T - factor @ factor.T).max() <= bound * values.max()
    assert np.abs(basis.T @ basis - np.eye(24)).max() <= bound
    assert (np.abs(values) > bound * values.max()).sum() == rank


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("dimension", [1, 3, 4, 15, 16, 21, 50, 300])
def test_a_distance_is_the_sum_in_the_written_order_bit_by_bit(dimension, precision):
    rows = RNG.normal(size=(12, dimension)).astype(precision)
    wide = rows.astype(np.float64)
    for i in range(12):
        for j in range(12):
            apart, together = wide[i] - wide[j], wide[i] + wide[j]
            length = np.sqrt(lanes(apart * apart))
            expected = {
                EUCLIDEAN: length,
                MANHATTAN: lanes(np.abs(apart)),
                CHEBYSHEV: np.abs(apart).max(),
                ANGULAR: 2 * arctangent(length, np.sqrt(lanes(together * together))),
            }
            found = {kind: row_distance(kind, rows, i, rows, j) for kind in expected}
            assert found == expected


def test_rows_of_two_precisions_are_compared_in_double_precision():
    rows = RNG.normal(size=(5, 37))
    narrow = rows.astype(np.float32)
    for j in range(5):
        wide = narrow.astype(np.float64)
        assert row_distance(EUCLIDEAN, rows, 0, narrow, j) == row_distance(
            EUCLIDEAN, rows, 0, wide, j
        )


def test_rows_that_are_strewn_in_memory_are_refused():
    rows = np.asfortranarray(RNG.normal(size=(5, 4)))
    with pytest.raises(Exception, match="one after the other"):
        row_distance(EUCLIDEAN, rows, 0, rows, 1)


def test_compiled_functions_carry_no_leave_to_fuse_or_reorder():
    @njit
    def both(a, b):
        return row_distance(ANGULAR, a, 0, b, 1) + exp(a[0, 0]) + log(b[0, 0])

    rows = RNG.random(size=(2, 40))
    both(rows, rows)
    (code,) = both.inspect_llvm().values()
    arithmetic_lines = [
        line for line in code.splitlines() if any(f" f{name} " in line for name in OPERATIONS)
    ]
    assert arithmetic_lines
    assert not [line for line in arithmetic_lines if any(f" {flag} " in line for flag in FLAGS)]
    assert "fmuladd" not in code
    assert "llvm.fma" not in code


OPERATIONS = ("add", "sub", "mul", "div")
FLAGS = ("fast", "reassoc", "contract", "arcp", "afn")
FUSED = re.compile(r"\bv?f(?:n?m(?:add|sub)|ml[as])")
SINGLE = re.compile(r"\bv?(?:fmul|mul[ps]d)")


@pytest.fixture(scope="module")
def intermediate() -> str:
    """All functions here as the compiler's intermediate code, without what counts references on this very processor."""

    @cfunc(types.float64(types.int64, types.CPointer(types.float32), types.int64))
    def everything(kind, numbers, columns):
        rows = carray(numbers, (2, columns))
        x, y = np.float64(rows[0, 0]), np.float64(rows[0, 1])
        cosine, sine = cosine_and_sine(y)
        found = exp(x) + log(y) + expm1(x) * log1p(y) + cosine * sine
        return found + row_distance(kind, rows, 0, rows, 1)

    counting = r"define (?:linkonce_odr )?(\w+) @(NRT_\w+)\(([^)]*)\)[^{]*\{.*?\n\}\n"
    code = re.sub(counting, r"declare \1 @\2(\3)\n", everything.inspect_llvm(), flags=re.DOTALL)
    return re.sub(r'"target-(cpu|features)"="[^"]*"', "", code)


@pytest.mark.parametrize(
    ("triple", "processor", "features"),
    [
        ("aarch64-unknown-linux-gnu", "", "+neon"),
        ("aarch64-apple-darwin", "apple-m1", ""),
        ("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma"),
        ("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+fma"),
    ],
)
def test_machine_code_of_other_processors_has_no_fused_operation(
    intermediate, triple, processor, features
):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()

    def compiled(code: str) -> str:
        module = llvm.parse_assembly(code)
        module.triple = triple
        target = llvm.Target.from_triple(triple)
        machine = target.create_target_machine(cpu=processor, features=features, opt=3)
        module.data_layout = str(machine.target_data)
        return machine.emit_assembly(module)

    found = compiled(intermediate)
    assert SINGLE.search(found)
    assert not FUSED.search(found)
    # With leave to fuse there are some, so that the search would see them.
    leave = re.sub(r"\b(fmul|fadd|fsub) ", r"\1 contract ", intermediate)
    assert FUSED.search(compiled(leave))


def test_constants_are_rounded_from_more_digits():
    assert arithmetic._TWO_TO[32] == math.sqrt(2)
    assert (8 * arithmetic._STEP * 2.0**38).is_integer()
    assert math.pi == arithmetic._HALF_PI * 2
