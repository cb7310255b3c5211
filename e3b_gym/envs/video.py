"""Writes rendered images as a video, .gif or .mp4."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e3b_gym.files import atomic_write

Image = NDArray[np.uint8]

SHORTEST_SIDE = 320
"""Images whose longer side is smaller are enlarged for a video, each pixel to a square."""
FORMATS = (".gif", ".mp4")


def check_video(path: Path) -> None:
    """Raises an error if the video cannot be written, before the environment is made."""
    if path.suffix not in FORMATS:
        raise ValueError(f"a video file must end in {' or '.join(FORMATS)}; got {path.name!r}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; choose a file for the video")
    path.parent.mkdir(parents=True, exist_ok=True)
    existed = path.exists()
    path.open("ab").close()  # raises OSError
    if not existed:
        path.unlink()


def write_video(images: Iterable[Image], path: Path, fps: float) -> int:
    """Writes images that `for_video` has made; returns their number. The suffix of the file sets the format.

    The file is complete or, after an error, as it was before. Ctrl-C ends the video at the image it has reached.
    """
    try:
        import imageio.v2 as imageio
    except ImportError as error:
        raise ImportError("recording videos needs imageio; run: pip install 'e3b-gym[report]'") from error
    settings: dict[str, Any] = {"duration": 1000 / fps, "loop": 0} if path.suffix == ".gif" else {"fps": fps}
    encoded, count = io.BytesIO(), 0
    # In memory first: a writer of imageio that meets a full disk prints a traceback when it is deleted.
    video = imageio.get_writer(encoded, format=path.suffix, **settings)
    try:
        for image in images:
            video.append_data(image)
            count += 1
    except KeyboardInterrupt:
        if not count:
            raise
    finally:
        video.close()
    with atomic_write(path) as temporary:
        temporary.write_bytes(encoded.getvalue())
    return count


def for_video(image: Image) -> Image:
    """Enlarges small images and pads sides with black to multiples of 16, as video encoders require."""
    scale = max(1, SHORTEST_SIDE // max(image.shape[:2]))
    image = image.repeat(scale, axis=0).repeat(scale, axis=1)
    height, width = (-side % 16 for side in image.shape[:2])
    return np.pad(image, ((0, height), (0, width), (0, 0)))
