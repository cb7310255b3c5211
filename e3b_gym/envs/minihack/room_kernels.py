"""The compiled loops of `drawing.draw_rooms`: MiniGrid's MultiRoom generator, with the same random numbers.

words   [W] int64: the 32-bit words of the seeded generator, in order
at      [1] int64: how many of them are used; more than W if there were too few, and then the result is invalid
rooms   [R, 6] int64: x, y, width, height of each room, walls included, and x, y of the door that leads into it
grid    [H, W] uint8: one character per cell
"""

from __future__ import annotations

from typing import Any

from e3b_gym.compiling import cached_njit

FLOOR, DOOR = ord("."), ord("+")
_MIN_ROOM_SIZE = 4  # walls included
_TRIES_PER_ROOM = 8
_DOOR_COLOURS, _DIRECTIONS, _WALLS = 6, 4, 4
_RIGHT, _BOTTOM, _LEFT, _TOP = range(_WALLS)
_X, _Y, _WIDTH, _HEIGHT, _DOOR_X, _DOOR_Y = range(6)
_LOWER_HALF = 2**32 - 1


@cached_njit()
def integers(words: Any, at: Any, low: int, high: int) -> Any:
    """The result of numpy's `Generator.integers(low, high)` for the same words, if high - low < 2**31.

    The result is the upper half of the word times the count of numbers; words whose lower half would favour some
    numbers are skipped (Lemire 2019).
    """
    count = high - low
    if count == 1:
        return low
    skipped = (_LOWER_HALF + 1) % count
    while at[0] < words.size:
        product = words[at[0]] * count
        at[0] += 1
        if product & _LOWER_HALF >= skipped:
            return low + (product >> 32)
    at[0] = words.size + 1
    return low


@cached_njit()
def place_room(words: Any, at: Any, rooms: Any, i: int, entry: int, size: int, width: int, height: int) -> bool:
    """Draws room i behind the door in rooms[i], in its wall `entry`.

    False where it leaves the grid or overlaps another room.
    """
    room = rooms[i]
    room_width = integers(words, at, _MIN_ROOM_SIZE, size + 1)
    room_height = integers(words, at, _MIN_ROOM_SIZE, size + 1)
    x, y = room[_DOOR_X], room[_DOOR_Y]
    if i > 0:  # the first room has its corner there
        if entry in (_LEFT, _RIGHT):
            x -= room_width - 1 if entry == _RIGHT else 0
            y = integers(words, at, y - room_height + 2, y)
        else:
            y -= room_height - 1 if entry == _BOTTOM else 0
            x = integers(words, at, x - room_width + 2, x)
    if x < 0 or y < 0 or x + room_width > width or y + room_height >= height:
        return False
    for j in range(i - 1):  # the room before may touch it
        other = rooms[j]
        apart_in_x = x + room_width < other[_X] or other[_X] + other[_WIDTH] <= x
        apart_in_y = y + room_height < other[_Y] or other[_Y] + other[_HEIGHT] <= y
        if not apart_in_x and not apart_in_y:
            return False
    room[_X], room[_Y], room[_WIDTH], room[_HEIGHT] = x, y, room_width, room_height
    return True


@cached_njit()
def place_door(words: Any, at: Any, rooms: Any, i: int, wall: int) -> None:
    """Draws the door from room i - 1 into room i."""
    room = rooms[i - 1]
    x, y = room[_X], room[_Y]
    if wall in (_LEFT, _RIGHT):
        x += room[_WIDTH] - 1 if wall == _RIGHT else 0
        y += integers(words, at, 1, room[_HEIGHT] - 1)
    else:
        x += integers(words, at, 1, room[_WIDTH] - 1)
        y += room[_HEIGHT] - 1 if wall == _BOTTOM else 0
    rooms[i, _DOOR_X], rooms[i, _DOOR_Y] = x, y


@cached_njit()
def chain_rooms(words: Any, at: Any, rooms: Any, size: int, width: int, height: int) -> bool:
    """Draws rooms each of which opens into the next. False where one finds no place."""
    rooms[0, _DOOR_X] = integers(words, at, 0, width - 2)
    rooms[0, _DOOR_Y] = integers(words, at, 0, width - 2)
    entry = _LEFT
    if not place_room(words, at, rooms, 0, entry, size, width, height):
        return False
    for i in range(1, len(rooms)):
        placed = False
        for _ in range(_TRIES_PER_ROOM):
            wall = integers(words, at, 0, _WALLS - 1)
            wall += wall >= entry  # any but the wall of the entry
            place_door(words, at, rooms, i, wall)
            next_entry = (wall + 2) % _WALLS
            placed = place_room(words, at, rooms, i, next_entry, size, width, height)
            if placed:
                break
        if not placed:
            return False
        entry = next_entry
    return True


@cached_njit()
def free_cell(words: Any, at: Any, grid: Any, room: Any, taken_x: int, taken_y: int) -> tuple[int, int]:
    """Draws a cell of a room that is neither wall nor door nor taken."""
    while True:
        x = integers(words, at, room[_X], room[_X] + room[_WIDTH])
        y = integers(words, at, room[_Y], room[_Y] + room[_HEIGHT])
        if at[0] > words.size or (grid[y, x] == FLOOR and not (x == taken_x and y == taken_y)):
            return x, y


@cached_njit()
def draw(words: Any, at: Any, rooms: Any, grid: Any, size: int, wall: int) -> tuple[int, int, int, int]:
    """Draws a whole level; returns x, y of the start and x, y of the goal."""
    height, width = grid.shape
    while at[0] <= words.size and not chain_rooms(words, at, rooms, size, width, height):
        pass
    if at[0] > words.size:
        return 0, 0, 0, 0
    grid[:] = FLOOR
    for i in range(len(rooms)):
        x, y = rooms[i, _X], rooms[i, _Y]
        right, bottom = x + rooms[i, _WIDTH], y + rooms[i, _HEIGHT]
        grid[y, x:right] = wall
        grid[bottom - 1, x:right] = wall
        grid[y:bottom, x] = wall
        grid[y:bottom, right - 1] = wall
        if i > 0:
            integers(words, at, 0, _DOOR_COLOURS - (i > 1))  # a colour that the last door does not have
            grid[rooms[i, _DOOR_Y], rooms[i, _DOOR_X]] = DOOR
    start_x, start_y = free_cell(words, at, grid, rooms[0], -1, -1)
    integers(words, at, 0, _DIRECTIONS)  # the agent's
    goal_x, goal_y = free_cell(words, at, grid, rooms[-1], start_x, start_y)
    return start_x, start_y, goal_x, goal_y
