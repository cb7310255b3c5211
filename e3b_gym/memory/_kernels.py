# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return, assignment"
"""The elliptical memory in compiled loops: one environment at a time, one thread, no BLAS.

See `elliptical.py` for the equations. An environment's inverse ellipse is M (I + Z'Z)^-1 M': the square root M of
what has been folded in, and the pending rows Z. `matrix` holds M', which is lower triangular, so that reading it
costs half and every inner loop runs along memory. Loops are unrolled by hand where the compiler would not.
"""

from __future__ import annotations

import math
from typing import Any

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


def inverse_size(count: int) -> int:
    """Numbers needed to store N for `count` rows."""
    tiles = (count + 3) // 4
    return 8 * tiles * (tiles + 1)


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
        for j in range(0, dim - lo, 2):
            k = min(j + 1, dim - lo - 1)  # the last row of an odd number is taken twice
            m0, m1 = strip[j], strip[k]
            for t in range(0, count, 4):
                x0, x1, x2, x3 = phi[t, lo:], phi[t + 1, lo:], phi[t + 2, lo:], phi[t + 3, lo:]
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
                for i in range(min(k + 1, STRIP)):
                    m, w = m0[i], m1[i]
                    a0 += m * x0[i]
                    a1 += m * x1[i]
                    a2 += m * x2[i]
                    a3 += m * x3[i]
                    b0 += w * x0[i]
                    b1 += w * x1[i]
                    b2 += w * x2[i]
                    b3 += w * x3[i]
                if k > j:
                    z[t, lo + k] += b0
                    z[t + 1, lo + k] += b1
                    z[t + 2, lo + k] += b2
                    z[t + 3, lo + k] += b3
                z[t, lo + j] += a0
                z[t + 1, lo + j] += a1
                z[t + 2, lo + j] += a2
                z[t + 3, lo + j] += a3


@_compiled
def _products(rows, count, new, out):
    """out[t, i] = z_i . z_t for the rows t = count .. count + new and all i before them, in float64."""
    dim = rows.shape[1]
    for i in range(0, count + new, 4):
        r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for t in range(0, new, 2):
            u = min(t + 1, new - 1)
            z0, z1 = rows[count + t], rows[count + u]
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
            for j in range(dim):
                x, y = np.float64(z0[j]), np.float64(z1[j])
                x0, x1, x2, x3 = np.float64(r0[j]), np.float64(r1[j]), np.float64(r2[j]), np.float64(r3[j])
                a0 += x0 * x
                a1 += x1 * x
                a2 += x2 * x
                a3 += x3 * x
                b0 += x0 * y
                b1 += x1 * y
                b2 += x2 * y
                b3 += x3 * y
            out[t, i], out[t, i + 1], out[t, i + 2], out[t, i + 3] = a0, a1, a2, a3
            out[u, i], out[u, i + 1], out[u, i + 2], out[u, i + 3] = b0, b1, b2, b3


@_compiled
def _inverse_row(inverse, i):
    """Row i of N with its zeros behind the diagonal up to a multiple of four, so that four rows are a rectangle."""
    width = i // 4 * 4 + 4
    start = (i // 4) * (width * 2) + (i % 4) * width
    return inverse[start : start + width]


@_compiled
def _project(inverse, i, gram, new, h, explained):
    """h[t] += n (n . gram[t]) for the rows n = N[i] .. N[i + 3] and every new t, two at a time."""
    n0, n1, n2, n3 = (
        _inverse_row(inverse, i),
        _inverse_row(inverse, i + 1),
        _inverse_row(inverse, i + 2),
        _inverse_row(inverse, i + 3),
    )
    for t in range(0, new, 2):
        u = min(t + 1, new - 1)
        g, k = gram[t], gram[u]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
        for j in range(i + 4):
            a0 += n0[j] * g[j]
            a1 += n1[j] * g[j]
            a2 += n2[j] * g[j]
            a3 += n3[j] * g[j]
            b0 += n0[j] * k[j]
            b1 += n1[j] * k[j]
            b2 += n2[j] * k[j]
            b3 += n3[j] * k[j]
        explained[t] += a0 * a0 + a1 * a1 + a2 * a2 + a3 * a3
        out = h[t]
        for j in range(i + 4):
            out[j] = out[j] + a0 * n0[j] + a1 * n1[j] + a2 * n2[j] + a3 * n3[j]
        if u > t:
            explained[u] += b0 * b0 + b1 * b1 + b2 * b2 + b3 * b3
            out = h[u]
            for j in range(i + 4):
                out[j] = out[j] + b0 * n0[j] + b1 * n1[j] + b2 * n2[j] + b3 * n3[j]


@_compiled
def _regress(gram, inverse, count, new, prior, weights):
    """h = (prior I + Z Z')^-1 gram[t] over the rows before t, for each new row t; N grows by these rows.

    Leaves -h in `weights` and returns prior * b. Row t of N is (-h, 1) / sqrt(prior + prior * b).
    """
    explained = np.zeros(new)
    h = np.zeros(gram.shape)
    whole = count // 4 * 4
    for i in range(0, whole, 4):
        _project(inverse, i, gram, new, h, explained)
    for t in range(new):
        size = count + t
        for i in range(whole, size):  # rows of this block, and a rest
            row = _inverse_row(inverse, i)
            a = 0.0
            for j in range(i + 1):
                a += row[j] * gram[t, j]
            for j in range(i + 1):
                h[t, j] += row[j] * a
            explained[t] += a * a
        left = max(gram[t, size] - explained[t], 0.0)
        scale = 1.0 / math.sqrt(prior + left)
        row = _inverse_row(inverse, size)
        row[:] = 0.0
        row[size] = scale
        for j in range(size):
            row[j] = -scale * h[t, j]
            weights[t, j] = -h[t, j]
        explained[t] = left
    return explained


@_compiled
def _add(out, weights, first, rows, count, lo, hi, triangular):
    """out[:, lo:hi] += weights[first:] @ rows[:count, lo:hi], in tiles of two by four; sizes must divide."""
    for b in range(0, count, 4):
        r0, r1, r2, r3 = rows[b][lo:hi], rows[b + 1][lo:hi], rows[b + 2][lo:hi], rows[b + 3][lo:hi]
        for a in range(b if triangular else 0, out.shape[0], 2):
            o0, o1 = out[a][lo:hi], out[a + 1][lo:hi]
            w0, w1 = weights[first + a], weights[first + a + 1]
            p0, p1, p2, p3 = w0[b], w0[b + 1], w0[b + 2], w0[b + 3]
            q0, q1, q2, q3 = w1[b], w1[b + 1], w1[b + 2], w1[b + 3]
            for i in range(hi - lo):
                x0, x1, x2, x3 = r0[i], r1[i], r2[i], r3[i]
                o0[i] = o0[i] + p0 * x0 + p1 * x1 + p2 * x2 + p3 * x3
                o1[i] = o1[i] + q0 * x0 + q1 * x1 + q2 * x2 + q3 * x3


@_compiled
def _score(rows, inverse, count, new, prior, trust, bonus):
    """Bonuses of `new` whitened rows that stand behind `count` pending ones; afterwards they are pending too.

    prior * b = |z|^2 - |N Z z|^2, unless that cancels to less than `trust` of |z|^2: then b = r'r / prior + h'h.
    """
    dim = rows.shape[1]
    size = (count + new + 3) // 4 * 4
    gram = np.empty((new, size))
    _products(rows, count, new, gram)
    weights = np.zeros((new + new % 2, size))
    left = _regress(gram, inverse, count, new, prior, weights)
    cancelled = False
    for t in range(new):
        bonus[t] = left[t] / prior
        cancelled = cancelled or left[t] < trust * gram[t, count + t]
    if not cancelled:
        return
    single = weights.astype(rows.dtype)
    residual = np.zeros((len(weights), dim), rows.dtype)
    residual[:new] = rows[count : count + new]
    width = dim if new == 1 else STRIP
    for lo in range(0, dim, width):
        _add(residual, single, 0, rows, size, lo, min(lo + width, dim), False)
    for t in range(new):
        if left[t] < trust * gram[t, count + t]:
            b = 0.0
            for j in range(dim):
                b += np.float64(residual[t, j]) * np.float64(residual[t, j])
            b /= prior
            for i in range(count + t):
                b += weights[t, i] * weights[t, i]
            bonus[t] = b


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
            _add(new, mix, p * PANEL, old, PANEL, 0, width, True)
            _add(new, past, p * PANEL, sums, PENDING, 0, width, False)
            _add(sums, z, p * PENDING, old, PANEL, 0, width, False)
            for j in range(n):
                for i in range(width):
                    strip[top + j, i] = new[j, i]


@_compiled
def _promote(matrix, rows, count, ridge):
    """Fold the rows of a young episode into a matrix that so far was I / sqrt(ridge), unwritten."""
    matrix[:] = 0.0
    dim = rows.shape[1]
    for lo in range(0, dim, STRIP):
        strip = _strip(matrix, dim, lo)
        for j in range(min(STRIP, dim - lo)):
            strip[j, j] = 1.0 / math.sqrt(ridge)
    phi = np.zeros((PENDING, dim), rows.dtype)
    white = np.empty((PENDING, dim), rows.dtype)
    for start in range(0, count, PENDING):
        n = min(PENDING, count - start)
        phi[n:] = 0.0
        phi[:n] = rows[start : start + n]
        _whiten_all(matrix, phi, n, white)
        _fold(matrix, white, n)


@_compiled
def _enter(phi, new, ridge, trust, matrix, rows, inverse, count, folded, bonus):
    """Score `new` rows phi and enter them, folding first if there is no room; returns count and folded."""
    if folded and count + new > PENDING:
        _fold(matrix, rows, count)
        count = 0
    elif count + new > rows.shape[0] - 3:
        _promote(matrix, rows, count, ridge)
        folded = True
        count = 0
    if not folded:
        rows[count : count + new] = phi[:new]
    elif new == 1:
        _whiten(matrix, phi[0], rows[count])
    else:
        phi[new:] = 0.0
        white = np.empty(phi.shape, phi.dtype)
        _whiten_all(matrix, phi, new, white)
        rows[count : count + new] = white[:new]
    _score(rows, inverse, count, new, 1.0 if folded else ridge, trust, bonus)
    return count + new, folded


@_compiled
def advance(phi, clear, opening, entry, slots, start, stop, ridge, trust, matrix, rows, inverse, counts, folds, bonus):
    """Columns start to stop of phi [T, n, d]; where `entry` [T, n] >= 0 that row of `opening` goes in unscored."""
    block = np.zeros((PENDING, phi.shape[2]), phi.dtype)
    paid = np.empty(PENDING)
    target = np.empty(PENDING, np.int64)  # the step that a row of the block belongs to, -1: unscored
    for n in range(start, stop):
        e = slots[n]
        count, folded = counts[e], folds[e]
        new = 0
        for event in range(2 * phi.shape[0] + 1):  # an opening and a row for each step, and the end
            t, is_row = event // 2, event % 2 == 1
            ends = t == phi.shape[0]
            if new > 0 and (ends or new == PENDING or (clear[t, n] and not is_row)):
                count, folded = _enter(block, new, ridge, trust, matrix[e], rows[e], inverse[e], count, folded, paid)
                for i in range(new):
                    if target[i] >= 0:
                        bonus[target[i], n] = paid[i]
                new = 0
            if ends:
                continue
            if is_row:
                x = phi[t, n]
                bonus[t, n] = 0.0
            else:
                if clear[t, n]:
                    count, folded = 0, False
                if entry.size == 0 or entry[t, n] < 0:
                    continue
                x = opening[entry[t, n]]
            if np.any(x):  # a zero row leaves no trace
                block[new] = x
                target[new] = t if is_row else -1
                new += 1
        counts[e], folds[e] = count, folded


@_compiled
def save(matrix, inverse, dense, triangle):
    """Write the stored M' and N as plain square and as rows of a triangle."""
    dim = len(dense)
    for lo in range(0, dim, STRIP):
        dense[lo:, lo : lo + STRIP] = _strip(matrix, dim, lo)[:, : dim - lo]
    start = i = 0
    while start < len(triangle):
        triangle[start : start + i + 1] = _inverse_row(inverse, i)[: i + 1]
        i += 1
        start += i


@_compiled
def load(matrix, inverse, dense, triangle):
    """The way back from `save`."""
    dim = len(dense)
    for lo in range(0, dim, STRIP):
        _strip(matrix, dim, lo)[:, : dim - lo] = dense[lo:, lo : lo + STRIP]
    start = i = 0
    while start < len(triangle):
        row = _inverse_row(inverse, i)
        row[:] = 0.0
        row[: i + 1] = triangle[start : start + i + 1]
        i += 1
        start += i
