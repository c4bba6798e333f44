"""Prepare a model's reference checkpoint and the quantized ones made from it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.checkpoints import awq_checkpoint, prepare
from tasks.adapters.checkpoints.hash_memo import HashMemo, KnownFile
from tasks.adapters.checkpoints.hashing import file_sha256
from tasks.adapters.checkpoints.kernel_probe import has_w4a16_kernel
from tasks.adapters.checkpoints.prepare import checkpoint_dtype, source_name
from tasks.adapters.checkpoints.records import AwqRecipe
from tasks.adapters.checkpoints.records import PreparedModel as PreparedModel
from tasks.adapters.checkpoints.synthetic import synthetic_awq
from tasks.adapters.evidence_store import OutcomeStore
from tasks.domain.endpoint import Checkpoint
from tasks.domain.errors import ConfigError
from tasks.domain.study_request import QuantizationPlan

CALIBRATION = Path(__file__).parents[1] / "configs" / "evaluation" / "calibration.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizingMeans:
    """The quantizer's interpreter, the folder for what it makes, the text it calibrates on.

    engine_python: asked whether the engine has the packed kernel; None means not known, and the
    checkpoint is then served dequantized, which every engine can. engine_dtype: what the engine
    computes in, which the kernel must take too. hashes: where the hashes of a user's own weights
    are remembered; None reads them each time.
    """

    python: Path
    models_dir: Path
    engine_python: Path | None = None
    engine_dtype: str = "auto"
    calibration: Path = CALIBRATION
    hashes: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCheckpoint:
    """A checkpoint, the folder an engine loads, and the seconds its making took, None if it lay."""

    checkpoint: Checkpoint
    folder: Path
    seconds: float | None


def prepare_model(source: str, *, means: QuantizingMeans) -> PreparedModel:
    """Return the reference checkpoint of a source: a folder, a .gguf file or ``package:NAME``."""
    name = source_name(source)
    sha256_of = file_sha256
    if means.hashes is not None:
        sha256_of = HashMemo(known=OutcomeStore(means.hashes, KnownFile)).sha256
    return prepare.prepare_model(
        source,
        out_dir=means.models_dir / name,
        python=means.python,
        log_path=means.models_dir / "logs" / f"convert-{name}.log",
        sha256_of=sha256_of,
    )


def prepare_checkpoint(
    prepared: PreparedModel,
    *,
    method: str,
    plan: QuantizationPlan,
    means: QuantizingMeans,
    synthetic: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> MadeCheckpoint:
    """Return the checkpoint of a method, ``reference`` or ``awq``, made now or found.

    A synthetic model's AWQ checkpoint is a shape as well: nothing is quantized.

    Raises:
        ConfigError: for another method; for AWQ of a synthetic model where no kernel can serve it.
    """
    if method == "reference":
        checkpoint = _checkpoint(prepared, prepared.sha256, "none", "reference", synthetic)
        return MadeCheckpoint(checkpoint=checkpoint, folder=prepared.folder, seconds=None)
    if method != "awq":
        raise ConfigError(f"checkpoint method {method!r} is unknown; use reference or awq")
    if synthetic:
        return _synthetic_awq(prepared, plan, means)
    python = means.engine_python
    native = python is not None and has_w4a16_kernel(python, dtype=means.engine_dtype) is True
    made = awq_checkpoint.quantize_awq(
        prepared.folder,
        model_sha256=prepared.sha256,
        out_dir=means.models_dir,
        python=means.python,
        recipe=AwqRecipe(
            calibration=means.calibration,
            bits=plan.bits,
            group_size=plan.group_size,
            samples=plan.samples,
            sequence_tokens=plan.sequence_tokens,
        ),
        log_path=means.models_dir / "logs" / "awq.log",
        dequantize=not native,
        on_progress=None if on_progress is None else lambda p: on_progress(f"awq {p.text}"),
    )
    serve_as = "packed" if native else "dequantized"
    return MadeCheckpoint(
        checkpoint=_checkpoint(prepared, made.sha256, "awq", serve_as, synthetic),
        folder=made.dequantized_dir or made.packed_dir,
        seconds=None if made.reused else made.seconds,
    )


def _synthetic_awq(
    prepared: PreparedModel, plan: QuantizationPlan, means: QuantizingMeans
) -> MadeCheckpoint:
    python, dtype = means.engine_python, means.engine_dtype
    if python is None or has_w4a16_kernel(python, dtype=dtype) is not True:
        raise ConfigError(
            f"{prepared.folder}: checkpoint awq of a synthetic model needs an engine with a W4A16 "
            f"kernel for dtype {dtype}: dummy weights cannot be served dequantized; leave that arm "
            "out here, or set dtype: bfloat16 in the model's file where only float32 lacks one"
        )
    made = synthetic_awq(
        prepared.folder, out_dir=means.models_dir, bits=plan.bits, group_size=plan.group_size
    )
    checkpoint = _checkpoint(made, made.sha256, "awq", "packed", True)
    return MadeCheckpoint(checkpoint=checkpoint, folder=made.folder, seconds=None)


def _checkpoint(
    prepared: PreparedModel, sha256: str, method: str, serve_as: str, synthetic: bool
) -> Checkpoint:
    return Checkpoint(
        model=prepared.folder.name,
        method=method,
        sha256=sha256,
        serve_as=serve_as,
        dtype=checkpoint_dtype(prepared.folder),
        synthetic=synthetic,
    )
