"""The compiled loops of Rooms: the state of N environments in arrays, one row per environment.

Every function takes the arrays that it reads and writes; there is no other state and no global random generator.
Random numbers are splitmix64 (Steele, Lea and Flood 2014): one 64-bit word per environment and stream, so that an
environment depends neither on the others nor on their number.

Arrays:
    streams [N, 2] uint64: the state of the layout stream and of the noise stream
    tiles   [N, S + 2 * MARGIN, S + 2 * MARGIN] uint8: the maps as [y, x]; views may extend into the margin
    agent   [N, 2] int64: x, y without the margin
    elapsed [N] int64: steps since the start of the episode
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from e3b_gym.compiling import cached_njit

VOID, FLOOR, WALL, CLOSED_DOOR, OPEN_DOOR, GOAL = range(6)
TILES = 6
UP, RIGHT, DOWN, LEFT, OPEN = range(5)
PITCH = 4  # a room is 3 x 3 floor, and neighbours share a wall
MARGIN = 3
VIEW = 2 * MARGIN + 1
LAYOUT_STREAM, NOISE_STREAM = 0, 1

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_NOISE_SALT = np.uint64(0xD6E8FEB86659FD93)
_ONE, _S27, _S30, _S31, _S32 = (np.uint64(n) for n in (1, 27, 30, 31, 32))

Array = NDArray[Any]


@cached_njit()
def _mix(z: Any) -> Any:
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@cached_njit()
def _draw(streams: Array, i: int, stream: int) -> Any:
    """Returns the next 64 random bits of one stream of environment i."""
    streams[i, stream] += _GAMMA
    return _mix(streams[i, stream])


@cached_njit()
def _below(streams: Array, i: int, n: int) -> Any:
    """Returns a uniform integer in [0, n) from the layout stream (multiply and shift: bias below n / 2^32)."""
    return np.int64(((_draw(streams, i, LAYOUT_STREAM) >> _S32) * np.uint64(n)) >> _S32)


@cached_njit()
def seed_streams(seeds: Array, streams: Array) -> None:
    """Seeds both streams of each environment; seeds are mixed, so that consecutive seeds give unrelated streams."""
    for i in range(len(seeds)):
        streams[i, LAYOUT_STREAM] = _mix(seeds[i] + _GAMMA)
        streams[i, NOISE_STREAM] = _mix(seeds[i] ^ _NOISE_SALT)


@cached_njit()
def _step_towards(direction: int) -> tuple[int, int]:
    """Returns (dx, dy) of up, right, down, left."""
    if direction == UP:
        return 0, -1
    if direction == RIGHT:
        return 1, 0
    if direction == DOWN:
        return 0, 1
    return -1, 0


@cached_njit()
def _is_free(path: Array, length: int, x: int, y: int) -> bool:
    """Whether the coarse cell (x, y) is on the grid (len(path) cells wide) and not on the path so far."""
    if x < 0 or y < 0 or x >= len(path) or y >= len(path):
        return False
    for k in range(length):  # noqa: SIM110 (numba compiles no generator expressions)
        if path[k, 0] == x and path[k, 1] == y:
            return False
    return True


@cached_njit()
def _grow_path(streams: Array, i: int, path: Array) -> bool:
    """Samples a self-avoiding walk of len(path) coarse cells; returns False at a dead end."""
    path[0, 0] = _below(streams, i, len(path))
    path[0, 1] = _below(streams, i, len(path))
    for k in range(1, len(path)):
        choices, chosen = 0, -1
        for direction in range(4):
            dx, dy = _step_towards(direction)
            if _is_free(path, k, path[k - 1, 0] + dx, path[k - 1, 1] + dy):
                choices += 1
                if _below(streams, i, choices) == 0:  # reservoir sampling: all equally likely
                    chosen = direction
        if chosen < 0:
            return False
        dx, dy = _step_towards(chosen)
        path[k, 0] = path[k - 1, 0] + dx
        path[k, 1] = path[k - 1, 1] + dy
    return True


@cached_njit()
def _build_rooms(grid: Array, path: Array) -> None:
    grid[:] = VOID
    for k in range(len(path)):
        left, top = MARGIN + PITCH * path[k, 0], MARGIN + PITCH * path[k, 1]
        for dy in range(PITCH + 1):
            for dx in range(PITCH + 1):
                on_border = dx == 0 or dy == 0 or dx == PITCH or dy == PITCH
                grid[top + dy, left + dx] = WALL if on_border else FLOOR


@cached_njit()
def _place_doors(streams: Array, i: int, grid: Array, path: Array) -> None:
    """Places a closed door between consecutive rooms, in one of the three cells of their common wall."""
    for k in range(1, len(path)):
        dx, dy = path[k, 0] - path[k - 1, 0], path[k, 1] - path[k - 1, 1]
        along = 1 + _below(streams, i, 3)
        x = MARGIN + PITCH * path[k - 1, 0] + (2 + 2 * dx if dx != 0 else along)
        y = MARGIN + PITCH * path[k - 1, 1] + (2 + 2 * dy if dy != 0 else along)
        grid[y, x] = CLOSED_DOOR


@cached_njit()
def begin_episodes(rows: Array, streams: Array, tiles: Array, agent: Array, elapsed: Array, path: Array) -> None:
    """Samples a layout, start and goal for each environment of `rows` [N] bool; `path` [rooms, 2] is scratch memory."""
    last = len(path) - 1
    for i in range(len(rows)):
        if not rows[i]:
            continue
        while not _grow_path(streams, i, path):
            pass
        _build_rooms(tiles[i], path)
        _place_doors(streams, i, tiles[i], path)
        for axis in range(2):
            agent[i, axis] = PITCH * path[0, axis] + 1 + _below(streams, i, 3)
        x = MARGIN + PITCH * path[last, 0] + 1 + _below(streams, i, 3)
        y = MARGIN + PITCH * path[last, 1] + 1 + _below(streams, i, 3)
        tiles[i, y, x] = GOAL
        elapsed[i] = 0


@cached_njit()
def advance(
    actions: Array,
    tiles: Array,
    agent: Array,
    elapsed: Array,
    max_steps: int,
    reward: Array,
    terminated: Array,
    truncated: Array,
) -> None:
    """Steps every environment; writes reward [N] float64, terminated [N] bool and truncated [N] bool."""
    for i in range(len(actions)):
        x, y = agent[i, 0] + MARGIN, agent[i, 1] + MARGIN
        if actions[i] == OPEN:
            for direction in range(4):
                dx, dy = _step_towards(direction)
                if tiles[i, y + dy, x + dx] == CLOSED_DOOR:
                    tiles[i, y + dy, x + dx] = OPEN_DOOR
        else:
            dx, dy = _step_towards(actions[i])
            ahead = tiles[i, y + dy, x + dx]
            if ahead in (FLOOR, OPEN_DOOR, GOAL):
                x, y = x + dx, y + dy
                agent[i, 0], agent[i, 1] = x - MARGIN, y - MARGIN
        elapsed[i] += 1
        terminated[i] = tiles[i, y, x] == GOAL
        truncated[i] = elapsed[i] >= max_steps and not terminated[i]
        reward[i] = 1.0 if terminated[i] else 0.0


@cached_njit()
def observe(
    rows: Array,
    streams: Array,
    tiles: Array,
    agent: Array,
    elapsed: Array,
    view: Array,
    position: Array,
    clock: Array,
    noise: Array,
) -> None:
    """Writes the observation of each environment of `rows` [N] bool; clock and noise may have width 0."""
    for i in range(len(rows)):
        if not rows[i]:
            continue
        x, y = agent[i, 0], agent[i, 1]
        view[i] = tiles[i, y : y + VIEW, x : x + VIEW]  # the margin shifts the window onto the agent
        position[i, 0], position[i, 1] = x, y
        for bit in range(clock.shape[1]):
            clock[i, bit] = (elapsed[i] >> bit) & 1
        word = np.uint64(0)
        for bit in range(noise.shape[1]):
            if bit % 64 == 0:
                word = _draw(streams, i, NOISE_STREAM)
            noise[i, bit] = word & _ONE
            word >>= _ONE


@cached_njit()
def flatten(rows: Array, side: int, view: Array, position: Array, clock: Array, noise: Array, flat: Array) -> None:
    """Writes the observation as one float32 vector: one-hot tiles, one-hot x, one-hot y, clock, noise."""
    cells = VIEW * VIEW
    for i in range(len(rows)):
        if not rows[i]:
            continue
        flat[i] = 0.0
        for cell in range(cells):
            flat[i, cell * TILES + view[i, cell // VIEW, cell % VIEW]] = 1.0
        start = cells * TILES
        flat[i, start + position[i, 0]] = 1.0
        flat[i, start + side + position[i, 1]] = 1.0
        start += 2 * side
        for bit in range(clock.shape[1]):
            flat[i, start + bit] = clock[i, bit]
        start += clock.shape[1]
        for bit in range(noise.shape[1]):
            flat[i, start + bit] = noise[i, bit]
