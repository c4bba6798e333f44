"""``retune switch`` on the plug-in's own channel and a server's model list; no vLLM."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from flows.cli import app
from tasks.adapters.checkpoints.hashing import checkpoint_sha256
from tasks.adapters.vllm_server.live_scheduler.retune_scheduler import Knobs, answer, open_channel
from tasks.domain.errors import ConfigError
from tests.fakes.canned_server import CannedServer
from tests.fakes.scheduler_limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    url: str
    control: Path
    model_dir: Path
    limits: Limits
    folder: Path

    def values(self) -> tuple[int, int]:
        return self.limits.max_num_running_reqs, self.limits.max_num_scheduled_tokens


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    model_dir = tmp_path / "model"
    model_dir.mkdir()
    (model_dir / "config.json").write_text("{}")
    (model_dir / "model.safetensors").write_text("weights")
    limits = Limits()
    knobs = Knobs(limits, cap="max_num_running_reqs")
    about = {
        "version": "0.24.0",
        "model": "chat",
        "pid": 7,
        "started_with": {"max_model_len": 1024, "model": str(model_dir)},
    }
    control = tmp_path / "control"
    open_channel(str(control), lambda request: answer(request, knobs, about))
    row = {"root": str(model_dir), "max_model_len": 1024}
    models = json.dumps({"data": [{"id": "chat", **row}, {"id": "alias", **row}]})
    with CannedServer({"GET /v1/models": lambda: (200, models)}) as server:
        yield Engine(
            url=server.url, control=control, model_dir=model_dir, limits=limits, folder=tmp_path
        )


def switch(engine: Engine, *more: str, **document: object) -> Result:
    path = engine.folder / "set.yaml"
    head = {"name": "s", "regime": "peak", "state": "baseline", "model": "chat"}
    path.write_text(yaml.safe_dump({**head, "checkpoint": "reference", "values": {}, **document}))
    arguments = ["switch", str(path), "--url", engine.url, "--control", str(engine.control)]
    result = CliRunner().invoke(app, [*arguments, *more])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_set_is_the_whole_assignment(engine: Engine) -> None:
    assert switch(engine, values={"max_num_seqs": 4, "max_num_batched_tokens": 64}).exit_code == 0
    assert engine.values() == (4, 64)
    told = switch(engine, values={"max_num_seqs": 8}).stdout
    assert engine.values() == (8, 512)
    assert "switched: max_num_seqs 4 -> 8, confirmed by the engine" in told
    assert "returned: max_num_batched_tokens 64 -> 512, which the engine was started with" in told
    # The engine that the set was measured on had a cap of its own, from the model's file.
    switch(engine, provenance={"engine_values": {"max_num_seqs": 12, "max_model_len": 1024}})
    assert engine.values() == (12, 512)


def test_an_engine_of_another_model_checkpoint_or_start_is_refused_and_not_moved(
    engine: Engine,
) -> None:
    provenance = {"checkpoint_sha256": "ab" * 32, "engine_values": {"max_model_len": 2048}}
    asked = {"values": {"max_num_seqs": 4}, "model": "llama", "provenance": provenance}
    with pytest.raises(ConfigError) as caught:
        switch(engine, **asked)
    assert caught.value.code == "ENGINE_OTHERWISE"
    own = checkpoint_sha256(engine.model_dir)
    for words in (
        "model: found chat, needed llama",
        f"checkpoint_sha256: found {own}, needed abab",
        "max_model_len: found 1024, needed 2048",
    ):
        assert words in str(caught.value)
    assert engine.values() == (16, 512)

    accepted = ("model=chat", f"checkpoint_sha256={own}", "max_model_len=1024")
    options = [part for field in accepted for part in ("--accept", field)]
    told = switch(engine, *options, **asked).stdout
    assert engine.values() == (4, 512)
    assert "accepted: max_model_len 1024, the set needs 2048" in told


def test_any_name_of_the_same_weights_is_the_models(engine: Engine) -> None:
    sha256 = checkpoint_sha256(engine.model_dir)
    told = switch(engine, model="alias", provenance={"checkpoint_sha256": sha256}).stdout
    assert "not checked" not in told
    assert "not checked: checkpoint_sha256" in switch(engine, model="alias").stdout


def test_a_folder_that_this_product_made_tells_its_hash_itself(engine: Engine) -> None:
    manifest = {"sha256": "plain", "packed_sha256": "packed"}
    (engine.model_dir / "retune-manifest.json").write_text(json.dumps(manifest))
    done = switch(engine, checkpoint="awq", provenance={"checkpoint_sha256": "packed"})
    assert done.exit_code == 0


def test_a_control_folder_of_another_engine_than_the_urls_is_refused(engine: Engine) -> None:
    other = json.dumps({"data": [{"id": "chat", "root": "/elsewhere", "max_model_len": 1024}]})
    with CannedServer({"GET /v1/models": lambda: (200, other)}) as server:
        elsewhere = Engine(
            url=server.url,
            control=engine.control,
            model_dir=engine.model_dir,
            limits=engine.limits,
            folder=engine.folder,
        )
        with pytest.raises(ConfigError, match="two engines") as caught:
            switch(elsewhere, values={"max_num_seqs": 4})
    assert caught.value.code == "CONTROL_OF_ANOTHER_ENGINE"
    assert engine.values() == (16, 512)
