"""The sampler around a load, with and without GPUs, and the host's own numbers."""

import gzip
import json
import os
from pathlib import Path

from tasks.adapters.device_sampler.host import HostReader
from tasks.adapters.device_sampler.nvml import NvmlReader
from tasks.adapters.device_sampler.sampler import DeviceSampler
from tests.fakes.nvml_library import NoDriver, UnifiedMemoryGpu


def test_without_a_gpu_the_host_is_still_sampled(tmp_path: Path) -> None:
    path = tmp_path / "device.jsonl.gz"
    reader = NvmlReader(library=NoDriver())
    with DeviceSampler(60.0, pid=os.getpid(), nvml=reader, path=path) as sampler:
        busy = sum(i * i for i in range(300_000))
    assert busy > 0
    summary = sampler.summary()
    assert summary.gpus == ()
    assert summary.gpu_reason is not None
    assert summary.tree_rss_max_bytes is not None
    assert summary.tree_rss_max_bytes > 1_000_000
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    assert len(rows) == len(sampler.samples) == 2
    assert rows[0]["host"]["tree_cpu_cores"] is None  # a rate needs two samples
    assert rows[1]["host"]["tree_cpu_cores"] > 0


def test_only_the_gpus_asked_for_are_sampled_and_absent_ones_are_named() -> None:
    reader = NvmlReader(library=UnifiedMemoryGpu())
    with DeviceSampler(60.0, (0, 7), nvml=reader) as sampler:
        pass
    assert {gpu.index for sample in sampler.samples for gpu in sample.gpus} == {0}
    assert sampler.gpu_reason is None
    assert sampler.notes == (("GPU_NOT_FOUND", "NVML has no GPU of index [7]"),)


def test_a_process_that_is_gone_is_unknown() -> None:
    reader = HostReader(pid=2**22 + 1)  # beyond Linux's largest pid
    reader.sample()
    sample = reader.sample()
    assert (sample.tree_cpu_cores, sample.tree_rss_bytes) == (None, None)
    assert sample.host_mem_available_bytes is not None
