# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return, assignment"
"""Compiled loops of `unique_rows`, `sum_rows` and `patches`; those modules describe what they compute.

All are in this one file because numba's cache does not detect changes in another file. Hashes are dot products with
fixed random numbers, which vectorise; rows with equal hashes are then compared exactly.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from e3b_gym.compiling import cached_njit

LANES = 8  # columns that `add_to_narrow_rows` holds in registers
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_compiled = cached_njit(error_model="numpy", nogil=True)


@functools.cache
def new_keys(width: int) -> Any:
    """Returns odd random numbers below 2**32, uint64 [width], the same in every process."""
    return np.random.default_rng(0).integers(1, 2**32, width, dtype=np.uint64) | np.uint64(1)


_PATCH_KEYS = new_keys(3)
_BITS = np.uint64(21)  # bits per symbol, so that three fit into a word
_ONE, _THREE = np.uint64(2**21 - 1), np.uint64(2**63 - 1)


@_compiled
def _hash(row, keys):
    total = np.uint64(0)
    for i in range(len(row)):
        total += np.uint64(np.uint32(row[i])) * keys[i]
    return total


@_compiled
def _equal(a, b):
    difference = 0
    for i in range(len(a)):  # no early exit, so that it vectorises
        difference |= a[i] ^ b[i]
    return difference == 0


@_compiled
def _slot(total, mask):
    mixed = (total ^ (total >> _HALF)) * _MIX
    return np.int64((mixed >> _HALF) & mask)


@_compiled
def number_rows(rows, keys, table, table_hashes, known, count, numbers):
    """numbers[r] = u where known[u] equals rows[r]; a new row is appended to known at index count.

    rows [R, W] integers, keys [W], table and table_hashes [2**k > len(known)], where -1 is an empty slot, known
    [capacity, W] with room for R more rows. Returns the new number of known rows.
    """
    mask = np.uint64(len(table) - 1)
    for r in range(len(rows)):
        total = _hash(rows[r], keys)
        slot = _slot(total, mask)
        while True:
            number = table[slot]
            if number < 0:
                table[slot], table_hashes[slot] = count, total
                known[count] = rows[r]
                numbers[r] = count
                count += 1
                break
            if table_hashes[slot] == total and _equal(rows[r], known[number]):
                numbers[r] = number
                break
            slot = (slot + 1) & np.int64(mask)
    return count


@_compiled
def add_from_rows(table, numbers, rows):
    """rows[r] += table[numbers[r]]; table [P, D], numbers [R], rows [R, D]."""
    for r in range(len(numbers)):
        source, row = table[np.uintp(numbers[r])], rows[np.uintp(r)]
        for d in range(len(row)):
            row[np.uintp(d)] += source[np.uintp(d)]


@_compiled
def add_to_wide_rows(table, index, rows):
    """table[index[r, j]] += rows[r]; table [P, D], index [R, J], rows [R, D]."""
    for r in range(len(index)):
        for j in range(index.shape[1]):
            target, row = table[np.uintp(index[r, j])], rows[np.uintp(r)]
            for d in range(len(row)):
                target[np.uintp(d)] += row[np.uintp(d)]


@_compiled
def add_to_narrow_rows(table, index, rows):
    """`add_to_wide_rows` for D a small multiple of 8: keeps the summands in registers, which the compiler would not."""
    for r in range(len(index)):
        row = rows[np.uintp(r)]
        for block in range(0, table.shape[1], LANES):
            i = np.uintp(block)
            a, b, c, d = row[i], row[i + np.uintp(1)], row[i + np.uintp(2)], row[i + np.uintp(3)]
            e, f, g, h = row[i + np.uintp(4)], row[i + np.uintp(5)], row[i + np.uintp(6)], row[i + np.uintp(7)]
            for j in range(index.shape[1]):
                target = table[np.uintp(index[r, j])]
                target[i] += a
                target[i + np.uintp(1)] += b
                target[i + np.uintp(2)] += c
                target[i + np.uintp(3)] += d
                target[i + np.uintp(4)] += e
                target[i + np.uintp(5)] += f
                target[i + np.uintp(6)] += g
                target[i + np.uintp(7)] += h


@_compiled
def number_glyphs(maps, numbers, counts, symbols):
    """Writes maps [M, H, W] of glyphs to symbols[1:] [M, W + 2, H + 2], transposed and inside a halo.

    Writes to `numbers` [glyphs], which must be 0, the symbol of each glyph, from 1 on, and to counts [glyphs] its
    number of cells. Returns the number of symbols, or -1 if a glyph is outside the table.
    """
    count = 0
    for m in range(len(maps)):
        for y in range(maps.shape[1]):
            for x in range(maps.shape[2]):
                glyph = np.int64(maps[m, y, x])
                if glyph < 0 or glyph >= len(numbers):
                    return -1
                if numbers[glyph] == 0:
                    count += 1
                    numbers[glyph] = count
                counts[glyph] += 1
                symbols[m + 1, x + 1, y + 1] = numbers[glyph]
    return count


@_compiled
def find_windows(symbols, windows):
    """windows[m] = first and last row, first and last column where map m differs from map 0; map 0: the whole map."""
    rows, columns = symbols.shape[1], symbols.shape[2]
    windows[0] = np.array((1, rows - 2, 1, columns - 2))
    for m in range(1, len(symbols)):
        top, bottom, left, right = rows, -1, columns, -1
        for i in range(1, rows - 1):
            if not _equal(symbols[m, i], symbols[0, i]):
                top, bottom = min(top, i), i
                for j in range(1, columns - 1):
                    if symbols[m, i, j] != symbols[0, i, j]:
                        left, right = min(left, j), max(right, j)
        windows[m, 0], windows[m, 1], windows[m, 2], windows[m, 3] = top, bottom, left, right


@_compiled
def _patch_slot(triples, mask):
    return _slot(triples[0] * _PATCH_KEYS[0] + triples[1] * _PATCH_KEYS[1] + triples[2] * _PATCH_KEYS[2], mask)


@_compiled
def _with_more_room(patches, table):
    """Returns the patches [U, 3] in an array of twice the size, and a new hash table of them."""
    more = np.empty((2 * len(patches), 3), np.uint64)
    more[: len(patches)] = patches
    table = np.full(2 * len(table), -1, np.int32)
    mask = np.uint64(len(table) - 1)
    for number in range(1, len(patches)):
        slot = _patch_slot((patches[number, 0], patches[number, 1], patches[number, 2]), mask)
        while table[slot] >= 0:
            slot = (slot + 1) & np.int64(mask)
        table[slot] = number
    return more, table


@_compiled
def number_patches(symbols, windows, reach, most, numbers):
    """numbers[m, i, j] = u where patches[u] are the 3x3 symbols around the cell; all [M, rows, columns] with a halo.

    More than `reach` cells away from its window, the patches of a map are those of map 0. Patches are numbered from 1;
    0 is the halo. Returns them as [1 + U, 3], three symbols per word, which is exact up to 2**21 symbols; returns an
    empty array if there are more than `most`.
    """
    patches, table = np.zeros((1024, 3), np.uint64), np.full(4096, -1, np.int32)
    mask = np.uint64(len(table) - 1)
    count = 1
    for m in range(len(symbols)):
        if m > 0:
            numbers[m] = numbers[0]
        left, right = max(1, windows[m, 2] - reach), min(symbols.shape[2] - 1, windows[m, 3] + reach + 1)
        for i in range(max(1, windows[m, 0] - reach), min(symbols.shape[1] - 1, windows[m, 1] + reach + 1)):
            above, here, below = symbols[m, i - 1], symbols[m, i], symbols[m, i + 1]
            a = np.uint64(above[left - 1]) << _BITS | np.uint64(above[left])
            b = np.uint64(here[left - 1]) << _BITS | np.uint64(here[left])
            c = np.uint64(below[left - 1]) << _BITS | np.uint64(below[left])
            for j in range(left, right):
                a = (a << _BITS | np.uint64(above[j + 1])) & _THREE
                b = (b << _BITS | np.uint64(here[j + 1])) & _THREE
                c = (c << _BITS | np.uint64(below[j + 1])) & _THREE
                slot = _patch_slot((a, b, c), mask)
                number = table[slot]
                while number >= 0:
                    if patches[number, 0] == a and patches[number, 1] == b and patches[number, 2] == c:
                        break
                    slot = (slot + 1) & np.int64(mask)
                    number = table[slot]
                if number < 0:
                    if count > most:
                        return patches[:0]
                    number = count
                    table[slot] = count
                    patches[count, 0], patches[count, 1], patches[count, 2] = a, b, c
                    count += 1
                    if count == len(patches):
                        patches, table = _with_more_room(patches, table)
                        mask = np.uint64(len(table) - 1)
                numbers[m, i, j] = number
    return patches[:count]


@_compiled
def look_ups(patches, index):
    """index[u - 1, k] = 9 v + k where v is the k-th symbol of patch u: its row in a table with nine rows per symbol."""
    for u in range(1, len(patches)):
        for row in range(3):
            triple = patches[u, row]
            for column in range(2, -1, -1):
                k = 3 * row + column
                index[u - 1, k] = 9 * np.int64(triple & _ONE) + k
                triple >>= _BITS


@_compiled
def number_tiles(cells, size, keys, table, table_hashes, numbers, first, starts):
    """numbers[m, t] = p where tile t of map m, `size` consecutive cells of [M, n], is the p-th different tile.

    The different tiles at position t are starts[t] to starts[t + 1]; first[p] is a map that has tile p. `table`
    [2**k > M].
    """
    mask = np.uint64(len(table) - 1)
    count = 0
    for t in range(numbers.shape[1]):
        starts[t] = count
        table[:] = -1
        for m in range(len(cells)):
            tile = cells[m, t * size : (t + 1) * size]
            total = _hash(tile, keys)
            slot = _slot(total, mask)
            while table[slot] >= 0 and not (
                table_hashes[slot] == total and _equal(tile, cells[first[table[slot]], t * size : (t + 1) * size])
            ):
                slot = (slot + 1) & np.int64(mask)
            if table[slot] < 0:
                table[slot], table_hashes[slot] = count, total
                first[count] = m
                count += 1
            numbers[m, t] = table[slot]
    starts[numbers.shape[1]] = count
