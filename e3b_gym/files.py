"""Atomic writes: after a crash, a kill or a full disk a file has its earlier content."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Ending of a file that is being written, or that a kill left behind.
UNFINISHED = ".part"


@contextmanager
def atomic_write(path: str | Path, *, shared: bool = False) -> Iterator[Path]:
    """Yields the path of a temporary file next to `path`, which replaces `path` when the block ends.

    After an error in the block the temporary file is removed and `path` is unchanged. On return the content is on the
    disk.

        with atomic_write("run/config.yaml") as temporary:
            temporary.write_text(text)

    Args:
        path: the file.
        shared: several processes may write it at the same time. Each has its own temporary file; the last one to end
            its block wins.
    """
    path = Path(path)
    own = f".{uuid.uuid4().hex}" if shared else ""
    temporary = path.with_name(path.name + own + UNFINISHED)
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
    except BaseException:  # a full disk, Ctrl-C
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Returns once the names in `folder` are on the disk."""
    if os.name == "posix":  # Windows cannot open folders
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
