"""Reads files of PyTorch's ``torch.save``: a zip archive with a pickle and the bare numbers.

``NAME/data.pkl`` describes the tensors, ``NAME/data/0`` and so on are their storages, uncompressed.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_config.unquoted import fault
from trained_models.errors import BadDataError, UserError
from trained_models.importing.torch_pickle import ADVICE, BFLOAT16, DTYPES, Tensor, read_tensors

# Some 150 bytes per tensor; the largest BERT has 400 of them.
LARGEST_PICKLE = 4 << 20
_PICKLE = re.compile(r"([^/]+)/data\.pkl")
_ZIP = b"PK\x03\x04"
# The beginning of a file of PyTorch before 1.6: its magic number, pickled.
_LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"


class TorchFile:
    """The tensors of one file.

    :param path: path of the file, on this machine.
    :param uri: URI of its folder, for messages.
    :raises UserError: it is of a format that is not read, or asks for more than tensors.
    :raises BadDataError: it is damaged.
    """

    def __init__(self, path: Path, uri: str) -> None:
        self._path, self._place = path, f"{path.name} of {uri}"
        with self._open() as archive:
            folders = [m[1] for m in map(_PICKLE.fullmatch, archive.namelist()) if m]
            if len(folders) != 1:
                raise zipfile.BadZipFile
            self._folder = folders[0]
            self._tensors = read_tensors(self._pickle(archive), self._place)
            self._refuse_big_endian(archive)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor by name."""
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def value(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor; one of bfloat16 is returned as float32.

        :raises BadDataError: its bytes are damaged.
        """
        tensor = self._tensors[name]
        with self._open() as archive:
            data = self._numbers(archive, tensor)
        numbers = np.frombuffer(data, DTYPES[tensor.storage.kind])[tensor.offset :]
        strides = [stride * numbers.itemsize for stride in tensor.strides]
        # Within the bounds of the storage, as it was checked when it was read.
        view = np.lib.stride_tricks.as_strided(numbers, tensor.shape, strides, writeable=False)
        if tensor.storage.kind == BFLOAT16:
            return (view.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return view.copy()

    def _pickle(self, archive: zipfile.ZipFile) -> bytes:
        info = archive.getinfo(f"{self._folder}/data.pkl")
        if info.file_size > LARGEST_PICKLE:
            raise UserError(
                f"{self._place} is refused: its description of the tensors has "
                f"{info.file_size:,} bytes, more than {LARGEST_PICKLE:,}. {ADVICE}"
            )
        return self._stored(archive, info)

    def _numbers(self, archive: zipfile.ZipFile, tensor: Tensor) -> bytes:
        storage = tensor.storage
        info = archive.getinfo(f"{self._folder}/data/{storage.key}")
        if info.file_size != storage.size * np.dtype(DTYPES[storage.kind]).itemsize:
            raise zipfile.BadZipFile
        return self._stored(archive, info)

    def _stored(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
        # PyTorch writes them uncompressed. So nothing gets larger than the file that it is in.
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise UserError(
                f"{self._place} is refused: a part of it is compressed, which PyTorch's own are "
                f"not. {ADVICE}"
            )
        if info.file_size > self._path.stat().st_size:
            raise zipfile.BadZipFile
        return archive.read(info)

    def _refuse_big_endian(self, archive: zipfile.ZipFile) -> None:
        name = f"{self._folder}/byteorder"
        if name in archive.namelist():
            info = archive.getinfo(name)
            if info.file_size > len("little") or self._stored(archive, info) != b"little":
                raise UserError(
                    f"{self._place} is refused: its numbers are in the byte order of another kind "
                    f"of machine. {ADVICE}"
                )

    @contextmanager
    def _open(self) -> Iterator[zipfile.ZipFile]:
        try:
            with self._path.open("rb") as file:
                self._check_format(file.read(len(_LEGACY)))
                with zipfile.ZipFile(file) as archive:
                    yield archive
        # The zip module's own error, and those that it raises for damaged numbers, names and flags.
        except (zipfile.BadZipFile, OSError, EOFError, LookupError, ValueError) as error:
            reason = fault(error)
        except (NotImplementedError, RuntimeError, OverflowError) as error:
            reason = fault(error)
        else:
            return
        raise BadDataError(
            f"{self._place} cannot be read as a file of PyTorch ({reason}): it is damaged or was "
            "not copied completely. Get it again; a Git LFS pointer is not the file itself."
        )

    def _check_format(self, begin: bytes) -> None:
        if begin == _LEGACY:
            raise UserError(
                f"{self._place} is refused: it is in the legacy format of PyTorch before 1.6, a "
                f"pickle and no zip archive, which is not read. {ADVICE}"
            )
        if not begin.startswith(_ZIP):
            raise zipfile.BadZipFile
