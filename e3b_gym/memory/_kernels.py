# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return, assignment"
"""The elliptical memory in compiled loops: one environment at a time, one thread, no BLAS.

    advance -> _enter -> _fold or _promote if the pending rows are full; _whiten or _whiten_all; _score

See `elliptical.py` for the equations. `matrix` stores M', which is lower triangular: reading it costs half, and every
inner loop is contiguous in memory. Loops are unrolled by hand where the compiler does not do it. All are in this one
file because numba's cache does not detect changes in another file.
"""

from __future__ import annotations

import math

import numpy as np

from e3b_gym.compiling import cached_njit

PENDING = 16  # pending rows of a folded matrix: fewer mean more folds, more mean larger small matrices
BLOCK = 32  # rows of an unfolded episode scored at once
PANEL = 4  # columns of M folded at a time
STRIP = 256  # columns of M' that are stored and folded together, so that the running sums stay in cache

LONG = 1.1e5  # |phi|^2 / ridge above which a float32 root is accurate enough only once the rows span the space

_MATHS = {"reassoc", "contract", "nsz", "arcp"}  # sums may be reordered; NaN and inf keep their meaning
_compiled = cached_njit(fastmath=_MATHS, error_model="numpy", nogil=True)


def matrix_size(dim: int) -> int:
    """Returns the array size of M' for one environment."""
    return sum(min(STRIP, dim) * (dim - lo) for lo in range(0, dim, STRIP))


@_compiled
def _strip(matrix, dim, lo):
    """Columns lo to lo + STRIP of M', from row lo down; the rows above are zero and not stored."""
    start = lo * (2 * dim - lo + STRIP) // 2
    width = min(STRIP, dim)
    return matrix[start : start + width * (dim - lo)].reshape(dim - lo, width)


def inverse_size(count: int) -> int:
    """Returns the array size of N for `count` rows."""
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
        for j in range(dim - lo):  # row by row: memory is fastest at a single sequential stream
            row, a = strip[j], zero
            for i in range(min(j + 1, STRIP)):
                a += row[i] * x[i]
            out[j] += a


@_compiled
def _whiten_all(matrix, phi, count, z):
    """z = phi M for up to PENDING rows, reading M once."""
    dim = phi.shape[1]
    zero = np.zeros(1, z.dtype)[0]
    z[:] = zero
    for lo in range(0, dim, STRIP):
        strip = _strip(matrix, dim, lo)
        for j in range(0, dim - lo, 2):
            k = min(j + 1, dim - lo - 1)  # if the number of rows is odd, the last one is used twice
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
        for t in range(0, new - 1, 2):
            z, y = rows[count + t], rows[count + t + 1]
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
            for j in range(dim):
                v, w = np.float64(z[j]), np.float64(y[j])
                x0, x1, x2, x3 = np.float64(r0[j]), np.float64(r1[j]), np.float64(r2[j]), np.float64(r3[j])
                a0 += x0 * v
                a1 += x1 * v
                a2 += x2 * v
                a3 += x3 * v
                b0 += x0 * w
                b1 += x1 * w
                b2 += x2 * w
                b3 += x3 * w
            out[t, i], out[t, i + 1], out[t, i + 2], out[t, i + 3] = a0, a1, a2, a3
            out[t + 1, i], out[t + 1, i + 1], out[t + 1, i + 2], out[t + 1, i + 3] = b0, b1, b2, b3
        if new % 2 == 1:
            z = rows[count + new - 1]
            a0 = a1 = a2 = a3 = 0.0
            for j in range(dim):
                v = np.float64(z[j])
                a0 += np.float64(r0[j]) * v
                a1 += np.float64(r1[j]) * v
                a2 += np.float64(r2[j]) * v
                a3 += np.float64(r3[j]) * v
            t = new - 1
            out[t, i], out[t, i + 1], out[t, i + 2], out[t, i + 3] = a0, a1, a2, a3


@_compiled
def _inverse_row(inverse, i):
    """Row i of N, padded with zeros to a multiple of four, so that four rows form a rectangle."""
    width = i // 4 * 4 + 4
    start = (i // 4) * (width * 2) + (i % 4) * width
    return inverse[start : start + width]


@_compiled
def _project(inverse, i, gram, new, h, explained):
    """h[t] += n (n . gram[t]) for the rows n = N[i] .. N[i + 3] and every new t."""
    n0, n1 = _inverse_row(inverse, i), _inverse_row(inverse, i + 1)
    n2, n3 = _inverse_row(inverse, i + 2), _inverse_row(inverse, i + 3)
    for t in range(new):
        g, out = gram[t], h[t]
        a0 = a1 = a2 = a3 = 0.0
        for j in range(i + 4):
            a0 += n0[j] * g[j]
            a1 += n1[j] * g[j]
            a2 += n2[j] * g[j]
            a3 += n3[j] * g[j]
        explained[t] += a0 * a0 + a1 * a1 + a2 * a2 + a3 * a3
        for j in range(i + 4):
            out[j] = out[j] + a0 * n0[j] + a1 * n1[j] + a2 * n2[j] + a3 * n3[j]


@_compiled
def _regress(gram, inverse, count, new, prior, weights):
    """h = (prior I + Z Z')^-1 gram[t] over the rows before t, for each new row t; appends these rows to N.

    Writes -h to `weights` and returns prior * b. Row t of N is (-h, 1) / sqrt(prior + prior * b).
    """
    explained = np.zeros(new)
    h = np.zeros(gram.shape)
    whole = count // 4 * 4
    for i in range(0, whole, 4):
        _project(inverse, i, gram, new, h, explained)
    for t in range(new):
        size = count + t
        for i in range(whole, size):  # rows of this block, and the remainder of count / 4
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
            weights[t, j] = -h[t, j]
            row[j] = -scale * h[t, j]
        explained[t] = left
    return explained


@_compiled
def _add(out, weights, first, rows, count, lo, hi):
    """out[:, lo:hi] += weights[first:] @ rows[:count, lo:hi], in tiles of 2 x 4, which must divide the sizes."""
    for b in range(0, count, 4):
        r0, r1, r2, r3 = rows[b][lo:hi], rows[b + 1][lo:hi], rows[b + 2][lo:hi], rows[b + 3][lo:hi]
        for a in range(0, out.shape[0], 2):
            o0, o1 = out[a][lo:hi], out[a + 1][lo:hi]
            w0, w1 = weights[first + a], weights[first + a + 1]
            p0, p1, p2, p3 = w0[b], w0[b + 1], w0[b + 2], w0[b + 3]
            q0, q1, q2, q3 = w1[b], w1[b + 1], w1[b + 2], w1[b + 3]
            for i in range(hi - lo):
                x0, x1, x2, x3 = r0[i], r1[i], r2[i], r3[i]
                o0[i] = o0[i] + p0 * x0 + p1 * x1 + p2 * x2 + p3 * x3
                o1[i] = o1[i] + q0 * x0 + q1 * x1 + q2 * x2 + q3 * x3


@_compiled
def _copy(source, start, count, out, place):
    """out[place : place + count] = source[start : start + count]; numba compiles slices slowly."""
    for t in range(count):
        for j in range(source.shape[1]):
            out[place + t, j] = source[start + t, j]


@_compiled
def _score(rows, inverse, count, new, prior, trust, bonus):
    """Scores the `new` whitened rows that follow the `count` pending rows; afterwards they are pending, too.

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
    _copy(rows, count, new, residual, np.int64(0))
    width = dim if new == 1 else STRIP
    for lo in range(0, dim, width):
        _add(residual, single, np.int64(0), rows, size, lo, min(lo + width, dim))
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
def _fold_weights(columns, mix, past):
    """For each panel of columns: M_J' <- mix_J M_J' + past_J (sum of z_i M_i' over the columns i before the panel).

    With R R' = (I + sum_{i<j} z_i z_i')^-1, v = R'z_j, s^2 = 1 + v'v and u = R v / s, column j of M becomes
    m_j / s - (sum_{i<j} m_i z_i') u; then R <- R - u v' / (s + 1). R is again a root: nothing is squared, so no digits
    are lost on long rows that repeat. `columns` is Z'.
    """
    root = np.eye(PENDING)
    v = np.empty(PENDING)
    for j in range(len(columns)):
        z, u = columns[j], past[j]
        v[:] = 0.0
        for a in range(0, PENDING, 4):
            r0, r1, r2, r3 = root[a], root[a + 1], root[a + 2], root[a + 3]
            z0, z1, z2, z3 = z[a], z[a + 1], z[a + 2], z[a + 3]
            for c in range(PENDING):
                v[c] = v[c] + r0[c] * z0 + r1[c] * z1 + r2[c] * z2 + r3[c] * z3
        s = 1.0
        for c in range(PENDING):
            s += v[c] * v[c]
        s = math.sqrt(s)
        for a in range(0, PENDING, 4):
            r0, r1, r2, r3 = root[a], root[a + 1], root[a + 2], root[a + 3]
            x0 = x1 = x2 = x3 = 0.0
            for c in range(PENDING):
                x0 += r0[c] * v[c]
                x1 += r1[c] * v[c]
                x2 += r2[c] * v[c]
                x3 += r3[c] * v[c]
            u[a], u[a + 1], u[a + 2], u[a + 3] = -x0 / s, -x1 / s, -x2 / s, -x3 / s
            shrink = 1.0 / (s * (s + 1.0))
            x0, x1, x2, x3 = x0 * shrink, x1 * shrink, x2 * shrink, x3 * shrink
            for c in range(PENDING):
                r0[c] -= x0 * v[c]
                r1[c] -= x1 * v[c]
                r2[c] -= x2 * v[c]
                r3[c] -= x3 * v[c]
        for i in range(j - j % PANEL, j):
            x = 0.0
            for a in range(PENDING):
                x += columns[i, a] * u[a]
            mix[j, i % PANEL] = x
        mix[j, j % PANEL] = 1.0 / s


@_compiled
def _fold(matrix, rows, count):
    """M <- M T with T upper triangular and T T' = (I + Z'Z)^-1; computed in float64, rounded once."""
    dim = rows.shape[1]
    panels = (dim + PANEL - 1) // PANEL
    mix = np.zeros((panels * PANEL, PANEL))
    past = np.zeros((panels * PANEL, PENDING))
    columns = np.zeros((panels * PANEL, PENDING))
    z = np.zeros((panels * PENDING, PANEL))
    for a in range(count):
        for i in range(dim):
            columns[i, a] = z[i // PANEL * PENDING + a, i % PANEL] = rows[a, i]
    _fold_weights(columns, mix, past)
    old = np.zeros((PANEL, STRIP))
    new = np.empty((PANEL, STRIP))
    sums = np.empty((PENDING, STRIP))  # sum_{i<j} m_i z_i'
    for lo in range(0, dim, STRIP):
        strip = _strip(matrix, dim, lo)
        sums[:] = 0.0
        for p in range(lo // PANEL, panels):
            top = p * PANEL - lo
            n = min(PANEL, dim - p * PANEL)
            width = min(STRIP, top + n)
            for j in range(PANEL):
                for i in range(width):
                    old[j, i] = strip[top + j, i] if j < n else 0.0
                    new[j, i] = 0.0
            _add(new, mix, p * PANEL, old, len(old), np.int64(0), width)
            _add(new, past, p * PANEL, sums, len(sums), np.int64(0), width)
            _add(sums, z, p * PENDING, old, len(old), np.int64(0), width)
            for j in range(n):
                for i in range(width):
                    strip[top + j, i] = new[j, i]


@_compiled
def _promote(matrix, rows, count, ridge):
    """Folds the rows of an unfolded episode into the matrix, which starts as I / sqrt(ridge)."""
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
        phi[:] = 0.0
        _copy(rows, start, n, phi, np.int64(0))
        _whiten_all(matrix, phi, n, white)
        _fold(matrix, white, n)


@_compiled
def _room(rows, count, new, ridge):
    """Returns how many rows an unfolded episode stores.

    Fewer for single steps, which read all rows each time, unless a row is long: then a float32 root would lose digits
    before the rows span the space.
    """
    most = rows.shape[0] - 3
    if new > 1 or count < most * 2 // 5:
        return most
    for t in range(count):
        square = 0.0
        for j in range(rows.shape[1]):
            square += np.float64(rows[t, j]) * np.float64(rows[t, j])
        if square > LONG * ridge:
            return most
    return count


@_compiled
def _enter(phi, new, ridge, trust, matrix, rows, inverse, count, folded, bonus):
    """Scores `new` rows phi and adds them, folding first if the pending rows are full; returns count and folded."""
    if folded and count + new > PENDING:
        _fold(matrix, rows, count)
        count = 0
    elif not folded and count + new > _room(rows, count, new, ridge):
        _promote(matrix, rows, count, ridge)
        folded = True
        count = 0
    if not folded:
        _copy(phi, np.int64(0), new, rows, count)
    elif new == 1:
        _whiten(matrix, phi[0], rows[count])
    else:
        white = np.empty(phi.shape, phi.dtype)
        _whiten_all(matrix, phi, new, white)
        _copy(white, np.int64(0), new, rows, count)
    _score(rows, inverse, count, new, 1.0 if folded else ridge, trust, bonus)
    return count + new, folded


@_compiled
def _most(rows, count, folded):
    """Returns how many rows to score at once: as many as fit before the next fold, at most BLOCK."""
    left = (PENDING if folded else rows.shape[0] - 3) - count
    return min(left, BLOCK) if left > 0 else PENDING


@_compiled
def advance(phi, clear, opening, entry, slots, start, stop, ridge, trust, matrix, rows, inverse, counts, folds, bonus):
    """Scores columns start to stop of phi [T, n, d]; where `entry` [T, n] >= 0, adds that row of `opening` unscored."""
    block = np.zeros((BLOCK, phi.shape[2]), phi.dtype)
    scores = np.empty(BLOCK)
    target = np.empty(BLOCK, np.int64)  # the step of each row of the block, -1: unscored
    for n in range(start, stop):
        e = slots[n]
        count, folded = counts[e], folds[e]
        new = np.int64(0)
        for event in range(2 * phi.shape[0] + 1):  # an opening and a row for each step, and the end
            t, is_row = event // 2, event % 2 == 1
            ends = t == phi.shape[0]
            if new > 0 and (ends or new == _most(rows[e], count, folded) or (clear[t, n] and not is_row)):
                count, folded = _enter(block, new, ridge, trust, matrix[e], rows[e], inverse[e], count, folded, scores)
                for i in range(new):
                    if target[i] >= 0:
                        bonus[target[i], n] = scores[i]
                new = np.int64(0)
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
            is_zero = True
            for j in range(x.size):
                block[new, j] = x[j]
                is_zero = is_zero and x[j] == 0.0
            if not is_zero:  # a zero row does not change the ellipse
                target[new] = t if is_row else -1
                new += 1
        counts[e], folds[e] = count, folded


@_compiled
def save(matrix, inverse, dense, triangle):
    """Copies the stored M' to a square matrix and N to the rows of a triangle."""
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
    """The inverse of `save`."""
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
