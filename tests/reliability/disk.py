"""A disk that fails: the k-th write of a process below a folder, or every write from the k-th on.

A write is: opening a file for writing, writing to it, cutting it, forcing it to the disk, renaming, linking, removing,
making or removing a folder.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from pathlib import Path
from typing import Any, Self
from unittest import mock


class FailingDisk:
    """While it is entered, writes below `folder` are counted and fail as requested.

    Args:
        folder: below which.
        number: the first write that fails, counted from 1; 0 for none.
        code: errno of the error: ENOSPC, EROFS, EIO.
        lasting: every later write fails, too.
    """

    def __init__(self, folder: Path, number: int = 0, code: int = errno.ENOSPC, *, lasting: bool = False) -> None:
        self.folder, self.number, self.code, self.lasting = folder, number, code, lasting
        self.writes = 0
        self.failed: list[str] = []
        self._lock, self._patches = threading.Lock(), list[Any]()

    def count(self, what: str, path: Any) -> None:
        """Notes a write; raises if it is one that fails."""
        if isinstance(path, int) or not str(path).startswith(str(self.folder)):
            return
        with self._lock:
            self.writes += 1
            fails = self.number and (self.writes == self.number or (self.lasting and self.writes > self.number))
            if fails:
                self.failed.append(f"{what} {Path(path).name}")
        if fails:
            raise OSError(self.code, os.strerror(self.code), str(path))

    def __enter__(self) -> Self:
        open_, os_open = io.open, os.open
        descriptors: dict[int, str] = {}

        def opened(file: Any, mode: str = "r", *given: Any, **more: Any) -> Any:
            if not set(mode) & set("wax+"):
                return open_(file, mode, *given, **more)
            self.count("open", file)
            return _Counted(open_(file, mode, *given, **more), self, file)

        def os_opened(path: Any, flags: int, *given: Any, **more: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                self.count("open", path)
            descriptor = os_open(path, flags, *given, **more)
            descriptors[descriptor] = str(path)
            return descriptor

        def on_target(name: str, place: int) -> Any:
            function = getattr(os, name)

            def counted(*given: Any, **more: Any) -> Any:
                self.count(name, given[place])
                return function(*given, **more)

            return mock.patch.object(os, name, counted)

        def on_descriptor(name: str) -> Any:
            function = getattr(os, name)

            def counted(descriptor: int, *given: Any) -> Any:
                self.count(name, descriptors.get(descriptor, ""))
                return function(descriptor, *given)

            return mock.patch.object(os, name, counted)

        self._patches = [
            mock.patch.object(io, "open", opened),
            mock.patch.object(builtins, "open", opened),
            mock.patch.object(os, "open", os_opened),
            *map(on_descriptor, ("fsync", "ftruncate", "pwrite")),
            *(on_target(name, 1) for name in ("replace", "rename", "link", "symlink")),
            *(on_target(name, 0) for name in ("mkdir", "unlink", "rmdir", "truncate")),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *error: object) -> None:
        for patch in reversed(self._patches):
            patch.stop()


class _Counted:
    """A file whose writes are counted."""

    def __init__(self, file: Any, disk: FailingDisk, path: Any) -> None:
        self._file, self._disk, self._path = file, disk, path

    def write(self, content: Any) -> Any:
        try:
            self._disk.count("write", self._path)
        except OSError:
            self._file.write(content[: len(content) // 2])  # a disk takes what fits
            raise
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Any:
        return iter(self._file)
