"""Progress of a run: a status line, progress.csv and TensorBoard, with the same values.

Values of the learner are averaged since the last row; return (without the bonus), length and success are means over the
last 200 training episodes.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from torch.utils.tensorboard.writer import SummaryWriter

from agents.protocols import Episodes, Update
from experiments.curve import WINDOW, Curve, CurveWarning

LINE_SECONDS = 0.5
"""Seconds between two updates of the status line in a terminal."""
LOG_FILE_SECONDS = 30.0
"""Seconds between two status lines in a file."""
SHORTER = {"  ": " ", " frames": "", " left": "", "return": "ret", "length": "len", "success": "succ", "inverse": "inv"}
"""Abbreviations for narrow terminals."""


class EpisodeWindow:
    """Statistics of the last episodes."""

    def __init__(self, size: int = WINDOW) -> None:
        self.size = size
        self.count = 0
        self._rows: dict[str, deque[float]] = {name: deque(maxlen=size) for name in ("return", "length", "success")}

    def add(self, episodes: Episodes) -> None:
        self.count += len(episodes.returns)
        columns: dict[str, NDArray[Any]] = {
            "return": episodes.returns,
            "length": episodes.lengths,
            "success": episodes.successes,
        }
        for name, values in columns.items():
            self._rows[name].extend(values[~np.isnan(values)].tolist())

    def means(self) -> dict[str, float]:
        """Returns means by name, without those that are not known yet or that the suite does not report."""
        return {name: sum(values) / len(values) for name, values in self._rows.items() if values}

    @property
    def score(self) -> float | None:
        """Score of a checkpoint: success, or return if the suite reports no success; None until the window is full."""
        if len(self._rows["return"]) < self.size:
            return None
        means = self.means()
        return means.get("success", means["return"])

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, **{name: list(values) for name, values in self._rows.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = int(state["count"])
        for name, values in self._rows.items():
            values.clear()
            values.extend(float(value) for value in state[name])


class Means:
    """Averages by name since the last `take`; each is over the updates that reported it."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)

    def add(self, stats: Mapping[str, float]) -> None:
        for name, value in stats.items():
            self._sums[name] += value
            self._counts[name] += 1

    def take(self) -> dict[str, float]:
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums.clear()
        self._counts.clear()
        return means


class Board:
    """TensorBoard's events; if they cannot be written, training continues without them, with a warning."""

    def __init__(self, folder: Path, frames: int) -> None:
        self._writer: SummaryWriter | None = None
        with self._surviving():
            self._writer = SummaryWriter(str(folder), purge_step=frames + 1 if frames else None)

    def write(self, values: Mapping[str, float], frames: int) -> None:
        with self._surviving():
            if self._writer is not None:
                for name, value in values.items():
                    self._writer.add_scalar(name, value, frames)
                self._writer.flush()

    def close(self) -> None:
        with self._surviving():
            if self._writer is not None:
                self._writer.close()

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._writer = None
            warnings.warn(
                f"TensorBoard's events cannot be written ({error.strerror or error}); training continues without them, "
                "progress.csv has the same curves",
                CurveWarning,
                stacklevel=4,
            )


@contextmanager
def errors_of_boards_once() -> Iterator[None]:
    """Inside, no traceback of TensorBoard's thread: it gives its error to the next call of `Board` as well."""
    before = threading.excepthook

    def others(failure: threading.ExceptHookArgs) -> None:
        if not (type(failure.thread).__module__.startswith("tensorboard.") and isinstance(failure.exc_value, OSError)):
            before(failure)

    threading.excepthook = others
    try:
        yield
    finally:
        threading.excepthook = before


class Progress:
    """Takes updates, and displays and logs the progress of the run.

    Args:
        folder: folder of the run.
        steps: total environment steps of the run.
        frames: done in earlier parts of it.
        log_seconds: between two rows.
        stream: where the line goes.
    """

    def __init__(
        self, folder: Path, steps: int, frames: int = 0, log_seconds: float = 10.0, stream: TextIO | None = None
    ) -> None:
        self.episodes = EpisodeWindow()
        self._steps, self._log_seconds = steps, log_seconds
        self._stream = sys.stdout if stream is None else stream
        self._live = self._stream.isatty()
        self._curve = Curve(folder / "progress.csv", frames)
        self._board = Board(folder, frames)
        self._means, self._newest = Means(), dict[str, float]()
        now = time.monotonic()
        self._start, self._pace = now, deque([(now, frames)], maxlen=100)
        self._next_row, self._next_line = now + log_seconds, now
        self._last_row = (now, frames)
        self._seconds: dict[str, float] = {}

    def state_dict(self) -> dict[str, Any]:
        """The state from which the next part of the run continues."""
        return {"episodes": self.episodes.state_dict(), "seconds": time.monotonic() - self._start}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.episodes.load_state_dict(state["episodes"])
        self._start -= float(state["seconds"])

    def add(self, update: Update, seconds: Mapping[str, float]) -> None:
        """Adds the results of a rollout, and the seconds spent so far by stage."""
        self.episodes.add(update.episodes)
        for stats in update.stats:
            self._means.add(stats)
            self._newest |= stats
        now = time.monotonic()
        if now - self._pace[-1][0] > 0.3:  # 100 of them are the last half minute
            self._pace.append((now, update.frames))
        if now >= self._next_row:
            self._write_row(update.frames, seconds, now)
        if now >= self._next_line:
            self._next_line = now + (LINE_SECONDS if self._live else LOG_FILE_SECONDS)
            self._draw(update.frames, now)

    def finish(self, frames: int, seconds: Mapping[str, float]) -> None:
        """Writes the remaining values and ends the line."""
        now = time.monotonic()
        if frames > self._last_row[1]:
            self._write_row(frames, seconds, now)
        if self._newest:
            self._draw(frames, now)
        if self._live:
            self._show("\n")
        self._curve.close()
        self._board.close()

    def _write_row(self, frames: int, seconds: Mapping[str, float], now: float) -> None:
        then, before = self._last_row
        fresh = max(frames - before, 1)
        timing = {"fps": fresh / max(now - then, 1e-9)}
        for stage, spent in seconds.items():
            timing[f"{stage}_us"] = 1e6 * (spent - self._seconds.get(stage, 0.0)) / fresh  # microseconds per frame
        groups = {"episode": self.episodes.means(), "learner": self._means.take(), "time": timing}
        row = {"frames": frames, "seconds": round(now - self._start, 1), "episodes": self.episodes.count}
        for values in groups.values():
            row |= {name: float(f"{value:.6g}") for name, value in values.items()}
        self._board.write(
            {f"{group}/{name}": v for group, values in groups.items() for name, v in values.items()}, frames
        )
        self._curve.write(row)
        self._last_row, self._seconds = (now, frames), dict(seconds)
        self._next_row = now + self._log_seconds

    def _draw(self, frames: int, now: float) -> None:
        then, before = self._pace[0]
        pace = (frames - before) / max(now - then, 1e-9)
        line = progress_line(frames, self._steps, pace, self.episodes.means(), self._newest)
        if self._live:
            self._show(f"\r\x1b[2K{fitted(line, shutil.get_terminal_size().columns - 1)}")
        else:
            self._show(line + "\n")

    def _show(self, text: str) -> None:
        with suppress(OSError):  # a log file on a full disk, a closed terminal: training continues
            self._stream.write(text)
            self._stream.flush()


def progress_line(
    frames: int, steps: int, pace: float, episodes: Mapping[str, float], stats: Mapping[str, float]
) -> str:
    """One line; unknown values are left out."""
    left = duration(max(steps - frames, 0) / pace) if pace > 0 else "?"
    parts = [f"{short(frames)}/{short(steps)} frames", f"{pace:,.0f}/s", f"{left} left"]
    if "return" in episodes:
        parts.append(f"return {episodes['return']:.3g}")
        parts.append(f"length {episodes['length']:.0f}")
    if "success" in episodes:
        parts.append(f"success {episodes['success']:.2f}")
    if "bonus" in stats:
        parts.append(f"bonus {stats['bonus']:.3g}")
    if "inverse_accuracy" in stats:
        parts.append(f"inverse {stats['inverse_accuracy']:.2f}")
    return "  ".join(parts)


def fitted(line: str, width: int) -> str:
    """The line, abbreviated where it is wider than the terminal; its end is cut only in very narrow ones."""
    if len(line) > width:
        for word, shorter in SHORTER.items():
            line = line.replace(word, shorter)
    return line[:width]


def short(number: int) -> str:
    """1234567 -> 1.23M."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if number >= unit:
            return f"{number / unit:.{2 if number < 100 * unit else 0}f}{name}"
    return str(number)


def duration(seconds: float) -> str:
    """75 -> 1m15s; 7500 -> 2h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
