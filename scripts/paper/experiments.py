"""The paper's tables and figures, each by its name: what it costs, what it trains and evaluates, what it writes."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path

import ignite.distributed as idist
import pandas as pd
import torch

from ..errors import InputError
from ..evaluate.paired import TRUTH
from ..evaluate.tables import markdown
from ..files import whole_file
from ..train.processes import start_process_group
from ..train.simulation import ceta_coverage
from .comparison import compare, comparison_table, plain_table
from .cost import parameters, training_minutes
from .figures import save
from .trained_variants import Bench, Run, Spec, methods_of

logger = logging.getLogger("drift")


def reproduce(
    experiment: str | Sequence[str] | None, experiments: Mapping[str, Spec], bench: Callable[[], Bench]
) -> None:
    """Does experiments, or lists them.

    Writes NAME.md, .csv and .json, a table, and NAME.png and .svg, a figure. Processes that `torchrun` started train
    together (`configs/multi_gpu.yaml`); the first one evaluates.

    Args:
        experiment: a name, several, or `"all"`; null to list what there is.
        experiments: name -> entry, see `configs/paper/reproduce.yaml`.
        bench: makes what they share.

    Raises:
        InputError: if there is no such experiment, or whatever its parts refuse.
    """
    shared = bench()
    if experiment is None:
        logger.info(f"--experiment NAME does one of these, all does all:\n{_listed(entries(experiments), shared)}")
        return
    chosen = choose(experiment, experiments)
    names, specs = list(chosen), list(chosen.values())
    together = int(os.environ.get("WORLD_SIZE", 1)) > 1  # torchrun
    if together:
        start_process_group()
    if idist.get_rank() == 0:
        logger.info(_told(", ".join(names), specs, shared))
    for run in trainings(specs, shared):
        shared.train(run)
    if idist.get_rank() == 0:  # the other processes are done: evaluation takes one
        for name, spec in chosen.items():
            _report(name, spec, shared)
    if together:
        idist.finalize()


def entries(experiments: Mapping[str, Spec]) -> dict[str, Spec]:
    """Of `configs/paper/reproduce.yaml`, with what several share."""
    return {name: {**spec.get("sweep", {}), **spec} for name, spec in experiments.items()}


def choose(experiment: str | Sequence[str], experiments: Mapping[str, Spec]) -> dict[str, Spec]:
    """Name -> entry of those asked for; of all, those that need a segmenter and have none are left out.

    Raises:
        InputError: if there is no such experiment, or it needs a segmenter.
    """
    known = entries(experiments)
    names = list(known) if experiment == "all" else [experiment] if isinstance(experiment, str) else [*experiment]
    for name in names:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            raise InputError(
                f"{name!r} is no experiment.{f' Did you mean {near[0]}?' if near else ''} "
                f"Set --experiment to {', '.join(known)} or all."
            )
    for name in [name for name in names if known[name].get("evaluation", {}).get("segmenter", "") is None]:
        if experiment != "all":
            raise InputError(f"{name} needs a segmenter. Set --segmenter 'mri_synthseg --i {{image}} --o {{labels}}'.")
        logger.info(f"{name} is left out: it needs --segmenter")
        names.remove(name)
    return {name: known[name] for name in names}


def trainings(specs: Sequence[Spec], bench: Bench) -> list[Run]:
    """Of experiments, what they build on before them, each once."""
    runs = [run for spec in specs for *_, run in bench.variants(spec) if run is not None]
    once = {json.dumps(asdict(run)): run for last in runs for run in (last.start, last) if run is not None}
    return list(once.values())


def seconds_per_patch(bench: Bench, run: Run) -> float:
    """Of a training step of either stage on this machine, without the optimiser; the loader works beside it."""
    parser = bench.stage(run)
    trainer, part = {"stage1": ("train#trainer", "apn"), "stage2": ("stage2#trainer", "velocity")}[run.stage]
    device, inferer = parser.get_parsed_content("device"), parser.get_parsed_content("train#inferer")
    prepare, loss = (parser.get_parsed_content(f"{trainer}#{name}") for name in ("prepare_batch", "loss_function"))
    network = getattr(parser.get_parsed_content("network"), part)
    count, edge = int(parser[f"{run.stage}_batch_size"]), int(parser["patch_size"])
    planes = {name: 2 * torch.rand(count, 1, edge, edge) - 1 for name in ("image", "label", "proximal")}
    thickness = torch.tensor([[5.0, 1.0]]).repeat(count, 1)
    near = thickness - (1.0 if parser["ceta_gap"] else 0.0)
    for _ in range(2):  # the first one warms up
        begin = time.perf_counter()
        batch = {**planes, "thickness": thickness, "proximal_thickness": near}
        inputs, targets, arguments, _ = prepare(batch, device)
        loss(inferer(inputs, network, *arguments), targets).backward()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def _duration(seconds: float) -> str:
    return (
        f"{seconds / 3600:.1f} h"
        if seconds > 5400
        else f"{seconds / 60:.0f} min"
        if seconds > 90
        else f"{seconds:.0f} s"
    )


def _patches(runs: Sequence[Run], bench: Bench) -> dict[str, int]:
    """Stage -> how many it sees in all."""
    return {stage: sum(bench.patches(r) for r in runs if r.stage == stage) for stage in sorted({r.stage for r in runs})}


def _told(names: str, specs: Sequence[Spec], bench: Bench) -> str:
    """What is still to be trained, and about how long it takes."""
    runs = [run for run in trainings(specs, bench) if not bench.exported(run).is_file()]
    if not runs:
        return f"{names}: nothing to train"
    parts, took = [], 0.0
    for stage, patches in _patches(runs, bench).items():
        if stage == "training":
            parts.append(f"{patches:,} patches of baselines, which take their own time")
        else:
            rate = seconds_per_patch(bench, next(run for run in runs if run.stage == stage))
            parts.append(f"{patches:,} patches of {stage} at {rate:.3f} s each")
            took += patches * rate
    return (
        f"{names}: {len(runs)} trainings, {', '.join(parts)}: about {_duration(took)} on this machine, then evaluations"
    )


def _listed(experiments: Mapping[str, Spec], bench: Bench) -> str:
    """A table of the experiments: the paper's section, what they show, what they train and evaluate."""
    lines: dict[str, list[str]] = {
        k: [] for k in ("experiment", "section", "what", "trainings", "patches", "evaluations")
    }
    for name, spec in experiments.items():
        runs = trainings([spec], bench)
        told = (
            name,
            spec["section"],
            spec["about"],
            len(runs),
            sum(_patches(runs, bench).values()),
            len(bench.variants(spec)),
        )
        for column, value in zip(lines.values(), told):
            column.append(str(value))
    return markdown(lines)


def _coverage(bench: Bench, run: Run | None) -> float:
    """Of CETA's pairs in a training; NaN where there is none."""
    if run is None or run.stage != "stage2":
        return math.nan
    config = bench.config("train.yaml", run.files, run.settings)
    return ceta_coverage(config["ceta_gap"], sum(config["target_range"]) / 2, config["max_thickness"])


def _rows(spec: Spec, bench: Bench) -> pd.DataFrame:
    """Of an experiment; `label` says which variant, or which method where it is not the variant's own.

    What a variant cost is said where the table asks for it.
    """
    asked, tables = spec.get("table", {}).get("columns", []), []
    for name, variant, seed, run in bench.variants(spec):
        weights = bench.weights if run is None else bench.exported(run)
        rows = bench.evaluate(weights, variant, spec)
        rows = rows[rows["method"] != TRUTH]  # what measures without a truth say of the truth
        own = rows["method"].eq(methods_of(variant, spec)[-1]) & ("variants" in spec)
        rows = rows.assign(seed=seed, value=variant.get("value", math.nan), coverage=_coverage(bench, run))
        if "minutes" in asked and run is not None:
            rows["minutes"] = training_minutes(bench, run)
        if "parameters" in asked:
            _, config = bench.evaluation_of(weights, variant, spec)
            rows["parameters"] = pd.Series(parameters(config, run.stage if run else "shipped"), rows.index).where(own)
        if "multiply_adds" in asked:
            rows["multiply_adds"] = rows["method"].map(bench.work(weights, variant, spec))
        tables.append(rows.assign(label=rows["method"].mask(own, name)))
    return pd.concat(tables, ignore_index=True)


def _report(name: str, spec: Spec, bench: Bench) -> None:
    """Evaluates, compares, writes and draws."""
    rows = spec["measure"](bench) if "measure" in spec else _rows(spec, bench)
    if "table" in spec:
        table = compare(rows, **spec["table"])
        text, flat = comparison_table(table), table.copy()
        flat.columns = [f"{metric} {statistic}" for metric, statistic in table.columns]
        flat = flat.reset_index()
    else:
        flat = spec["analysis"](rows) if "analysis" in spec else rows
        text = plain_table(flat)
    about = {
        "what": spec["about"], "paper": spec["section"],
        "size": bench.size, "patches of a variant": bench.budget, "first seed": bench.seed,
        "data": Path(str(bench.data)).name, "training": bench.training,
        "evaluation": {**bench.evaluation, **spec.get("evaluation", {})},
        **({"differences from": against} if (against := spec.get("table", {}).get("against")) else {}),
    }  # fmt: skip
    lines = "\n".join(f"- {key}: {value}" for key, value in about.items())
    note = f"\n{spec['note']}\n" if "note" in spec else ""
    content = {"experiment": name, "about": about, "table": flat, "rows": rows}
    contents = {
        "md": f"# {name}: {spec['about']}\n\n{lines}\n\n{text}{note}",
        "csv": flat.to_csv(index=False, lineterminator="\n"),
        "json": pd.Series(
            {**content, "table": flat.to_dict("records"), "rows": rows.to_dict("records")}
        ).to_json(indent=1, double_precision=15) + "\n",
    }  # fmt: skip
    for ending, written in contents.items():
        with whole_file(bench.output / f"{name}.{ending}") as partial:
            partial.write_text(written, encoding="utf-8")
    if "figure" in spec:
        save(spec["figure"](rows), bench.output / name)
    logger.info(f"wrote {bench.output / name}.md, .csv and .json\n{text}")


def fill(page: str | os.PathLike, output_dir: str | os.PathLike) -> None:
    """Puts results into a page: what stands between `<!-- NAME -->` and `<!-- end -->` becomes NAME's table and figure.

    Blocks of experiments that were not done stay as they are.

    Args:
        page: Markdown.
        output_dir: of `reproduce`; figures are copied to a folder beside the page, under the page's name.
    """
    page, output = Path(page), Path(output_dir)
    figures = page.with_suffix("")

    def block(found: re.Match) -> str:
        name = found[1]
        if not (output / f"{name}.md").is_file():
            return found[0]
        _, about, *rest = (output / f"{name}.md").read_text(encoding="utf-8").rstrip().split("\n\n")
        parts = [f"<!-- {name} -->", about, *rest]
        if (output / f"{name}.png").is_file():
            with whole_file(figures / f"{name}.png") as partial:
                shutil.copyfile(output / f"{name}.png", partial)
            parts.append(f"![{name}]({figures.name}/{name}.png)")
        return "\n\n".join([*parts, "<!-- end -->"])

    text = re.sub(r"<!-- (\w+) -->.*?<!-- end -->", block, page.read_text(encoding="utf-8"), flags=re.DOTALL)
    with whole_file(page) as partial:
        partial.write_text(text, encoding="utf-8")
