"""A program that looks like a vLLM server from outside and does what its environment says.

Standard library only; run it as ``python scripted_engine.py --model DIR --port N …`` or let
``write_interpreter`` make a file that stands for the engine's Python.

SCRIPTED_MODE: ok (default), die_at_start, die_at_first_request, refuse_first_request, silent,
    hang (health and models answer, completions never do).
SCRIPTED_LOG: file whose lines are printed while it starts. SCRIPTED_DELAY_S: seconds between two
lines. SCRIPTED_BUSY_S: seconds of CPU work without a line before it serves. SCRIPTED_EXIT: exit
code of its death. SCRIPTED_DEATH_LOG: file printed before it dies. SCRIPTED_IGNORE_TERM: 1 ignores
SIGTERM. SCRIPTED_CHILD: ``session`` or ``own_session`` leaves a sleeping child process there; its
pid is written to child.pid. SCRIPTED_NAME: served name instead of the one asked for.
SCRIPTED_PORT: listen elsewhere than asked.
"""

import argparse
import json
import os
import signal
import stat
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STARTED = (
    "(EngineCore pid=2) INFO 12-01 02:38:24 [kv_cache_utils.py:2327] CPU KV cache size: "
    "46,592 tokens, Maximum concurrency for 2,048 tokens per request: 22.75x",
    "(EngineCore pid=2) INFO 12-01 02:38:29 [core.py:402] init engine (profile, create kv cache, "
    "warmup model) took 5.31 s",
    "(APIServer pid=1) INFO 12-01 02:38:36 [entry.py:140] Starting vLLM server on http://x",
)


def write_interpreter(directory: Path) -> str:
    """Return a file that takes the arguments of an engine's Python and runs this program."""
    path = directory / "engine-python"
    path.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" "{Path(__file__)}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def setting(name: str, default: str = "") -> str:
    return os.environ.get(f"SCRIPTED_{name}", default)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say_file(name: str, delay_s: float = 0.0) -> None:
    if setting(name):
        for line in Path(setting(name)).read_text(encoding="utf-8").splitlines():
            say(line)
            time.sleep(delay_s)


def die() -> None:
    say_file("DEATH_LOG")
    os._exit(int(setting("EXIT", "1")))


class Handler(BaseHTTPRequestHandler):
    served_name = "m"
    completions = 0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        say("INFO:     127.0.0.1:1 - " + format % args)

    def reply(self, body: object, status: int = 200) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        cls = type(self)
        rows = [{"id": cls.served_name, "max_model_len": 2048}]
        running = 1.0 if setting("MODE") == "hang" else 0.0
        metrics = (
            f"vllm:num_requests_running {running}\nvllm:num_requests_waiting 0.0\n"
            f"vllm:prompt_tokens_total {cls.completions}.0\n"
            f"vllm:generation_tokens_total {2 * cls.completions}.0\n"
        )
        bodies: dict[str, object] = {
            "/health": "",
            "/v1/models": {"data": rows},
            "/version": {"version": "0.32.0"},
            "/metrics": metrics,
        }
        known = self.path in bodies
        self.reply(bodies[self.path] if known else {"error": "not found"}, 200 if known else 404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        mode = setting("MODE")
        if mode == "die_at_first_request":
            die()
        if mode == "refuse_first_request":
            self.reply({"error": {"message": "no kernel today"}}, 500)
            return
        while mode == "hang":
            time.sleep(1.0)
        type(self).completions += 1
        usage = {"prompt_tokens": 1, "completion_tokens": 2}
        self.reply({"choices": [{"text": " a b"}], "usage": usage})


def leave_child() -> None:
    kind = setting("CHILD")
    if kind:
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            start_new_session=kind == "own_session",
        )
        Path("child.pid").write_text(str(child.pid), encoding="ascii")


def arguments() -> tuple[str, int, str]:
    parser = argparse.ArgumentParser(prog="vllm serve")
    parser.add_argument("--model")
    parser.add_argument("--port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--served-model-name", default="m")
    found, _ = parser.parse_known_args()
    return found.host, found.port, found.served_model_name


def main() -> None:
    host, port, name = arguments()
    if setting("IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("argv.json").write_text(json.dumps(sys.argv[1:]), encoding="utf-8")
    Path("environ.json").write_text(json.dumps(dict(os.environ)), encoding="utf-8")
    leave_child()
    head = "(APIServer pid=1) INFO 12-01 02:36:29 [api_utils.py:286] non-default args: "
    say(head + "{'port': " + str(port) + "}")
    if setting("MODE") == "silent":
        time.sleep(600)
    say_file("LOG", float(setting("DELAY_S", "0")))
    end = time.process_time() + float(setting("BUSY_S", "0"))
    while time.process_time() < end:
        sum(range(1000))
    if setting("MODE") == "die_at_start":
        die()
    for line in STARTED:
        say(line)
    Handler.served_name = setting("NAME", name)
    server = ThreadingHTTPServer((host, int(setting("PORT", str(port)))), Handler)
    say("INFO:     Application startup complete.")
    server.serve_forever()


if __name__ == "__main__":
    main()
