"""An endpoint that serves completions: ours or somebody else's."""

from dataclasses import dataclass, field

from tasks.domain.parameters import ParameterValues


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to send requests and what answers there.

    url: base without path, for example http://127.0.0.1:8100. model: the served name.
    engine_version, max_model_len: as the server reports them, None where it does not.
    api_key_env: name of the environment variable that holds the key, never the key.
    owned: whether this product started it (and so must stop it).
    control_dir: where its live knobs are moved, None where it was started without them.
    reported: values that a server which somebody else runs tells of itself.
    """

    url: str
    model: str
    owned: bool
    engine_version: str | None = None
    max_model_len: int | None = None
    api_key_env: str | None = None
    pid: int | None = None
    control_dir: str | None = None
    reported: ParameterValues = field(default_factory=ParameterValues)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Weights that an engine can load, named by content.

    method: "none" (the reference) or "awq". serve_as: "reference", "packed" (the engine has the
    kernel) or "dequantized" (it has not: accuracy counts, speed promotes nothing).
    sha256: hash of the checkpoint's config and weight files. synthetic: dummy weights.
    """

    model: str
    method: str
    sha256: str
    serve_as: str
    dtype: str
    synthetic: bool = False

    @property
    def kernel(self) -> str:
        """``native`` or ``emulated``: whether speed measured on it is the method's own."""
        return "emulated" if self.serve_as == "dequantized" else "native"
