"""NetHack's shared library: private copies of it, and where its variables are.

NetHack keeps its game in global variables, so each game of a process loads a copy of the library. The variables of a
loaded copy are its ELF sections .data (first values in the file) and .bss (first values zero).
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nle.nethack.nethack import DLPATH, _new_dl  # type: ignore[import-untyped]

_WRITABLE_AND_LOADED = 3  # section flags
_THREAD_LOCAL = 1 << 10
_VARIABLES = {".data", ".bss"}
_LINKER_TABLES = {".init_array", ".fini_array", ".data.rel.ro", ".dynamic", ".got", ".got.plt", ".tm_clone_table"}
"""Writable sections that the dynamic linker fills once and the program does not change."""
_PAGE = 4096


def private_copy(directory: Path) -> tuple[IO[Any], str]:
    """Returns a copy of NetHack's library for one game, as an open file and the path to load it from.

    The file must stay open as long as the library is loaded: the path names the file's descriptor, and the linker
    takes a second file under the same number for the library that it has loaded.
    """
    taken = []  # kept open, so that the next copy gets another number
    while True:
        file, path = _new_dl(str(directory))
        if not _is_loaded(path):
            return file, path
        taken.append(file)


def _is_loaded(path: str) -> bool:
    """Whether the linker has a library from this path, as in a forked child that has dropped its parent's game."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return False
    try:
        handle = _ctypes.dlopen(path, os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    _ctypes.dlclose(handle)
    return True


@dataclass(frozen=True)
class Layout:
    """Addresses and sizes of the library's variables and of two exported symbols."""

    data: tuple[int, int]
    bss: tuple[int, int]
    settings: tuple[int, int]


@functools.cache
def layout() -> Layout | None:
    """The layout of NLE's library; None if it is not a 64-bit Linux library or keeps variables in other sections."""
    if sys.platform != "linux":
        return None
    try:
        return _read_layout(Path(DLPATH).read_bytes())
    except (OSError, struct.error, ValueError, LookupError):
        return None


def _read_layout(image: bytes) -> Layout | None:
    if image[:6] != b"\x7fELF\x02\x01":  # 64 bit, little-endian
        return None
    sections = dict(_sections(image))
    flags = {name: header[2] for name, header in sections.items()}
    writable = {name for name, value in flags.items() if value & _WRITABLE_AND_LOADED == _WRITABLE_AND_LOADED}
    if writable - _LINKER_TABLES != _VARIABLES or any(value & _THREAD_LOCAL for value in flags.values()):
        return None
    (data, bss) = ((sections[name][3], sections[name][5]) for name in (".data", ".bss"))
    return Layout(data, bss, _symbol(image, sections, b"settings"))


def _sections(image: bytes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, header) of every section; a header is name, type, flags, address, offset, size and more."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * entry_size) for i in range(count)]
    names = headers[names_index][4]
    for header in headers:
        start = names + header[0]
        yield image[start : image.index(b"\0", start)].decode(), header


def _symbol(image: bytes, sections: dict[str, tuple[int, ...]], name: bytes) -> tuple[int, int]:
    """(address, size) of an exported symbol."""
    _, _, _, _, offset, size, *_ = sections[".dynsym"]
    texts = sections[".dynstr"][4]
    for text, _, _, _, address, symbol_size in struct.iter_unpack("<IBBHQQ", image[offset : offset + size]):
        if image.startswith(name + b"\0", texts + text):
            return address, symbol_size
    raise KeyError(name)


class Variables:
    """The variables of a loaded library, with the values that they had when this object was made.

    Args:
        library: The library, just loaded.
        where: Its layout.
    """

    def __init__(self, library: ctypes.CDLL, where: Layout) -> None:
        base = ctypes.addressof(ctypes.c_char.in_dll(library, "settings")) - where.settings[0]
        data_address, data_size = base + where.data[0], where.data[1]
        self._zeros = base + where.bss[0], where.bss[1]
        self._values = [(data_address, ctypes.string_at(data_address, data_size)), *_nonzero_pages(*self._zeros)]

    def restore(self) -> None:
        """Writes the first values back."""
        ctypes.memset(self._zeros[0], 0, self._zeros[1])
        for address, values in self._values:
            ctypes.memmove(address, values, len(values))


def _nonzero_pages(address: int, size: int) -> Iterator[tuple[int, bytes]]:
    """The pages of zero-initialised variables that constructors have written to."""
    for start in range(0, size, _PAGE):
        values = ctypes.string_at(address + start, min(_PAGE, size - start))
        if any(values):
            yield address + start, values
