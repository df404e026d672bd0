"""Variants of the method: how each is trained and evaluated, once, in folders keyed by all that the result depends on.

Two experiments that need the same find it there, and a command that was killed goes on where it was.
"""

import copy
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import pandas as pd
from monai.bundle import ConfigParser
from monai.data import CacheDataset

from ..errors import InputError
from ..evaluate.tables import METRICS
from ..files import sha256, whole_file
from ..method.weights import read_card
from ..outputs.lock import alone
from ..train.datasets import label_maps, sharp_volumes
from ..train.processes import seed_process
from ..train.recipe import data_digest, digest, recipe
from ..train.stages import config_of
from .image_quality import ImageQuality
from .multiply_adds import multiply_adds_per_voxel

Entry = Mapping[str, Any]  # an experiment of configs/paper/reproduce.yaml
Variant = Mapping[str, Any]  # of an experiment
LENGTHS = {  # run id -> options of train.yaml: its epochs and its batch
    "stage1": ("stage1_epochs", "stage1_batch_size"),
    "stage2": ("stage2_epochs", "stage2_batch_size"),
    "training": ("stage1_epochs", "stage1_batch_size"),
}
LOADED = {  # dataset of train.yaml -> its files and their transform
    "dataset": ("volumes", "preprocessing"),
    "label_dataset": ("label_maps", "label_preprocessing"),
}


def methods_of(variant: Variant, entry: Entry) -> list[str]:
    """Those of `configs/evaluate.yaml` that count; the last one is the variant's own."""
    return list(variant.get("methods", entry.get("methods", ["DRIFT"])))


def _alone(folder: Path) -> AbstractContextManager:
    """While no other process is at work in a folder; the processes of one training are at work together."""
    return nullcontext() if idist.get_world_size() > 1 else alone(folder)


@dataclass(frozen=True)
class Stage:
    """A stage of training.

    Attributes:
        run_id: of `configs/train.yaml`.
        settings: id of `configs/train.yaml` -> value.
        files: config files stacked on it.
        start: the stage that it builds on; null for random weights.
        length: in budgets.
        size: of the networks, see `TrainedVariants.of_size`; null for the size of all variants.
    """

    run_id: str
    settings: Mapping[str, Any]
    files: tuple[str, ...] = ()
    start: "Stage | None" = None
    length: float = 1.0
    size: str | None = None


def stages_to(stage: Stage | None) -> list[Stage]:
    """The stages that a stage builds on, and the stage itself, in order; nothing for none."""
    return [] if stage is None else [*stages_to(stage.start), stage]


class TrainedVariants:
    """Trains and evaluates variants for all experiments, each once, and keeps what it makes in one folder.

    Args:
        bundle_root: where `configs/` lies.
        dataset_dir: see `datasets.sharp_volumes`.
        output_dir: where trainings, evaluations and results are kept.
        ckpt_path: weights of sweeps that need no training.
        size: of the networks, as in `configs/models/`.
        budget: patches that a stage of a variant sees.
        stage1_length: budgets of a stage 1, which variants share.
        seed: the first one.
        seeds: how many; null for as many as the experiment says.
        training: id of `configs/train.yaml` -> value, for all trainings.
        evaluation: id of `configs/evaluate.yaml` -> value, for all evaluations.
        files: config files stacked on both.
        label_dir: see `datasets.label_maps`.

    Raises:
        InputError: if the size is unknown, or a number is none or too small.
    """

    def __init__(
        self,
        bundle_root: str | os.PathLike,
        dataset_dir: str | os.PathLike | None,
        output_dir: str | os.PathLike,
        ckpt_path: str | os.PathLike,
        size: str,
        budget: int,
        stage1_length: float,
        seed: int,
        seeds: int | None,
        training: Mapping[str, Any],
        evaluation: Mapping[str, Any],
        files: Sequence[str | os.PathLike] = (),
        label_dir: str | os.PathLike | None = None,
    ):
        self.configs = Path(bundle_root).absolute() / "configs"
        self.sizes = sorted(path.stem for path in (self.configs / "models").glob("*.yaml"))
        if size not in self.sizes:
            raise InputError(f"size is {size!r}: expected {', '.join(self.sizes)}. Set --size.")
        for name, value, least in (("budget", budget, 1), ("seeds", seeds, 1), ("seed", seed, 0)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise InputError(f"{name} is {value!r}: expected a whole number, {least} or more. Set --{name}.")
        if not isinstance(stage1_length, int | float) or not stage1_length > 0:
            raise InputError(f"stage1_length is {stage1_length!r}: expected a positive number. Set --stage1_length.")
        self.data = None if dataset_dir is None else Path(dataset_dir).absolute()  # none is needed to list experiments
        self.labels = None if label_dir is None else Path(label_dir).absolute()
        self.output = Path(output_dir).absolute()
        self.weights = Path(ckpt_path).absolute()
        self.size, self.budget, self.stage1_length = size, budget, stage1_length
        self.seed, self.seeds = seed, seeds
        self.training, self.evaluation = dict(training), dict(evaluation)
        self.files = tuple(str(Path(file).absolute()) for file in files)
        self._loaded: dict[str, tuple[list[dict], CacheDataset]] = {}
        self._read: dict[tuple[str, ...], dict] = {}  # stacked files -> their content: each is asked for many times

    def _data(self) -> Path:
        if self.data is None:
            raise InputError("dataset_dir is not given. Set --dataset_dir to a folder of sharp volumes or a datalist.")
        return self.data

    @cached_property
    def volumes(self) -> list[dict]:
        """Those that evaluations take."""
        return sharp_volumes(self._data(), "validation")

    @cached_property
    def training_data(self) -> str:
        """Hash of the data that trainings take."""
        return data_digest(sharp_volumes(self._data(), "training"), label_maps(self.labels))

    @cached_property
    def evaluation_data(self) -> str:
        """Hash of the data that evaluations take."""
        return data_digest(self.volumes, [])

    def of_size(self, size: str) -> "TrainedVariants":
        """The same for another size; any other than those of `configs/models/` is the bundle's own."""
        other = copy.copy(self)
        other.size = size
        return other

    def config(self, file: str, files: Sequence[str], settings: Mapping[str, Any]) -> ConfigParser:
        """A config of the bundle under the size, more files and settings."""
        size = self.configs / "models" / f"{self.size}.yaml"
        below = [self.configs / "inference.yaml"] if file == "evaluate.yaml" else []
        stacked = [*below, self.configs / file, *([size] if size.is_file() else []), *self.files]  # its own has none
        stacked += [self.configs / name for name in files]
        if file == "train.yaml" and idist.get_world_size() > 1:
            stacked.append(self.configs / "multi_gpu.yaml")
        key = tuple(map(str, stacked))
        if key not in self._read:
            self._read[key] = ConfigParser.load_config_files(key)
        parser = ConfigParser()
        parser.read_config(copy.deepcopy(self._read[key]))
        parser.read_meta(str(self.configs / "metadata.json"))
        parser.update({"bundle_root": str(self.configs.parent), "dataset_dir": str(self.data), **settings})
        return parser

    # Trainings

    def variants(self, entry: Entry) -> list[tuple[str, Variant, int, Stage | None]]:
        """Name, content, seed and training of each variant of an experiment, each seed; sweeps have the shipped one."""
        listed: list[tuple[str, Variant, int, Stage | None]] = []
        for name, content in (entry.get("variants") or {"shipped": {"shipped": True}}).items():
            variant = {**content, **entry.get("changes", {}).get(name, {})}
            count = 1 if variant.get("shipped") else self.seeds or variant.get("seeds") or entry.get("seeds", 1)
            for seed in range(self.seed, self.seed + count):
                listed.append((name, variant, seed, None if variant.get("shipped") else self.last_stage(variant, seed)))
        return listed

    def last_stage(self, variant: Variant, seed: int) -> Stage:
        """The last stage of a variant.

        Variants share a stage 1, which has the first seed; one with seeds of its own has a stage 1 of each.
        """
        files, length, size = tuple(variant.get("files", ())), float(variant.get("length", 1)), variant.get("size")
        if variant.get("baseline"):  # one stage, called training, and settings of its own
            own = {name for file in files for name in ConfigParser.load_config_file(str(self.configs / file))}
            shared = {name: value for name, value in self.training.items() if name not in own}
            return Stage("training", {**shared, "seed": seed, **variant.get("stage1", {})}, files, None, length)
        start = None
        if variant.get("stage1", {}) is not None:
            first = seed if "seeds" in variant else self.seed
            settings = {**self.training, "seed": first, **variant.get("stage1", {})}
            start = Stage(
                "stage1", settings, files, None, float(variant.get("stage1_length", self.stage1_length)), size
            )
            if variant.get("stage2", {}) is None:
                return start
        settings = {**self.training, "seed": seed, **variant.get("network", {}), **variant.get("stage2", {})}
        return Stage("stage2", settings, files, start, length, size)

    def folder(self, stage: Stage) -> Path:
        """Where a stage is trained: each recipe has a folder of its own."""
        before = None if stage.start is None else self.folder(stage.start).name
        shared = [before, self.training_data, idist.get_world_size()]
        made = digest(recipe(self._config(stage), "train::trainer"), *shared)
        return self.output / "trainings" / f"{stage.run_id}-{made}"

    def exported(self, stage: Stage) -> Path:
        """Its weights; they exist once it is complete."""
        return self.folder(stage) / self._config(stage).get_parsed_content("part_weights")

    def patches(self, stage: Stage) -> int:
        """How many a stage sees, in all processes."""
        return max(1, round(self.budget * stage.length))

    def config_of(self, stage: Stage) -> ConfigParser:
        """The config of a stage, with its places."""
        parser = self._config(stage)
        start = None if stage.start is None else str(self.exported(stage.start))
        labels = None if self.labels is None else str(self.labels)
        parser.update({"output_dir": str(self.folder(stage)), "label_dir": labels, "start": start})
        parser["tracking"] = [{"_target_": "scripts.paper.cost.CpuTime", "_mode_": "callable"}]
        return parser

    def _config(self, stage: Stage) -> ConfigParser:
        """The config of a stage, whose length is the budget's."""
        parser = self.of_size(stage.size or self.size).config("train.yaml", stage.files, stage.settings)
        length, size = LENGTHS[stage.run_id]
        each, batch = self.patches(stage) // idist.get_world_size(), int(parser[size])
        epochs = max(1, each // int(parser["patches_per_epoch"]))
        epoch = each // epochs // batch * batch  # whole batches: less than one of them is lost in each epoch
        if not epoch:
            least = math.ceil(batch * idist.get_world_size() / stage.length)
            raise InputError(
                f"budget is {self.budget}: expected {least} or more, a batch of {stage.run_id}. Set --budget."
            )
        parser.update({"patches_per_epoch": epoch, length: epochs})
        return config_of(parser, stage.run_id) if stage.run_id == "stage2" else parser

    def train(self, stage: Stage) -> Path:
        """Trains a stage and the stages that it builds on, where they are not complete; returns the weights."""
        if stage.start is not None:
            self.train(stage.start)
        weights = self.exported(stage)
        with _alone(self.folder(stage)):
            if not weights.is_file():
                with whole_file(self.folder(stage) / "settings.json") as partial:
                    partial.write_text(json.dumps(asdict(stage), indent=1) + "\n", encoding="utf-8")
                seed_process(stage.settings["seed"])
                self._with_loaded_volumes(self.config_of(stage)).get_parsed_content("train::trainer").run()
        return weights

    def _with_loaded_volumes(self, parser: ConfigParser) -> ConfigParser:
        """The config with the volumes and label maps that the training before it has loaded, where it has the same."""
        for name, (items, transform) in LOADED.items():
            files = parser.get_parsed_content(f"train#{items}")
            steps = parser.get_parsed_content(f"train#{transform}")
            if name not in self._loaded or self._loaded[name][0] != files:
                self._loaded[name] = files, parser.get_parsed_content(f"train#{name}")
            _, dataset = self._loaded[name]
            dataset.transform = steps  # up to the first random step all variants have the same
            parser.ref_resolver.resolved_content[f"train::{name}"] = dataset  # the config stays as it is
        return parser

    # Evaluations

    def evaluation_of(self, weights: Path, variant: Variant, entry: Entry) -> tuple[Path, ConfigParser]:
        """Folder of what `evaluate` makes, and the config that makes it there or elsewhere."""
        files = ("paper/image_quality.yaml", *variant.get("files", ()), *entry.get("files", ()))
        network, given = variant.get("network", {}), {**entry.get("evaluation", {}), **variant.get("evaluation", {})}
        settings, steps = {**self.evaluation, **given, **network}, variant.get("steps", entry.get("steps", []))
        methods = methods_of(variant, entry)
        sized = self.of_size(read_card(weights).size)
        parser = sized.config("evaluate.yaml", files, {**settings, "ckpt_path": str(weights)})
        chosen = {name: parser["methods"][name] for name in methods}
        stepped = {"_target_": "@deployed", "_mode_": "callable"}
        chosen |= {f"N = {n}": {**stepped, "inferer": {**parser["inferer"], "steps": n}} for n in steps}
        parser["methods"] = chosen
        metrics = [name for name, metric in vars(ImageQuality.installed()).items() if metric is not None]
        content = [sha256([weights]), recipe(parser, "run"), list(chosen), metrics, self.evaluation_data]
        return self.output / "evaluations" / digest(*content), parser

    def evaluate(self, weights: Path, variant: Variant, entry: Entry) -> pd.DataFrame:
        """Rows of `evaluation.evaluate` for weights; made once.

        Args:
            weights: to be evaluated.
            variant: of an experiment in configs/paper/reproduce.yaml; its `files`, `network`, `methods`, `evaluation`.
            entry: the experiment; its `methods`, `steps` and `evaluation`.
        """
        folder, parser = self.evaluation_of(weights, variant, entry)
        with _alone(folder):
            if not folder.is_dir():
                partial = folder.with_name(f".{folder.name}")
                parser.update({"output_dir": str(partial)})
                parser.get_parsed_content("run")
                os.replace(partial, folder)
        rows = pd.DataFrame(json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["rows"])
        return rows.astype({name: float for name in METRICS if name in rows})

    def multiply_adds(self, weights: Path, variant: Variant, entry: Entry) -> dict[str, float]:
        """Method -> its multiply-adds per voxel of the first held-out volume; counted once, after `evaluate`."""
        folder, parser = self.evaluation_of(weights, variant, entry)
        with _alone(folder):
            if not (file := folder / "multiply_adds.json").is_file():
                methods = parser.get_parsed_content("methods")
                counted = {name: multiply_adds_per_voxel(method, self.volumes[0]) for name, method in methods.items()}
                with whole_file(file) as partial:
                    partial.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")
        return json.loads(file.read_text(encoding="utf-8"))
