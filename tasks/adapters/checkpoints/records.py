"""What the checkpoint programs are asked for and what they leave on disk."""

from dataclasses import dataclass
from pathlib import Path

from tasks.domain.errors import InvalidParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """The reference checkpoint: its folder and the hash of its config and weights."""

    folder: Path
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwqRecipe:
    """How AWQ is run: 4 or 8 bits, weights per group, calibration blocks and tokens a block.

    grid_points: scales tried per group of layers, the unscaled weights first; more search finer
    and take longer in proportion. calibration: text file to read the blocks from. The defaults
    take a 135M model on two idle CPU cores a few minutes.

    Raises:
        InvalidParameterError: if a number is out of its range.
    """

    calibration: Path
    bits: int = 4
    group_size: int = 64
    samples: int = 32
    sequence_tokens: int = 64
    grid_points: int = 6

    def __post_init__(self) -> None:
        """Refuse what the quantizer would only fail on after loading the model."""
        if self.bits not in (4, 8):
            raise InvalidParameterError(f"bits={self.bits} cannot be packed; use 4 or 8")
        least = (("group_size", 1), ("samples", 1), ("sequence_tokens", 2), ("grid_points", 3))
        for name, lowest in least:
            value = getattr(self, name)
            if value < lowest:
                raise InvalidParameterError(f"{name}={value} is too small; use {lowest} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedCheckpoint:
    """AWQ weights, packed, and as plain values where those were asked for.

    sha256 is of the packed checkpoint, also for the dequantized one: the numbers are the same.
    seconds: what making it took when it was made. reused: nothing had to be made this time.
    """

    packed_dir: Path
    dequantized_dir: Path | None
    sha256: str
    seconds: float
    reused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a program is; done and of are None for a stage that cannot be counted."""

    stage: str
    done: int | None = None
    of: int | None = None

    @property
    def text(self) -> str:
        """Return it for a person, for example ``quantize: layer 3 of 30``."""
        if self.done is None or self.of is None:
            return self.stage
        return f"{self.stage}: layer {self.done} of {self.of}"
