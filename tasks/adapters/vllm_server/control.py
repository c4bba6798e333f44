"""Control-plane requests to an engine: which models, which version, one real completion.

Load never goes through here; these requests are few and may be slow.
"""

import os
from dataclasses import dataclass
from types import TracebackType

import httpx

from tasks.domain.errors import ConfigError

SHORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that a server lists; root (where its weights lie) and the rest as it says them."""

    name: str
    max_model_len: int | None
    root: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionReply:
    """The answer to one completion: the HTTP status, its tokens, and the body's beginning."""

    status: int
    tokens: int
    body: str


class ControlClient:
    """A client for one server; takes no proxy and no setting from the environment."""

    def __init__(self, url: str, *, api_key_env: str | None = None) -> None:
        """Open no connection yet.

        Raises:
            ConfigError: api_key_env names a variable that is not set.
        """
        self._client = httpx.Client(
            base_url=url,
            timeout=SHORT_TIMEOUT_S,
            trust_env=False,
            headers=_headers(api_key_env),
            # Plain HTTP needs no certificates, and loading them takes a tenth of a second.
            verify=url.startswith("https:"),
        )

    def __enter__(self) -> "ControlClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def models(self) -> tuple[ServedModel, ...] | None:
        """Return the models that the server lists, or None where it does not answer with them."""
        try:
            reply = self._client.get("/v1/models")
            rows = reply.json()["data"] if reply.is_success else None
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(rows, list):
            return None
        return tuple(
            ServedModel(
                name=str(row["id"]),
                max_model_len=_int(row.get("max_model_len")),
                root=None if row.get("root") is None else str(row["root"]),
            )
            for row in rows
            if isinstance(row, dict) and "id" in row
        )

    def version(self) -> str | None:
        """Return the engine's version, or None where the server does not tell it."""
        try:
            reply = self._client.get("/version")
            value = reply.json().get("version") if reply.is_success else None
        except (httpx.HTTPError, ValueError, AttributeError):
            return None
        return value if isinstance(value, str) else None

    def complete(self, model: str, *, timeout_s: float) -> CompletionReply:
        """Return the answer to a completion of at most two tokens.

        Raises:
            httpx.HTTPError: the server did not answer.
        """
        body = {"model": model, "prompt": "Hello", "max_tokens": 2, "temperature": 0.0}
        reply = self._client.post("/v1/completions", json=body, timeout=timeout_s)
        return CompletionReply(
            status=reply.status_code, tokens=_tokens(reply), body=reply.text[:400]
        )


def _headers(api_key_env: str | None) -> dict[str, str]:
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env)
    if not key:
        raise ConfigError(
            f"environment variable {api_key_env} is not set; api_key_env names the variable that "
            "holds the server's key: export it or remove api_key_env"
        )
    return {"Authorization": f"Bearer {key}"}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _tokens(reply: httpx.Response) -> int:
    """Return the completion tokens that the usage reports, 0 for an error body."""
    try:
        usage = reply.json().get("usage")
    except (ValueError, AttributeError):
        return 0
    value = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return value if isinstance(value, int) else 0
