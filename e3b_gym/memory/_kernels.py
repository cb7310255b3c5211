# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return, assignment"
"""The elliptical memory in compiled loops: one environment at a time, one thread, no BLAS.

See `elliptical.py` for the equations. An environment's inverse ellipse is M (I + Z'Z)^-1 M': the square root M of
what has been folded in, and the pending rows Z. `matrix` holds M', which is lower triangular, so that reading it
costs half and every inner loop runs along memory. Loops are unrolled by hand where the compiler would not.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

PENDING = 16  # rows that wait on a folded matrix: fewer fold too often, more make the small matrices large
PANEL = 8  # columns of M folded at a time
STRIP = 256  # columns of M' that are stored and folded together, so that the running sums stay in cache

_MATHS = {"reassoc", "contract", "nsz", "arcp"}  # sums may be reordered; NaN and inf keep their meaning


def _compiled(function):
    """njit with an on-disk cache where one can be written (a read-only install works too, compiling anew)."""
    try:
        return njit(cache=True, fastmath=_MATHS, error_model="numpy", nogil=True)(function)
    except RuntimeError:
        return njit(fastmath=_MATHS, error_model="numpy", nogil=True)(function)


def matrix_size(dim: int) -> int:
    """Numbers needed to store M' for one environment."""
    return sum(STRIP * (dim - lo) for lo in range(0, dim, STRIP))


@_compiled
def _strip(matrix, dim, lo):
    """Columns lo to lo + STRIP of M', from row lo down: what lies above the diagonal is not stored."""
    start = STRIP * (lo // STRIP) * (2 * dim - lo + STRIP) // 2
    return matrix[start : start + STRIP * (dim - lo)].reshape(dim - lo, STRIP)


def unpack(matrix: np.ndarray, dense: np.ndarray) -> None:
    """The stored strips as a square M'."""
    dim = len(dense)
    for lo in range(0, dim, STRIP):
        dense[lo:, lo : lo + STRIP] = _strip(matrix, dim, lo)[:, : dim - lo]


def pack(dense: np.ndarray, matrix: np.ndarray) -> None:
    """A square M' as the stored strips."""
    dim = len(dense)
    matrix[:] = 0
    for lo in range(0, dim, STRIP):
        _strip(matrix, dim, lo)[:, : dim - lo] = dense[lo:, lo : lo + STRIP]


@_compiled
def _whiten(matrix, phi, z):
    """z = M' phi."""
    dim = phi.size
    zero = np.zeros(1, z.dtype)[0]
    z[:] = zero
    for lo in range(0, dim, STRIP):
        strip = _strip(matrix, dim, lo)
        x = phi[lo:]
        out = z[lo:]
        for j in range(0, dim - lo - 3, 4):
            m0, m1, m2, m3 = strip[j], strip[j + 1], strip[j + 2], strip[j + 3]
            a0 = a1 = a2 = a3 = zero
            for i in range(min(j + 4, STRIP)):
                a0 += m0[i] * x[i]
                a1 += m1[i] * x[i]
                a2 += m2[i] * x[i]
                a3 += m3[i] * x[i]
            out[j] += a0
            out[j + 1] += a1
            out[j + 2] += a2
            out[j + 3] += a3
        for j in range((dim - lo) // 4 * 4, dim - lo):
            a0 = zero
            for i in range(min(j + 1, STRIP)):
                a0 += strip[j, i] * x[i]
            out[j] += a0


@_compiled
def _whiten_all(matrix, phi, count, z):
    """z = phi M for up to PENDING rows, reading M once."""
    dim = phi.shape[1]
    zero = np.zeros(1, z.dtype)[0]
    z[:] = zero
    for lo in range(0, dim, STRIP):
        strip = _strip(matrix, dim, lo)
        for j in range(0, dim - lo - 1, 2):
            m0, m1 = strip[j], strip[j + 1]
            for t in range(0, count, 4):
                x0, x1, x2, x3 = phi[t, lo:], phi[t + 1, lo:], phi[t + 2, lo:], phi[t + 3, lo:]
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
                for i in range(min(j + 2, STRIP)):
                    m, w = m0[i], m1[i]
                    a0 += m * x0[i]
                    a1 += m * x1[i]
                    a2 += m * x2[i]
                    a3 += m * x3[i]
                    b0 += w * x0[i]
                    b1 += w * x1[i]
                    b2 += w * x2[i]
                    b3 += w * x3[i]
                z[t, lo + j] += a0
                z[t + 1, lo + j] += a1
                z[t + 2, lo + j] += a2
                z[t + 3, lo + j] += a3
                z[t, lo + j + 1] += b0
                z[t + 1, lo + j + 1] += b1
                z[t + 2, lo + j + 1] += b2
                z[t + 3, lo + j + 1] += b3


@_compiled
def _products(rows, count, z, out):
    """out = Z z, in float64."""
    dim = z.size
    whole = count - count % 4
    for i in range(0, whole, 4):
        r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        a0 = a1 = a2 = a3 = 0.0
        for j in range(dim):
            x = np.float64(z[j])
            a0 += np.float64(r0[j]) * x
            a1 += np.float64(r1[j]) * x
            a2 += np.float64(r2[j]) * x
            a3 += np.float64(r3[j]) * x
        out[i], out[i + 1], out[i + 2], out[i + 3] = a0, a1, a2, a3
    for i in range(whole, count):
        a0 = 0.0
        for j in range(dim):
            a0 += np.float64(rows[i, j]) * np.float64(z[j])
        out[i] = a0


@_compiled
def _residual(z, rows, h, count, out):
    """out = z - Z'h."""
    dim = z.size
    weights = np.empty(count, z.dtype)
    weights[:] = h[:count]
    out[:] = z
    whole = count - count % 4
    for i in range(0, whole, 4):
        r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for j in range(dim):
            out[j] = out[j] - w0 * r0[j] - w1 * r1[j] - w2 * r2[j] - w3 * r3[j]
    for i in range(whole, count):
        w0 = weights[i]
        for j in range(dim):
            out[j] -= w0 * rows[i, j]


@_compiled
def _norm2(x):
    total = 0.0
    for j in range(x.size):
        total += np.float64(x[j]) * np.float64(x[j])
    return total


@_compiled
def _score(z, rows, inverse, count, work):
    """The bonus of a whitened row against `count` pending ones; then the row joins them."""
    size = _norm2(z)
    if size == 0.0:
        return 0.0
    g = np.empty(count)
    h = np.zeros(count)
    _products(rows, count, z, g)
    explained = 0.0
    for i in range(count):  # h = N'N g, row by row of the triangular N
        a = 0.0
        for j in range(i + 1):
            a += inverse[i, j] * g[j]
        explained += a * a
        for j in range(i + 1):
            h[j] += inverse[i, j] * a
    _residual(z, rows, h, count, work)
    bonus = _norm2(work) + _norm2(h)
    # 1 + b, but here from the float64 Gram: N must be consistent with it to far below 1, even where b is 1e7.
    scale = 1.0 / math.sqrt(max(1.0 + size - explained, 1.0))
    rows[count] = z
    for i in range(count):
        inverse[count, i] = -scale * h[i]
    inverse[count, count] = scale
    return bonus


@_compiled
def _fold_weights(rows, count, mix, past):
    """For each column j of M: m_j <- mix[j] . (old columns of its panel) + past[j] . (sums over earlier panels)."""
    inverse = np.eye(PENDING)  # (I + sum_{i<j} z_i z_i')^-1 over the columns z_i of Z
    z = np.zeros((PANEL, PENDING))
    u = np.empty(PENDING)
    for j in range(rows.shape[1]):
        here = j % PANEL
        u[:] = 0.0
        for a in range(count):
            x = np.float64(rows[a, j])
            z[here, a] = x
            for c in range(PENDING):
                u[c] += inverse[a, c] * x
        square = 1.0
        for a in range(count):
            square += z[here, a] * u[a]
        square = max(square, 1.0)
        for a in range(count):
            x = u[a] / square
            for c in range(PENDING):
                inverse[a, c] -= x * u[c]
        keep = 1.0 / math.sqrt(square)
        for c in range(PENDING):
            u[c] *= -keep
            past[j, c] = u[c]
        for i in range(here):
            x = 0.0
            for c in range(PENDING):
                x += z[i, c] * u[c]
            mix[j, i] = x
        mix[j, here] = keep


@_compiled
def _add(out, weights, first, rows, width, triangular):
    """out += weights[first:first + len(out)] @ rows, in tiles of two by four; sizes must divide."""
    for a in range(0, out.shape[0], 2):
        o0, o1 = out[a], out[a + 1]
        w0, w1 = weights[first + a], weights[first + a + 1]
        for b in range(0, a + 1 if triangular else rows.shape[0], 4):
            r0, r1, r2, r3 = rows[b], rows[b + 1], rows[b + 2], rows[b + 3]
            p0, p1, p2, p3 = w0[b], w0[b + 1], w0[b + 2], w0[b + 3]
            q0, q1, q2, q3 = w1[b], w1[b + 1], w1[b + 2], w1[b + 3]
            for i in range(width):
                x0, x1, x2, x3 = r0[i], r1[i], r2[i], r3[i]
                o0[i] = o0[i] + p0 * x0 + p1 * x1 + p2 * x2 + p3 * x3
                o1[i] = o1[i] + q0 * x0 + q1 * x1 + q2 * x2 + q3 * x3


@_compiled
def _fold(matrix, rows, count):
    """M <- M T with T upper triangular and T T' = (I + Z'Z)^-1; exact in float64, rounded once."""
    dim = rows.shape[1]
    panels = (dim + PANEL - 1) // PANEL
    mix = np.zeros((panels * PANEL, PANEL))
    past = np.zeros((panels * PANEL, PENDING))
    _fold_weights(rows, count, mix, past)
    z = np.zeros((panels * PENDING, PANEL))
    for p in range(panels):
        for a in range(count):
            for i in range(min(PANEL, dim - p * PANEL)):
                z[p * PENDING + a, i] = rows[a, p * PANEL + i]
    old = np.zeros((PANEL, STRIP))
    new = np.empty((PANEL, STRIP))
    sums = np.empty((PENDING, STRIP))  # sum_{i<j} m_i z_i'
    for lo in range(0, dim, STRIP):
        strip = _strip(matrix, dim, lo)
        sums[:] = 0.0
        for p in range(lo // PANEL, panels):
            top = p * PANEL - lo
            n = min(PANEL, dim - p * PANEL)
            width = min(STRIP, top + PANEL)
            old[n:] = 0.0
            for j in range(n):
                for i in range(width):
                    old[j, i] = strip[top + j, i]
                    new[j, i] = 0.0
            _add(new, mix, p * PANEL, old, width, True)
            _add(new, past, p * PANEL, sums, width, False)
            _add(sums, z, p * PENDING, old, width, False)
            for j in range(n):
                for i in range(width):
                    strip[top + j, i] = new[j, i]


@_compiled
def _promote(matrix, rows, count, unit):
    """Fold the rows of a young episode into a matrix that so far was I * unit, unwritten."""
    matrix[:] = 0.0
    dim = rows.shape[1]
    for lo in range(0, dim, STRIP):
        strip = _strip(matrix, dim, lo)
        for j in range(min(STRIP, dim - lo)):
            strip[j, j] = unit
    white = np.empty((PENDING, rows.shape[1]), rows.dtype)
    for start in range(0, count, PENDING):
        n = min(PENDING, count - start)
        for a in range(n):
            _whiten(matrix, rows[start + a] / unit, white[a])
        _fold(matrix, white, n)


@_compiled
def _enter(x, unit, matrix, rows, inverse, count, folded, z, work):
    """Score a row against the ellipse and enter it, folding first if there is no room; returns the bonus."""
    if folded and count == PENDING:
        _fold(matrix, rows, count)
        count = 0
    elif count == rows.shape[0]:
        _promote(matrix, rows, count, unit)
        folded = True
        count = 0
    if folded:
        _whiten(matrix, x, z)
    else:
        for j in range(x.size):
            z[j] = x[j] * unit
    bonus = _score(z, rows, inverse, count, work)
    return bonus, count + (bonus > 0.0), folded


@_compiled
def advance(phi, clear, opening, entry, slots, start, stop, unit, matrix, rows, inverse, counts, folds, bonus):
    """Columns start to stop of phi [T, n, d]; where `entry` [T, n] >= 0 that row of `opening` goes in unscored."""
    z = np.empty(phi.shape[2], phi.dtype)
    work = np.empty(phi.shape[2], phi.dtype)
    for n in range(start, stop):
        e = slots[n]
        count, folded = counts[e], folds[e]
        for t in range(phi.shape[0]):
            if clear[t, n]:
                count, folded = 0, False
            if entry.size > 0 and entry[t, n] >= 0:
                x = opening[entry[t, n]]
                _, count, folded = _enter(x, unit, matrix[e], rows[e], inverse[e], count, folded, z, work)
            x = phi[t, n]
            b, count, folded = _enter(x, unit, matrix[e], rows[e], inverse[e], count, folded, z, work)
            bonus[t, n] = b
        counts[e], folds[e] = count, folded
