"""Laws of several processes that train together: which volumes each draws from and validates, and its seed."""

import json
import os
import socket

import pytest
import torch
from torch.multiprocessing import spawn

from scripts.train.processes import own_share, patch_loader, seed_process, start_process_group

PROCESSES = 2


def work(rank, folder, port):
    """A process as `torchrun` starts it."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(PROCESSES)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    start_process_group()
    seed_process(5)
    loader = patch_loader(list(range(4)), [1.0] * 4, 40, 4, 0)
    found = {
        "validated": [list(own_share(list(range(count)))) for count in (1, 3)],
        "drawn": sorted({int(item) for batch in loader for item in batch}),
        "batches": len(loader),
        "chance": torch.rand(1).item(),
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_each_process_has_its_share_and_one_volume_serves_all(tmp_path):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    spawn(work, (tmp_path, port), nprocs=PROCESSES)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(PROCESSES))
    assert [first["validated"], second["validated"]] == [[[0], [0, 2]], [[0], [1]]]
    assert len(first["drawn"]) == len(second["drawn"]) == 2 and not {*first["drawn"]} & {*second["drawn"]}
    assert first["batches"] == second["batches"] == 10
    assert first["chance"] != second["chance"]


def test_one_process_draws_from_all_and_validates_all():
    assert own_share([0, 1]) is None
    loader = patch_loader(list(range(4)), [1.0, 1.0, 0.0, 1.0], 40, 4, 0)
    assert {int(item) for batch in loader for item in batch} == {0, 1, 3} and len(loader) == 10
