"""progress.csv, the curve of a run: rows of named numbers, one per `log_seconds`.

A kill or a full disk can leave an incomplete row at the end, and a disk can return garbage. Such rows are dropped with
a warning when a run resumes; a row that could not be written is written with the next one.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e3b_gym.files import atomic_write

WINDOW = 200
"""Number of training episodes over which return, length, success and the score of a checkpoint are averaged."""
_NAME = re.compile(r"[A-Za-z_][\w./ -]*", re.ASCII)


class CurveWarning(RuntimeWarning):
    """Rows of a curve were dropped, or could not be written yet."""


class Curve:
    """The curve of a run in training; a new name adds a column.

    Args:
        path: path of the file. It is not changed before the first `write`.
        upto: rows of an earlier part of the run are kept up to this frame.
    """

    def __init__(self, path: Path, upto: int) -> None:
        self._path = path
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._on_disk = not path.exists()  # whether the file holds exactly these rows
        self._unreadable = False
        if path.exists():
            self._columns, self._rows = read_curve(path, upto)
            self._unreadable = not self._columns and path.stat().st_size > 0

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds a row; warns if it could not be written."""
        self._rows.append(dict(row))
        fresh = [name for name in row if name not in self._columns]
        self._columns += fresh
        self._put(None if fresh or not self._on_disk else row)

    def close(self) -> None:
        """Retries to write the rows that could not be written."""
        if self._rows and not self._on_disk:
            self._put(None)

    def _put(self, row: Mapping[str, Any] | None) -> None:
        """Appends a row to the file, or without one rewrites all rows; warns if that fails."""
        self._on_disk = False
        try:
            if row is None:
                self._rewrite()
            else:
                with self._path.open("a", newline="") as file:
                    csv.DictWriter(file, self._columns, restval="").writerow(row)
            self._on_disk = True
        except OSError as error:
            warnings.warn(
                f"a row of {self._path} could not be written ({error.strerror}); training continues, the row follows "
                "with the next one",
                CurveWarning,
                stacklevel=3,
            )

    def _rewrite(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, restval="")
        writer.writeheader()
        writer.writerows(self._rows)
        if self._unreadable:
            self._put_aside()
        with atomic_write(self._path) as temporary:
            temporary.write_text(text.getvalue(), newline="")

    def _put_aside(self) -> None:
        aside = self._path.with_name(f"{self._path.name}.damaged")
        warnings.warn(f"{self._path} has no readable header; it is kept as {aside.name}", CurveWarning, stacklevel=4)
        os.replace(self._path, aside)
        self._unreadable = False


def read_curve(path: Path, upto: int | None = None) -> tuple[list[str], list[dict[str, str]]]:
    """Returns the columns and the complete rows of a curve; no columns if the header cannot be read.

    Args:
        path: path of a progress.csv.
        upto: leave out later frames.
    """
    *lines, tail = path.read_bytes().split(b"\n")  # every complete line has an end
    cells = [_cells(line) for line in lines]
    columns = cells[0] if cells else None
    if columns is None or columns[0] != "frames" or len({*columns}) < len(columns):
        return [], []
    if not all(_NAME.fullmatch(name) for name in columns):
        return [], []
    rows, dropped, last = [], int(bool(tail)), -1
    for row in cells[1:]:
        if row is None or len(row) != len(columns) or not all(map(_is_number, row)) or not row[0].isdigit():
            dropped += 1
        elif upto is not None and int(row[0]) > upto:
            continue
        elif int(row[0]) <= last:
            dropped += 1
        else:
            rows.append(dict(zip(columns, row, strict=True)))
            last = int(row[0])
    if dropped:
        warnings.warn(f"{path} is damaged: {dropped} incomplete rows dropped", CurveWarning, stacklevel=3)
    return columns, rows


def _cells(line: bytes) -> list[str] | None:
    try:
        return line.removesuffix(b"\r").decode("ascii").split(",")
    except UnicodeDecodeError:
        return None


def _is_number(cell: str) -> bool:
    """Whether a cell is empty or a number as this library writes them."""
    try:
        return not cell or (not cell[0].isspace() and "_" not in cell and float(cell) is not None)
    except ValueError:
        return False
