"""What a run works with, prepared from its files: the request, the model, traffic, the host."""

from dataclasses import dataclass
from pathlib import Path

from flows.environment import Home
from tasks.adapters.model_files import read_model_spec
from tasks.domain.catalogue.effective import effective_values
from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.endpoint import Endpoint
from tasks.domain.engine_launch import CPU_DEFAULTS, EngineLaunch
from tasks.domain.hardware import DeviceSpec, Flavour
from tasks.domain.kv_pool import LengthProfile
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValues
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.reported_values import contradictions
from tasks.domain.schedule import RequestSchedule
from tasks.domain.scheduling import build_schedule
from tasks.domain.site_files import ModelSource
from tasks.domain.study_request import StudyRequest
from tasks.domain.trace import Trace
from tasks.domain.trace_profile import TraceProfile
from tasks.evaluate import EvaluationMeans
from tasks.quantize import PreparedModel, QuantizingMeans

SHAPES_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine that measures: device, installed engine, the lock's name for the device."""

    device: DeviceSpec
    device_count: int
    driver: str | None
    installed: InstalledEngine
    engine_python: Path
    lock_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """Everything that the steps of one run need, the engine apart.

    traces: by name, ``reference`` and for a night ``fresh``. attached: somebody else's endpoint to
    measure on instead of an engine of our own, or None.
    """

    request: StudyRequest
    place: Home
    host: Host
    source: ModelSource
    prepared: PreparedModel
    spec: ModelSpec
    vocabulary: PromptVocabulary
    traces: dict[str, Trace]
    quantizing: QuantizingMeans
    evaluation: EvaluationMeans
    attached: Endpoint | None = None

    def engine_values(self, arm: ParameterValues) -> ParameterValues:
        """Return the values an engine is started with: the model's, then the arm's over them."""
        return model_values(self.source, self.host.device.flavour).overriding(arm.as_dict())

    def launch(
        self,
        *,
        model_dir: Path,
        served_name: str,
        values: ParameterValues,
        profile_dir: Path,
        live: bool = False,
    ) -> EngineLaunch:
        """Return the launch of an engine on this host; ``live`` loads the live knobs' plug-in."""
        return EngineLaunch(
            model_dir=str(model_dir),
            served_name=served_name,
            python=str(self.host.engine_python),
            values=self.engine_values(values),
            flavour=self.host.device.flavour,
            profile_dir=str(profile_dir),
            kv_cache_gib=self.source.cpu_kv_cache_gib,
            live_knobs=live,
            env=self.source.engine_env,
        )

    def spec_of(self, method: str) -> ModelSpec:
        """Return the shapes that an engine loads: packed AWQ on CUDA, plain weights elsewhere."""
        if method == "reference" or self.host.device.flavour is Flavour.CPU:
            return self.spec
        return read_model_spec(
            self.prepared.folder, name=self.spec.name, awq=self.request.quantization
        )

    def max_num_seqs(self, values: ParameterValues) -> int:
        """Return how many requests an engine takes at once: its own value or vLLM's."""
        return effective_values(
            self.engine_values(values),
            device=self.host.device,
            model_max_len=self.spec.max_position_embeddings,
        ).max_num_seqs

    @property
    def max_model_len(self) -> int | None:
        """The longest prompt + output in tokens that every arm takes, None where unlimited."""
        limits = [self.engine_values(arm.values).get("max_model_len") for arm in self.request.arms]
        known = [limit for limit in limits if isinstance(limit, int)]
        return min(known) if known else self.spec.max_position_embeddings

    def schedule(self, point: LoadPoint, *, traffic: str) -> RequestSchedule:
        """Return the schedule of a load point: the same for every arm and every repeat.

        A shorter repeat is offered the beginning of the whole.
        """
        closed = point.kind is LoadKind.CLOSED
        whole = build_schedule(
            self.traces[traffic],
            duration_s=SHAPES_S if closed else point.whole_s or point.duration_s,
            rate_scale=1.0 if closed else point.rate_scale or 1.0,
            seed=self.request.seed,
            max_model_len=self.max_model_len,
        )
        return whole if point.whole_s is None else whole.beginning(point.duration_s)


def attached_otherwise(materials: Materials) -> tuple[str, ...]:
    """Return what the attached engine reports otherwise than its set says, nothing without one."""
    if materials.attached is None:
        return ()
    asked = materials.engine_values(materials.request.reference.values)
    return contradictions(asked, materials.attached.reported)


def model_values(source: ModelSource, flavour: Flavour) -> ParameterValues:
    """Return the values that every engine of a model is started with on this kind of device."""
    values = source.values
    if flavour is Flavour.CPU:
        values = values.overriding(source.cpu_values.as_dict())
    if source.dtype != "auto":
        values = values.overriding({"dtype": source.dtype})
    return values


def engine_variables(source: ModelSource, flavour: Flavour) -> tuple[tuple[str, str], ...]:
    """Return the variables of an engine's environment that its measurements depend on."""
    size = source.cpu_kv_cache_gib
    if flavour is not Flavour.CPU or size is None:
        return source.engine_env
    return (*source.engine_env, ("VLLM_CPU_KVCACHE_SPACE", f"{size:g}"))


def served_dtype(source: ModelSource, flavour: Flavour) -> str:
    """Return what an engine of the model computes in, ``auto`` where the engine decides."""
    unasked = dict(CPU_DEFAULTS) if flavour is Flavour.CPU else {}
    dtype = {**unasked, **model_values(source, flavour).as_dict()}.get("dtype", "auto")
    return str(dtype)


def length_profile(profile: TraceProfile) -> LengthProfile:
    """Return the lengths that a memory plan needs out of a trace's profile."""
    return LengthProfile(
        prompt_mean=profile.prompt.mean_tokens,
        prompt_p99=int(profile.prompt.p99_tokens),
        output_mean=profile.output.mean_tokens,
        output_p99=int(profile.output.p99_tokens),
    )
