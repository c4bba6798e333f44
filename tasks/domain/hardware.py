"""Published figures of the devices that a study may run on.

A table entry is a starting point: a measured total, bandwidth or FLOP rate may replace it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from tasks.domain.errors import ConfigError

GIB = 1024**3


class Flavour(StrEnum):
    """Which build of vLLM an engine is: one enum for launching and for planning."""

    CPU = "cpu"
    CUDA = "cuda"


class DeviceClass(StrEnum):
    """The classes by which vLLM picks its batch defaults (EngineArgs.get_batch_defaults)."""

    BLACKWELL = "blackwell"
    H100_H200 = "h100_h200"
    OTHER_GPU = "other_gpu"
    CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One device.

    memory_bytes: what the CUDA runtime calls total (less than NVML's, more than can be used).
    bandwidth_bytes_s and bf16_flops: the vendor's dense peaks. sustained_bf16_flops: the best rate
    seen in a large matrix product, None where nobody measured. None is unknown throughout.
    """

    name: str
    flavour: Flavour
    memory_bytes: int | None
    bandwidth_bytes_s: float | None = None
    bf16_flops: float | None = None
    sustained_bf16_flops: float | None = None
    tdp_w: float | None = None
    throttle_celsius: float | None = None
    compute_capability: tuple[int, int] | None = None
    source: str = ""

    @property
    def device_class(self) -> DeviceClass:
        """Return the class of vLLM's defaults: by memory, and A100 apart."""
        if self.flavour is Flavour.CPU:
            return DeviceClass.CPU
        memory = self.memory_bytes or 0
        if memory >= 160 * GIB:
            return DeviceClass.BLACKWELL
        if memory >= 70 * GIB and "a100" not in self.name.lower():
            return DeviceClass.H100_H200
        return DeviceClass.OTHER_GPU

    def measured(
        self,
        *,
        memory_bytes: int | None = None,
        bandwidth_bytes_s: float | None = None,
        sustained_bf16_flops: float | None = None,
    ) -> "DeviceSpec":
        """Return this device with measured figures in place of the table's."""
        return replace(
            self,
            memory_bytes=memory_bytes or self.memory_bytes,
            bandwidth_bytes_s=bandwidth_bytes_s or self.bandwidth_bytes_s,
            sustained_bf16_flops=sustained_bf16_flops or self.sustained_bf16_flops,
        )


def _gpu(
    name: str,
    *,
    gib: float,
    tb_s: float,
    tflops: float,
    tdp_w: float,
    capability: tuple[int, int],
    source: str,
    sustained_tflops: float | None = None,
) -> DeviceSpec:
    return DeviceSpec(
        name=name,
        flavour=Flavour.CUDA,
        memory_bytes=round(gib * GIB),
        bandwidth_bytes_s=tb_s * 1e12,
        bf16_flops=tflops * 1e12,
        sustained_bf16_flops=None if sustained_tflops is None else sustained_tflops * 1e12,
        tdp_w=tdp_w,
        throttle_celsius=85.0,
        compute_capability=capability,
        source=source,
    )


_NVIDIA = "NVIDIA data sheet (dense, without sparsity); memory as torch reports it"

# T4 has no bf16: its rate is fp16's. Order matters: the first whose words all occur wins.
_TABLE: tuple[tuple[tuple[str, ...], DeviceSpec], ...] = (
    (("b200",), _gpu("NVIDIA B200", gib=178.4, tb_s=8.0, tflops=2250, tdp_w=1000,
                     capability=(10, 0), source=_NVIDIA)),
    (("h200",), _gpu("NVIDIA H200", gib=139.8, tb_s=4.8, tflops=989, tdp_w=700,
                     capability=(9, 0), source=_NVIDIA + "; 790 TFLOP/s measured",
                     sustained_tflops=790)),
    (("h100", "pcie"), _gpu("NVIDIA H100 PCIe", gib=79.1, tb_s=2.0, tflops=756, tdp_w=350,
                            capability=(9, 0), source=_NVIDIA)),
    (("h100", "nvl"), _gpu("NVIDIA H100 NVL", gib=93.1, tb_s=3.9, tflops=835, tdp_w=400,
                           capability=(9, 0), source=_NVIDIA)),
    (("h100",), _gpu("NVIDIA H100 80GB HBM3", gib=79.1, tb_s=3.35, tflops=989, tdp_w=700,
                     capability=(9, 0), source=_NVIDIA)),
    (("h20",), _gpu("NVIDIA H20", gib=95.0, tb_s=4.0, tflops=148, tdp_w=400,
                    capability=(9, 0), source=_NVIDIA)),
    (("a100", "40gb"), _gpu("NVIDIA A100 40GB", gib=39.4, tb_s=1.555, tflops=312, tdp_w=400,
                            capability=(8, 0), source=_NVIDIA)),
    (("a100", "pcie"), _gpu("NVIDIA A100 80GB PCIe", gib=79.1, tb_s=1.935, tflops=312, tdp_w=300,
                            capability=(8, 0), source=_NVIDIA)),
    (("a100",), _gpu("NVIDIA A100-SXM4-80GB", gib=79.1, tb_s=2.039, tflops=312, tdp_w=400,
                     capability=(8, 0), source=_NVIDIA)),
    (("l40s",), _gpu("NVIDIA L40S", gib=44.4, tb_s=0.864, tflops=362, tdp_w=350,
                     capability=(8, 9), source=_NVIDIA)),
    (("a10g",), _gpu("NVIDIA A10G", gib=22.0, tb_s=0.6, tflops=70, tdp_w=300,
                     capability=(8, 6), source=_NVIDIA)),
    (("a10",), _gpu("NVIDIA A10", gib=22.0, tb_s=0.6, tflops=125, tdp_w=150,
                    capability=(8, 6), source=_NVIDIA)),
    (("l4",), _gpu("NVIDIA L4", gib=22.0, tb_s=0.3, tflops=121, tdp_w=72,
                   capability=(8, 9), source=_NVIDIA)),
    (("4090",), _gpu("NVIDIA GeForce RTX 4090", gib=23.5, tb_s=1.008, tflops=165, tdp_w=450,
                     capability=(8, 9), source=_NVIDIA)),
    (("t4",), _gpu("Tesla T4", gib=14.6, tb_s=0.32, tflops=65, tdp_w=70,
                   capability=(7, 5), source=_NVIDIA)),
)  # fmt: skip


def gpus() -> tuple[DeviceSpec, ...]:
    """Return every GPU of the table."""
    return tuple(spec for _, spec in _TABLE)


def gpu(name: str) -> DeviceSpec:
    """Return the GPU whose words occur in ``name`` (as NVML or a person writes it).

    Raises:
        ConfigError: when the table has none; measure it and build a DeviceSpec.
    """
    words = name.lower().replace("-", " ").replace("_", " ").split()
    for needed, spec in _TABLE:
        if all(any(_begins(word, part) for word in words) for part in needed):
            return spec
    raise ConfigError(
        f"GPU {name!r} is not in the table of {len(_TABLE)} GPUs ("
        + ", ".join(spec.name for _, spec in _TABLE)
        + "); add a row with memory, bandwidth and peak FLOP/s from its data sheet",
        code="UNKNOWN_GPU",
    )


def _begins(word: str, part: str) -> bool:
    """Tell whether a word is this model number, with letters but no more digits after it."""
    return word.startswith(part) and not word[len(part) : len(part) + 1].isdigit()


def cpu(*, memory_bytes: int | None, bandwidth_bytes_s: float | None = None) -> DeviceSpec:
    """Return a CPU host; without a measured bandwidth it has no roofline."""
    return DeviceSpec(
        name="CPU",
        flavour=Flavour.CPU,
        memory_bytes=memory_bytes,
        bandwidth_bytes_s=bandwidth_bytes_s,
        source="measured on the host" if bandwidth_bytes_s is not None else "no public figure",
    )
