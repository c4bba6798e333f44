"""Container manifests of a deployment as plain mappings: a compose service, Kubernetes objects.

Starting takes minutes (weights, compilation), so a start-up probe guards the readiness probe. The
readiness probe asks /health, which is enough once the engine has answered a request; the first
completion after a start is the roll-out's own check.
"""

import re

from tasks.domain.rendering import Deployment, arguments, environment, provenance
from tasks.domain.set_registry import registered_name

Document = dict[str, object]

PREFIX = "vllm-retune"
PROBE_PERIOD_S = 10
START_LIMIT_S = 1_800
GRACE_S = 120
"""Seconds that an engine is given to end its requests when a roll-out replaces it."""

_LABELS = ("set", "state", "study-id", "engine-version", "expires-on")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def compose_document(deployment: Deployment) -> Document:
    """Return a compose file with one service.

    Raises:
        ConfigError: IMAGE_NEEDED.
    """
    service: Document = {
        "image": deployment.container_image,
        "entrypoint": list(deployment.program),
        "command": [_not_interpolated(text) for text in arguments(deployment)],
        "environment": {k: _not_interpolated(v) for k, v in environment(deployment)},
        "ports": [f"{deployment.port}:{deployment.port}"],
        "ipc": "host",
        "restart": "unless-stopped",
        "stop_grace_period": f"{GRACE_S}s",
        "labels": {f"{PREFIX}.{k}": _not_interpolated(v) for k, v in provenance(deployment)},
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _health_program(deployment.port)],
            "interval": f"{PROBE_PERIOD_S}s",
            "timeout": "5s",
            "retries": 3,
            "start_period": f"{START_LIMIT_S}s",
        },
    }
    if _is_folder(deployment.model):
        model = _not_interpolated(deployment.model)
        service["volumes"] = [f"{model}:{model}:ro"]
    if deployment.gpu_count:
        device = {"driver": "nvidia", "count": deployment.gpu_count, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return {"services": {resource_name(deployment): service}}


def kubernetes_objects(deployment: Deployment) -> tuple[Document, Document]:
    """Return a Deployment with one replica and the Service before it.

    Raises:
        ConfigError: IMAGE_NEEDED.
    """
    name = resource_name(deployment)
    selector = {"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": name}
    labels = {**selector, **_labels(deployment)}
    annotations = {f"{PREFIX}/{k}": v for k, v in provenance(deployment)}
    meta = {"name": name, "labels": labels, "annotations": annotations}
    served: Document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "replicas": 1,
            # No second engine beside the first: a GPU that is free for the surge is rare.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod(deployment),
            },
        },
    }
    port = {"name": "http", "port": deployment.port, "targetPort": "http"}
    service: Document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"selector": selector, "ports": [port]},
    }
    return served, service


def resource_name(deployment: Deployment) -> str:
    """Return a DNS label for the engine of this model and regime, at most 63 characters."""
    parameter_set = deployment.parameter_set
    text = f"vllm-{registered_name(parameter_set.model, parameter_set.regime)}".lower()
    return re.sub(r"[^a-z0-9]+", "-", text)[:63].strip("-")


def _pod(deployment: Deployment) -> Document:
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": PROBE_PERIOD_S}
    container: Document = {
        "name": "vllm",
        "image": deployment.container_image,
        "command": list(deployment.program),
        "args": [text.replace("$(", "$$(") for text in arguments(deployment)],
        "env": [{"name": k, "value": v.replace("$(", "$$(")} for k, v in environment(deployment)],
        "ports": [{"name": "http", "containerPort": deployment.port}],
        "startupProbe": {**probe, "failureThreshold": START_LIMIT_S // PROBE_PERIOD_S},
        "readinessProbe": {**probe, "failureThreshold": 3, "timeoutSeconds": 5},
    }
    # vLLM's workers exchange tensors through shared memory; a container's own 64 MiB do not do.
    mounts: list[Document] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    volumes: list[Document] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    if _is_folder(deployment.model):
        mounts.append({"name": "model", "mountPath": deployment.model, "readOnly": True})
        volumes.append(
            {"name": "model", "hostPath": {"path": deployment.model, "type": "Directory"}}
        )
    container["volumeMounts"] = mounts
    if deployment.gpu_count:
        container["resources"] = {"limits": {"nvidia.com/gpu": deployment.gpu_count}}
    elif deployment.parameter_set.provenance.device_count is not None:
        cores = str(deployment.parameter_set.provenance.device_count)
        container["resources"] = {"requests": {"cpu": cores}, "limits": {"cpu": cores}}
    return {
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [container],
        "volumes": volumes,
    }


def _labels(deployment: Deployment) -> dict[str, str]:
    """Return the provenance that may be selected by; what is no label stays an annotation."""
    return {
        f"{PREFIX}/{name}": value
        for name, value in provenance(deployment)
        if name in _LABELS and _LABEL_VALUE.fullmatch(value)
    }


def _not_interpolated(text: str) -> str:
    return text.replace("$", "$$")


def _is_folder(model: str) -> bool:
    return model.startswith("/")


def _health_program(port: int) -> str:
    url = f"http://127.0.0.1:{port}/health"
    return f"import urllib.request; urllib.request.urlopen('{url}', timeout=4)"
