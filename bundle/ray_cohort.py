"""A cohort of scans over the machines of a Ray cluster: configs/inference.yaml, by many workers.

    python bundle/ray_cohort.py --input FOLDER --output_dir OUT [any option of the bundle]

The cluster (docs/hosts.md) is the one at RAY_ADDRESS, HOST:PORT, else that of this machine, else this machine alone.
Each worker has a GPU, or two cores where there is none, and a network of its own. A worker that dies is started again.
"""

import os
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fire
import ray
from monai.bundle import ConfigWorkflow
from ray.exceptions import RayError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.command_line import check_options
from scripts.errors import InputError, logger, report_input_errors
from scripts.inputs.scan import Scan
from scripts.outputs import cohort, plan
from scripts.outputs.one_scan import rebuild_scan

ROOT = Path(__file__).resolve().parents[1]
CONFIG = str(ROOT / "configs" / "inference.yaml")
TRIES = 3  # of a scan whose worker dies


def workflow(config: str = CONFIG, **options: Any) -> ConfigWorkflow:
    """A config of the bundle, initialised, with options as `python -m monai.bundle run` takes them."""
    result = ConfigWorkflow(workflow_type="inference", **{"config_file": config, "bundle_root": str(ROOT), **options})
    result.initialize()
    return result


@ray.remote(max_restarts=-1)
class Worker:
    """A network. Its relative paths refer to a folder that is the same on all machines."""

    def __init__(self, folder: str, options: Mapping[str, Any]):
        os.chdir(folder)
        parser = workflow(**{"inferer::progress": False, **options}).parser
        self.rebuilder, self.output = (parser.get_parsed_content(name) for name in ("rebuilder", "output"))

    def rebuild(self, scan: Scan) -> list[dict]:
        """A scan -> its rows of the summary."""
        return rebuild_scan(scan, self.rebuilder, self.output)


def join_cluster() -> tuple[dict[str, int], int]:
    """The resources of a worker, and how many workers the cluster has room for."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to Ray's makers
    ray.init(runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for need, resource, share in (({"num_gpus": 1}, "GPU", 1), ({"num_cpus": 2}, "CPU", 2)):
        if count := sum(int(machine.get(resource, 0) // share) for machine in machines):
            return need, count
    raise InputError(f"The cluster has {machines}: expected a GPU or two cores on a machine. Add one.")


def rows(workers: Sequence, scans: Sequence[Scan]) -> Iterator[tuple[int, list[dict]]]:
    """Gives each idle worker the next scan, or the scan of a worker that died. Yields (index of the scan, its rows)."""
    waiting, tries, left = deque(range(len(scans))), Counter[int](), len(scans)
    running = {worker.__ray_ready__.options(max_task_retries=-1).remote(): (worker, None) for worker in workers}
    while left:
        if not running:
            raise InputError("No worker could start. Give every machine the same files and packages as this one.")
        (done,), _ = ray.wait(list(running))
        worker, index = running.pop(done)
        try:
            own = ray.get(done)
        except RayError as error:
            if index is None:
                logger.warning(f"A worker could not start: {error}")
                continue
            name = scans[index].name
            logger.warning(f"{name}: its worker died, try {tries[index]} of {TRIES}: {error}")
            running[worker.__ray_ready__.options(max_task_retries=-1).remote()] = worker, None  # it is started again
            if tries[index] < TRIES:
                waiting.append(index)
                continue
            why = f"{name}: its worker died {TRIES} times, perhaps for want of memory. Do it elsewhere."
            own = [{"input": name, "outcome": "failed", "warnings": why}]
        else:
            if waiting:
                following = waiting.popleft()
                tries[following] += 1
                running[worker.rebuild.remote(scans[following])] = worker, following
            else:  # room for one that lost its machine
                ray.kill(worker)
        if index is not None:
            left -= 1
            yield index, own


def main(**options: Any) -> None:
    """Rebuilds the scans that options of the bundle name, such as input and output_dir."""
    check_options(["--config_file", CONFIG, *sys.argv[1:]])
    parser = workflow(**options).parser
    scans, rebuilder, output, selection = map(parser.get_parsed_content, ("scans", "rebuilder", "output", "selection"))
    dry_run, allowed = map(parser.get_parsed_content, ("dry_run", "allow_failures"))
    plan.list_scans(dry_run, rebuilder, output, scans, selection.skipped, selection.candidates, allowed)
    need, count = join_cluster()
    workers = [Worker.options(**need).remote(os.getcwd(), options) for _ in range(count)]
    cohort.keep_summary(rows(workers, scans), scans, output, selection.skipped, allowed)


if __name__ == "__main__":
    report_input_errors()
    fire.Fire(main)
