"""Looks at this host: the device to measure on, its lock, and the installed engine."""

from pathlib import Path

from flows.environment import Home, engine_python
from flows.materials import Host
from tasks.adapters.device_sampler.nvml import gpus
from tasks.adapters.engine_probe import probe_engine
from tasks.adapters.host_facts import cpu_name, git_sha, memory_bytes, usable_cores
from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import PermanentError
from tasks.domain.hardware import DeviceSpec, Flavour, cpu, gpu
from tasks.domain.study_request import Surroundings

CLIENT_VERSION = "load-client-1"


def device_of_host() -> tuple[DeviceSpec, int, str | None, str]:
    """Return the device, how many of it, the driver's version and the name of its lock.

    The first GPU that NVML tells of, with its live memory; else the CPU.
    """
    found = gpus()
    if not found:
        return cpu(memory_bytes=memory_bytes()), usable_cores(), None, "cpu"
    first = found[0]
    same = [info for info in found if info.name == first.name]
    spec = gpu(first.name).measured(memory_bytes=first.total_bytes)
    return spec, len(same), first.driver, f"gpu-{first.uuid}"


def find_host(place: Home, *, attached: Endpoint | None = None) -> Host:
    """Return the host with its installed engine, or with the one that runs at ``attached``.

    Raises:
        PermanentError: ENGINE_NOT_INSTALLED with the command that installs it.
    """
    device, count, driver, lock = device_of_host()
    python = engine_python()
    if attached is None:
        installed = probe_engine(python, cache=place.cache / "engine-arguments.json")
    else:
        installed = InstalledEngine(
            version=attached.engine_version or "unknown", flavour=device.flavour, arguments=()
        )
    return Host(
        device=device,
        device_count=count,
        driver=driver,
        installed=installed,
        engine_python=python,
        lock_name=lock,
    )


def host_without_engine(place: Home) -> Host:
    """Return the host, also where no engine is installed: planning needs none.

    Without an engine its version is ``unknown`` and values are checked against the catalogue.
    """
    try:
        return find_host(place)
    except PermanentError as error:
        if error.code != "ENGINE_NOT_INSTALLED":
            raise
    device, count, driver, lock = device_of_host()
    return Host(
        device=device,
        device_count=count,
        driver=driver,
        installed=InstalledEngine(version="unknown", flavour=device.flavour, arguments=()),
        engine_python=engine_python(),
        lock_name=lock,
    )


def surroundings(host: Host) -> Surroundings:
    """Return what measurements on this host depend on."""
    name = cpu_name() if host.device.flavour is Flavour.CPU else host.device.name
    return Surroundings(
        hardware=name,
        device_count=host.device_count,
        driver=host.driver,
        engine=host.installed.version,
        flavour=host.device.flavour.value,
        client=CLIENT_VERSION,
    )


def commit_tags() -> tuple[tuple[str, str], ...]:
    """Return the tag with the commit that this product runs from, none where it is unknown."""
    commit = git_sha(Path(__file__).parent)
    return (("git_sha", commit),) if commit else ()
