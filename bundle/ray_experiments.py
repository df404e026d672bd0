"""Experiments over the machines of a Ray cluster: trainings side by side, then tables and figures.

    python bundle/ray_experiments.py --experiment NAME --dataset_dir DIR --output_dir OUT [any option of reproduce.yaml]

The cluster is found as by bundle/ray_cohort.py. A training has a GPU, or two cores where the cluster has no GPU; one
whose worker dies goes on elsewhere from its last checkpoint. Evaluation, tables and figures are made where the command
is given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fire
import ray
from ray.exceptions import RayError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bundle.ray_cohort import ROOT, TRIES, join_cluster, workflow
from scripts.errors import InputError, report_input_errors
from scripts.options import check_options
from scripts.paper.experiments import choose, trainings
from scripts.paper.trained_variants import Stage, TrainedVariants

CONFIG = str(ROOT / "configs" / "paper" / "reproduce.yaml")


def planned(options: Mapping[str, Any]) -> tuple[TrainedVariants, list[Stage]]:
    """The trainings of the experiments that the options choose, what they build on before them."""
    parser = workflow(CONFIG, **options).parser
    trained = parser.get_parsed_content("trained")()
    if not parser["experiment"]:
        raise InputError("experiment is not given. Set --experiment to a name, a list of names, or all.")
    return trained, trainings(choose(parser["experiment"], parser["experiments"]).values(), trained)


@ray.remote(max_retries=TRIES - 1)
def train(folder: str, options: Mapping[str, Any], index: int, *before: None) -> None:
    """A planned training, after those before it, on files that all machines have at the same places."""
    os.chdir(folder)
    trained, stages = planned(options)
    trained.train(stages[index])


def main(**options: Any) -> None:
    """Does the experiments that options of configs/paper/reproduce.yaml name."""
    check_options(["--config_file", CONFIG, *sys.argv[1:]])
    trained, stages = planned(options)  # mistakes are refused here
    missing = [index for index, stage in enumerate(stages) if not trained.exported(stage).is_file()]
    if missing:
        start, tasks = train.options(**join_cluster()[0]).remote, {}
        for index in missing:  # what others build on stands before them
            before = [tasks[k] for k in tasks if stages[k] == stages[index].start]
            tasks[index] = start(os.getcwd(), options, index, *before)
        try:
            ray.get(list(tasks.values()))
        except RayError as error:
            why = getattr(error, "cause", None) or error
            raise InputError(f"A training failed: {why}. The same command goes on with what is missing.") from error
        ray.shutdown()
    workflow(CONFIG, **options).run()


if __name__ == "__main__":
    report_input_errors()
    fire.Fire(main)
