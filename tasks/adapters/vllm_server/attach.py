"""An engine that somebody else runs: what answers at a URL, and under which name."""

from tasks.adapters.vllm_server.control import ControlClient
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import ConfigError, EngineNotReadyError
from tasks.domain.set_on_engine import ServedWeights


def attach(url: str, *, model: str | None = None, api_key_env: str | None = None) -> Endpoint:
    """Return the endpoint at a URL; it is never stopped by us.

    Without a model name the server must list exactly one.

    Raises:
        EngineNotReadyError: nothing there lists models.
        ConfigError: the name is not listed, or none was given and several are.
    """
    base = url.rstrip("/").removesuffix("/v1")
    with ControlClient(base, api_key_env=api_key_env) as client:
        served = client.models()
        version = client.version()
    if not served:
        raise EngineNotReadyError(
            f"{base}/v1/models listed no model; start the server, or check the URL and its key",
            code="ENDPOINT_UNREACHABLE",
        )
    names = ", ".join(repr(item.name) for item in served)
    if model is None and len(served) > 1:
        raise ConfigError(
            f"{base} serves {len(served)} models ({names}) and none was named; set model to one",
            code="MODEL_AMBIGUOUS",
        )
    chosen = next((item for item in served if model in (None, item.name)), None)
    if chosen is None:
        raise ConfigError(
            f"model={model!r} is not served at {base}; it serves {names}: use one of those names",
            code="MODEL_NOT_SERVED",
        )
    return Endpoint(
        url=base,
        model=chosen.name,
        owned=False,
        engine_version=version,
        max_model_len=chosen.max_model_len,
        api_key_env=api_key_env,
    )


def served_weights(url: str, *, model: str) -> ServedWeights:
    """Return what a server lists under a name: all names of the same weights, and their place.

    Nothing is known where it does not answer or does not list the name.
    """
    with ControlClient(url) as client:
        listed = client.models() or ()
    named = next((item for item in listed if item.name == model), None)
    if named is None:
        return ServedWeights(names=())
    return ServedWeights(
        names=tuple(item.name for item in listed if item.root == named.root),
        root=named.root,
        max_model_len=named.max_model_len,
    )
