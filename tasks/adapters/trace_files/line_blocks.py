"""A text file as large blocks of whole lines, numbered and hashed while it is read once."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.domain.errors import TraceError

BLOCK_BYTES = 4 * 1024 * 1024
UTF8_BOM = b"\xef\xbb\xbf"
FOREIGN = {
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
    b"\x28\xb5\x2f\xfd": "zstd data",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBlock:
    """Whole lines; ``first_line`` is the file's line number (from 1) of the first of them."""

    first_line: int
    data: bytes

    @property
    def lines(self) -> list[str]:
        """Return the lines as text without their ends; bytes that are not UTF-8 are replaced."""
        return self.data.decode("utf-8", errors="replace").removesuffix("\n").split("\n")

    def halves(self) -> tuple["LineBlock", "LineBlock"]:
        """Return the block cut at the line end next to its middle; at least two lines needed."""
        cut = self.data.find(b"\n", len(self.data) // 2) + 1
        if cut == len(self.data):
            cut = self.data.rfind(b"\n", 0, len(self.data) - 1) + 1
        head, tail = self.data[:cut], self.data[cut:]
        later = self.first_line + head.count(b"\n")
        return (
            LineBlock(first_line=self.first_line, data=head),
            LineBlock(first_line=later, data=tail),
        )


class LineReader:
    """Reads a file once in blocks; ``sha256`` is complete when the blocks are used up."""

    def __init__(self, path: Path) -> None:
        """Remember the path; nothing is opened yet."""
        self._path = path
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Return the hash of the bytes read so far."""
        return self._digest.hexdigest()

    def blocks(self) -> Iterator[LineBlock]:
        """Yield the file's lines in blocks of about 4 MiB, each ending with a line end.

        Raises:
            TraceError: if the file cannot be read or is not UTF-8 text.
        """
        rest, line = b"", 1
        try:
            with self._path.open("rb") as file:
                while chunk := file.read(BLOCK_BYTES):
                    self._digest.update(chunk)
                    if line == 1 and not rest:
                        chunk = _text_head(self._path, chunk)
                    cut = chunk.rfind(b"\n") + 1
                    if cut == 0:
                        rest += chunk
                        continue
                    data, rest = rest + chunk[:cut], chunk[cut:]
                    yield LineBlock(first_line=line, data=data)
                    line += data.count(b"\n")
        except OSError as error:
            raise TraceError(
                f"trace file {self._path} cannot be read ({error}); needed a readable file; "
                f"check the path and its permissions"
            ) from error
        if rest:
            yield LineBlock(first_line=line, data=rest + b"\n")


def _text_head(path: Path, chunk: bytes) -> bytes:
    for magic, what in FOREIGN.items():
        if chunk.startswith(magic):
            raise TraceError(
                f"trace file {path} is {what}; needed UTF-8 text (CSV or JSON lines); "
                f"unpack or convert it first"
            )
    return chunk.removeprefix(UTF8_BOM)
