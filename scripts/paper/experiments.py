"""The paper's tables and figures, each by its name: its trainings, evaluations and files."""

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path

import ignite.distributed as idist
import pandas as pd

from ..errors import InputError, logger
from ..evaluate.paired import TRUTH
from ..evaluate.tables import EN_DASH
from ..files import whole_file
from ..method.weights import read_card
from ..train.processes import start_process_group
from .comparison import compare, comparison_table, plain_table
from .cost import parameters, training_minutes
from .figures import save
from .trained_variants import Entry, Stage, TrainedVariants, methods_of, stages_to


def reproduce(
    experiment: str | Sequence[str] | None, experiments: Mapping[str, Entry], trained: Callable[[], TrainedVariants]
) -> None:
    """Does experiments, or lists them.

    Writes NAME.md, .csv and .json, a table, and NAME.png and .svg, a figure. Processes that `torchrun` started train
    together (`configs/multi_gpu.yaml`); the first one evaluates.

    Args:
        experiment: a name, several, or `"all"`; null to list them.
        experiments: name -> entry, see `configs/paper/reproduce.yaml`.
        trained: makes the weights that they share.
    """
    shared = trained()
    if experiment is None:
        logger.info(f"--experiment NAME does one of these, all does all:\n{_listed(entries(experiments), shared)}")
        return
    chosen = choose(experiment, experiments)
    together = int(os.environ.get("WORLD_SIZE", 1)) > 1  # torchrun
    if together:
        start_process_group()
    if idist.get_rank() == 0:
        missing = [stage for stage in trainings(chosen.values(), shared) if not shared.exported(stage).is_file()]
        logger.info(f"{', '.join(chosen)}: {_seen(missing, shared) if missing else 'nothing to train'}")
    for stage in trainings(chosen.values(), shared):
        shared.train(stage)
    if idist.get_rank() == 0:  # the other processes are done: evaluation takes one
        for name, entry in chosen.items():
            _report(name, entry, shared)
    if together:
        idist.finalize()


def entries(experiments: Mapping[str, Entry]) -> dict[str, Entry]:
    """Entries of `configs/paper/reproduce.yaml`, each with the lines that several share."""
    return {name: {**entry.get("sweep", {}), **entry} for name, entry in experiments.items()}


def choose(experiment: str | Sequence[str], experiments: Mapping[str, Entry]) -> dict[str, Entry]:
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


def trainings(chosen: Iterable[Entry], trained: TrainedVariants) -> list[Stage]:
    """All stages that experiments need, each once and after the stages that it builds on."""
    stages = [stage for entry in chosen for *_, last in trained.variants(entry) for stage in stages_to(last)]
    return list({json.dumps(asdict(stage)): stage for stage in stages}.values())


def _seen(stages: Sequence[Stage], trained: TrainedVariants) -> str:
    """How many trainings, and how many patches they see in all."""
    return f"{len(stages)} trainings of {sum(map(trained.patches, stages)):,} patches in all"


def _listed(experiments: Mapping[str, Entry], trained: TrainedVariants) -> str:
    """A table of the experiments: the paper's section, purpose, trainings and evaluations."""
    lines = [
        {
            "experiment": name,
            "section": entry["section"],
            "what": entry["about"],
            "to train": _seen(trainings([entry], trained), trained),
            "evaluations": len(trained.variants(entry)),
        }
        for name, entry in experiments.items()
    ]
    return plain_table(pd.DataFrame(lines))


def ceta_coverage(gap: float | str, target: float, max_thickness: float) -> float:
    """Share of the thicknesses `(T_hr, max]` that CETA's pairs cover, `1 - E|T_i - T_j| / (max - T_hr)` (Tab. 3).

    For a fixed gap, see `RandAcquired`, it is the share that has a partner. Two independent draws lie a third of the
    range apart. Lengths are in mm; `target` is `T_hr`.

    Example:
        >>> ceta_coverage(1.0, 1.0, 6.0), ceta_coverage(0, 1.0, 6.0)
        (0.8, 0.0)
    """
    if gap == "random":
        return 2 / 3
    return max(0.0, 1 - float(gap) / (max_thickness - target)) if gap else 0.0


def _coverage(trained: TrainedVariants, stage: Stage | None) -> float:
    """The coverage of CETA's pairs in a training; NaN where there is none."""
    if stage is None or stage.run_id != "stage2":
        return math.nan
    config = trained.config("train.yaml", stage.files, stage.settings)
    return ceta_coverage(config["ceta_gap"], sum(config["target_range"]) / 2, config["max_thickness"])


def _rows(entry: Entry, trained: TrainedVariants) -> pd.DataFrame:
    """The rows of an experiment; `label` says which variant, or which method where it is not the variant's own.

    The cost of a variant is said where the table asks for it.
    """
    asked, tables = entry.get("table", {}).get("columns", []), []
    for name, variant, seed, stage in trained.variants(entry):
        weights = trained.weights if stage is None else trained.exported(stage)
        rows = trained.evaluate(weights, variant, entry)
        rows = rows[rows["method"] != TRUTH]  # scores of the truth by measures that need none
        own = rows["method"].eq(methods_of(variant, entry)[-1]) & ("variants" in entry)
        sees = pd.Series(variant.get("sees", EN_DASH), rows.index).where(own, EN_DASH)
        rows = rows.assign(
            seed=seed, value=variant.get("value", math.nan), coverage=_coverage(trained, stage), sees=sees
        )
        if "minutes" in asked and stage is not None:
            rows["minutes"] = pd.Series(training_minutes(trained, stage), rows.index).where(own)
        if "parameters" in asked:
            _, config = trained.evaluation_of(weights, variant, entry)
            count = parameters(config, stage.run_id if stage else "shipped")
            rows["parameters"] = pd.Series(count, rows.index).where(own)
        if "multiply_adds" in asked:
            rows["multiply_adds"] = rows["method"].map(trained.multiply_adds(weights, variant, entry))
        tables.append(rows.assign(label=rows["method"].mask(own, name)))
    return pd.concat(tables, ignore_index=True)


def _report(name: str, entry: Entry, trained: TrainedVariants) -> None:
    """Evaluates, compares, writes and draws."""
    rows = entry["measure"](trained) if "measure" in entry else _rows(entry, trained)
    if "table" in entry:
        table = compare(rows, **entry["table"])
        text, flat = comparison_table(table), table.copy()
        flat.columns = [f"{metric} {statistic}" for metric, statistic in table.columns]
        flat = flat.reset_index()
    else:
        flat = entry["analysis"](rows) if "analysis" in entry else rows
        text = plain_table(flat)
    about: dict[str, object] = {"what": entry["about"], "paper": entry["section"], "data": Path(str(trained.data)).name}
    if "variants" in entry:
        about |= {"size, where a variant has none": trained.size, "budget in patches": trained.budget}
        about |= {"first seed": trained.seed, "training, where a variant has no other": trained.training}
    elif "evaluation" in entry:
        about |= {"weights": f"{trained.weights.name} of version {read_card(trained.weights).version}"}
    about |= {"evaluation": {**trained.evaluation, **entry.get("evaluation", {})}}
    if against := entry.get("table", {}).get("against"):
        about |= {"differences from": against}
    lines = "\n".join(f"- {key}: {value}" for key, value in about.items())
    records = {"table": flat.to_dict("records"), "rows": rows.to_dict("records")}
    content = pd.Series({"experiment": name, "about": about, **records})
    contents = {
        "md": f"# {name}: {entry['about']}\n\n{lines}\n\n{text}",
        "csv": flat.to_csv(index=False, lineterminator="\n"),
        "json": content.to_json(indent=1, double_precision=15) + "\n",
    }
    for ending, written in contents.items():
        with whole_file(trained.output / f"{name}.{ending}") as partial:
            partial.write_text(written, encoding="utf-8")
    if "figure" in entry:
        save(entry["figure"](rows), trained.output / name)
    logger.info(f"wrote {trained.output / name}.md, .csv and .json\n{text}")


def fill(page: str | os.PathLike, output_dir: str | os.PathLike) -> None:
    """Puts results into a page: the text between `<!-- NAME -->` and `<!-- end -->` becomes NAME's table and figure.

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
