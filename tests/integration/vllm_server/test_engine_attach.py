import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tasks.adapters.vllm_server.attach import attach
from tasks.domain.errors import ConfigError, EngineNotReadyError


@contextmanager
def serving(*names: str, key: str | None = None) -> Iterator[str]:
    """Serve a list of models, for whoever brings the key if there is one."""

    class Models(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = key is None or self.headers.get("Authorization") == f"Bearer {key}"
            known = self.path in ("/v1/models", "/version")
            rows = [{"id": name, "max_model_len": 4096} for name in names]
            body = {"data": rows} if self.path == "/v1/models" else {"version": "0.24.0"}
            self.send_response(200 if allowed and known else 401)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_only_model_is_taken_and_the_engine_is_not_ours() -> None:
    with serving("llama") as url:
        endpoint = attach(f"{url}/v1/")
    assert (endpoint.url, endpoint.model, endpoint.owned) == (url, "llama", False)
    assert (endpoint.engine_version, endpoint.max_model_len) == ("0.24.0", 4096)
    assert endpoint.pid is None


def test_several_models_without_a_choice_are_an_error_that_names_them() -> None:
    with serving("a", "b") as url, pytest.raises(ConfigError, match="'a', 'b'") as caught:
        attach(url)
    assert caught.value.code == "MODEL_AMBIGUOUS"


def test_one_of_several_models_is_taken_by_name() -> None:
    with serving("a", "b") as url:
        assert attach(url, model="b").model == "b"


def test_a_name_that_is_not_served_is_an_error_that_names_what_is() -> None:
    with serving("a") as url, pytest.raises(ConfigError, match="it serves 'a'") as caught:
        attach(url, model="c")
    assert caught.value.code == "MODEL_NOT_SERVED"


def test_a_key_is_read_from_the_environment_and_never_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SITE_KEY", "s3cret")
    with serving("a", key="s3cret") as url:
        endpoint = attach(url, api_key_env="SITE_KEY")
    assert endpoint.api_key_env == "SITE_KEY"
    assert "s3cret" not in repr(endpoint)


def test_a_key_that_is_not_set_is_told_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_KEY", raising=False)
    with pytest.raises(ConfigError, match="SITE_KEY is not set"):
        attach("http://127.0.0.1:9", api_key_env="SITE_KEY")


def test_nobody_there_is_not_ready() -> None:
    with pytest.raises(EngineNotReadyError) as caught:
        attach("http://127.0.0.1:9")
    assert caught.value.code == "ENDPOINT_UNREACHABLE"
