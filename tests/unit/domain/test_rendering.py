"""What is rendered is read back: by a shell, by a YAML reader, against the product's own launch."""

import json
import shlex
import subprocess
from dataclasses import replace

import pytest
import yaml

from tasks.adapters.config_files.writing import yaml_documents
from tasks.domain.engine_launch import EngineLaunch, command_line
from tasks.domain.errors import ConfigError, InvalidParameterError
from tasks.domain.hardware import Flavour
from tasks.domain.manifests import compose_document, kubernetes_objects, resource_name
from tasks.domain.parameters import (
    ParameterSet,
    ParameterValue,
    ParameterValues,
    Provenance,
    Regime,
    SetState,
)
from tasks.domain.rendering import (
    Deployment,
    argument_line,
    arguments,
    default_model_path,
    environment_file,
    provenance,
    refuse_unknown_values,
)

SPECULATIVE = json.dumps({"method": "ngram", "note": "it's $HOME and $(id)"})
ORIGIN = Provenance(
    study_id="a1b2c3d4e5f6",
    mlflow_run_ids=("r1", "r2"),
    trace_sha256="t" * 64,
    engine="0.24.0",
    flavour="cuda",
    hardware="NVIDIA H200",
    device_count=1,
    engine_values=ParameterValues.of({"max_model_len": 8192, "max_num_seqs": 256}),
    expires_on="2026-12-31",
)


def deployment(
    values: dict[str, ParameterValue] | None = None,
    *,
    origin: Provenance = ORIGIN,
    model: str = "/models/llama 3",
    image: str | None = None,
) -> Deployment:
    parameter_set = ParameterSet(
        name="off_peak",
        regime=Regime.OFF_PEAK,
        state=SetState.CANDIDATE,
        model="Llama_3-8B",
        checkpoint="awq",
        values=ParameterValues.of({"max_num_seqs": 256} if values is None else values),
        provenance=origin,
        note="candidate\nof two lines",
    )
    return Deployment(parameter_set=parameter_set, model=model, image=image, sha256="f" * 64)


def cpu_deployment(**change: object) -> Deployment:
    origin = replace(
        ORIGIN, engine="0.32.0", flavour="cpu", hardware="AMD EPYC", device_count=2,
        cpu_kv_cache_gib=1.0, engine_values=ParameterValues(),
    )  # fmt: skip
    return deployment({"max_num_seqs": 32}, origin=replace(origin, **change), image="vllm-cpu:1")


@pytest.mark.parametrize("made", [deployment(), cpu_deployment()], ids=["cuda", "cpu"])
def test_arguments_are_those_of_the_products_own_launch(made: Deployment) -> None:
    launched = command_line(
        EngineLaunch(
            model_dir=made.model,
            served_name=made.served_name,
            python="python3",
            values=made.values,
            flavour=made.flavour,
            host=made.host,
            port=made.port,
        )
    )
    # on CUDA vllm's command is the module that the launch runs
    program = ["python3", "-m", "vllm.entrypoints.cli.main", "serve"]
    if made.flavour is Flavour.CPU:
        program = list(made.program)
    assert [*program, *shlex.split(argument_line(made))] == list(launched)


def test_the_models_own_values_are_rendered_and_the_sets_win() -> None:
    line = argument_line(deployment({"max_num_seqs": 64, "enable_prefix_caching": False}))
    words = shlex.split(line)
    assert words[words.index("--max-model-len") + 1] == "8192"
    assert words[words.index("--max-num-seqs") + 1] == "64"
    assert "--no-enable-prefix-caching" in words
    assert words[0] == "/models/llama 3"


def test_a_shell_that_sources_the_environment_file_gets_the_arguments_back(tmp_path) -> None:
    made = deployment({"speculative_config": SPECULATIVE})
    file = tmp_path / "engine.env"
    file.write_text(environment_file(made))
    script = f'. {file}; printf "%s\\0" "$CUDA_DEVICE_ORDER"; sh -c "printf \'%s\\0\' $ARGS"'
    told = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.split("\0")[:-1] == ["PCI_BUS_ID", *arguments(made)]


def test_the_cpu_environment_sizes_the_cache_and_uses_every_measured_core() -> None:
    lines = environment_file(cpu_deployment()).splitlines()
    assert "VLLM_CPU_KVCACHE_SPACE=1" in lines
    assert "VLLM_CPU_OMP_THREADS_BIND=0-1" in lines
    assert not any("CUDA" in line for line in lines)


def read_back(made: Deployment) -> tuple[dict, list[dict]]:
    (compose,) = yaml.safe_load_all(yaml_documents([compose_document(made)], comments=["a\nb"]))
    return compose, list(yaml.safe_load_all(yaml_documents(kubernetes_objects(made))))


def test_a_compose_service_runs_the_same_arguments_without_interpolation() -> None:
    made = deployment({"speculative_config": SPECULATIVE, "tensor_parallel_size": 2})
    compose, _ = read_back(made)
    (service,) = compose["services"].values()
    assert [text.replace("$$", "$") for text in service["command"]] == list(arguments(made))
    assert not any("$" in text.replace("$$", "") for text in service["command"])
    assert service["entrypoint"] == ["vllm", "serve"]
    assert service["image"] == "vllm/vllm-openai:v0.24.0"
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["count"], device["capabilities"]) == (2, ["gpu"])
    assert service["labels"]["vllm-retune.study-id"] == "a1b2c3d4e5f6"


def test_kubernetes_gets_one_replica_probes_and_as_many_gpus_as_ranks() -> None:
    made = deployment({"tensor_parallel_size": 2, "pipeline_parallel_size": 2})
    _, (served, service) = read_back(made)
    (container,) = served["spec"]["template"]["spec"]["containers"]
    assert served["spec"]["replicas"] == 1
    assert container["args"] == list(arguments(made))
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    start = container["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] == 1_800
    labels = served["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert served["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert (labels["vllm-retune/state"], labels["vllm-retune/expires-on"]) == (
        "candidate",
        "2026-12-31",
    )
    assert served["metadata"]["annotations"]["vllm-retune/trace-sha256"] == "t" * 64
    assert service["metadata"]["name"] == resource_name(made) == "vllm-llama-3-8b-off-peak"


def test_kubernetes_does_not_expand_what_looks_like_a_variable() -> None:
    made = deployment({"speculative_config": SPECULATIVE})
    _, (served, _) = read_back(made)
    (container,) = served["spec"]["template"]["spec"]["containers"]
    (given,) = [text for text in container["args"] if "ngram" in text]
    assert given == SPECULATIVE.replace("$(id)", "$$(id)")


def test_a_cpu_set_asks_for_cores_and_needs_an_image_of_its_own() -> None:
    _, (served, _) = read_back(cpu_deployment())
    (container,) = served["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "2"}
    assert container["command"] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    with pytest.raises(ConfigError) as caught:
        compose_document(replace(cpu_deployment(), image=None))
    assert caught.value.code == "IMAGE_NEEDED"


def test_a_hub_name_is_mounted_from_nowhere() -> None:
    _, (served, _) = read_back(deployment(model="org/model"))
    names = [volume["name"] for volume in served["spec"]["template"]["spec"]["volumes"]]
    assert names == ["shared-memory"]


def test_provenance_is_one_line_a_value() -> None:
    found = dict(provenance(deployment()))
    assert found["note"] == "candidate of two lines"
    assert found["set-sha256"] == "f" * 64
    assert "\n" not in "".join(found.values())


@pytest.mark.parametrize(
    ("values", "engine", "told"),
    [
        ({"swap_space": 4}, "0.24.0", "removed in 0.18"),
        ({"max_num_queued_reqs": 8}, "0.24.0", "0.32"),
        ({"max_num_sqs": 8}, "0.24.0", "max_num_sqs"),
        ({"max_num_sqs": 8}, None, "max_num_sqs"),
        ({"max_num_sqs": 8}, "unknown", "max_num_sqs"),
        ({"max_num_seqs": 0}, "0.24.0", "max_num_seqs=0"),
        ({"max_num_seqs": "many"}, "0.24.0", "max_num_seqs='many'"),
    ],
)
def test_a_value_that_the_sets_engine_does_not_take_is_refused(
    values: dict[str, ParameterValue], engine: str | None, told: str
) -> None:
    with pytest.raises(InvalidParameterError, match=told):
        refuse_unknown_values(deployment(values, origin=replace(ORIGIN, engine=engine)))


def test_a_value_outside_the_catalogue_passes_where_the_engine_was_started_with_it() -> None:
    started = replace(ORIGIN, engine_values=ParameterValues.of({"load_format": "dummy"}))
    assert refuse_unknown_values(deployment({}, origin=started)) == ()
    with pytest.raises(InvalidParameterError, match="load_format"):
        refuse_unknown_values(deployment({"load_format": "auto"}, origin=started))


def test_a_set_with_no_provenance_is_rendered_for_cuda_at_the_usual_place() -> None:
    made = deployment(origin=Provenance(), image="x:1")
    assert made.flavour is Flavour.CUDA
    assert refuse_unknown_values(made) == ()
    assert default_model_path(made.parameter_set) == "/models/Llama_3-8B-awq"
    with pytest.raises(ConfigError, match="--image"):
        compose_document(deployment(origin=Provenance()))
