"""Compressed NumPy archives (`.npz`) that have the same bytes every time, and are read with care.

Snapshots and the plays beside a checkpoint are such files; `numpy.load` opens them too. Loads no JAX.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cenie.system.durable import read_limited

_LARGEST_FILE = 2**30
_LARGEST_CONTENT = 2**32
BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, RuntimeError, OSError)
"""Errors that reading a damaged archive may raise."""


def archive_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The arrays as an `.npz` file, the same bytes at every time."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            # Types that NumPy does not have by itself, such as bfloat16, would be stored as raw bytes.
            array = np.asarray(array, np.float32 if array.dtype.kind == "V" else None, order="C")
            if array.dtype.hasobject:
                raise ValueError(f"{name} holds Python objects: only numbers can be kept")
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0))
            entry = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(entry, member.getvalue(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def read_archive(path: Path, without: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The arrays of an archive, but for those whose names begin with one of these texts.

    Raises one of `BROKEN` if the file is damaged or is none.
    """
    with zipfile.ZipFile(io.BytesIO(read_limited(path, _LARGEST_FILE))) as archive:
        members = archive.infolist()
        # Checked before anything is unpacked: a small file can hold a very large one.
        if sum(member.file_size for member in members) > _LARGEST_CONTENT:
            raise ValueError(f"its content is larger than {_LARGEST_CONTENT} bytes")
        return {
            member.filename.removesuffix(".npy"): _array(archive.read(member))
            for member in members
            if not member.filename.startswith(without)
        }


def _array(content: bytes) -> np.ndarray:
    """An array of plain numbers. NumPy's own reader would allocate what the header says before it looks."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array of an unknown version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    data: Any = memoryview(content)[file.tell() :]
    if fortran or dtype.kind not in "biuf" or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("an array that does not hold what its header says")
    return np.frombuffer(data, dtype).reshape(shape)
