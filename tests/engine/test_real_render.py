"""The rendered arguments, read by the argument parser of the installed engine itself."""

import json
import subprocess
from pathlib import Path

from tasks.domain.parameters import (
    ParameterSet,
    ParameterValue,
    ParameterValues,
    Provenance,
    Regime,
    SetState,
)
from tasks.domain.rendering import Deployment, arguments

PROGRAM = """
import json, sys
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(json.loads(sys.argv[1]))
print("RETUNE" + json.dumps({k: v for k, v in vars(parsed).items()}, default=str))
"""


def test_the_engines_own_parser_reads_the_values_back(engine_python: str, tmp_path: Path) -> None:
    values: dict[str, ParameterValue] = {
        "max_num_seqs": 48,
        "max_num_batched_tokens": 4096,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": True,
        "gpu_memory_utilization": 0.85,
        "kv_cache_dtype": "auto",
        "performance_mode": "throughput",
        "speculative_config": json.dumps({"method": "ngram", "num_speculative_tokens": 3}),
    }
    made = Deployment(
        parameter_set=ParameterSet(
            name="peak",
            regime=Regime.PEAK,
            state=SetState.CANDIDATE,
            model="a model",
            checkpoint="reference",
            values=ParameterValues.of(values),
            provenance=Provenance(flavour="cpu", engine="0.32.0"),
        ),
        model="/models/a model",
    )
    done = subprocess.run(
        [engine_python, "-c", PROGRAM, json.dumps(arguments(made))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RETUNE")]
    assert lines, done.stderr[-2000:]
    parsed = json.loads(lines[0].removeprefix("RETUNE"))
    expected = {
        **values,
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "model": "/models/a model",
        "served_model_name": ["a model"],
        "host": "0.0.0.0",
        "port": 8000,
        "dtype": "float32",
        "enforce_eager": True,
    }
    assert {name: parsed[name] for name in expected} == expected
