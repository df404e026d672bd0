"""A training logged to MLflow: every stage with its options and curves."""

import numpy as np
import pytest

from tests.nano import NANO, load, write_yaml
from tests.processes import assert_told_in_one_line, monai_bundle, stacked

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install '.[tracking]'")


@pytest.mark.slow
def test_both_stages_are_logged(tmp_path, write_nifti, phantom):
    for k in range(16):
        write_nifti(np.ascontiguousarray(phantom[k : k + 16, k : k + 20, k : k + 12]), name=f"data/sub-{k:02}.nii.gz")
    nano = write_yaml(tmp_path / "nano.yaml", {**NANO, "stage1_epochs": 2, "stage2_epochs": 2})
    out = tmp_path / "eval"
    result = monai_bundle(
        *("run", "training", "--config_file", stacked("configs/train.yaml", nano), "--dataset_dir", tmp_path / "data"),
        *("--output_dir", out, "--tracking", "configs/mlflow.yaml", "--stage2_learning_rate", "0.0005"),
    )
    assert result.returncode == 0, result.stderr[-3000:]
    client = mlflow.MlflowClient(f"sqlite:///{out}/mlruns.db")
    (experiment,) = (e for e in client.search_experiments() if e.name == "drift")
    runs = {logged.info.run_name: logged for logged in client.search_runs(experiment.experiment_id)}
    assert set(runs) == {str(out / "stage1"), str(out / "stage2")}
    steps = NANO["patches_per_epoch"] // NANO["stage1_batch_size"]
    for stage in ("stage1", "stage2"):
        logged = runs[str(out / stage)]
        assert logged.info.status == "FINISHED"
        rate = {"stage1": "0.001", "stage2": "0.0005"}[stage]
        for name, value in (("patch_size", "32"), ("max_epochs", "2"), (f"{stage}_learning_rate", rate)):
            assert logged.data.params[name] == value
        curves = {name: client.get_metric_history(logged.info.run_id, name) for name in ("loss", "lr_group_0", "psnr")}
        assert [point.step for point in curves["loss"]] == list(range(1, 2 * steps + 1))
        assert [point.step for point in curves["psnr"]] == [1, 2]
        assert all(np.isfinite(point.value) for curve in curves.values() for point in curve)


@pytest.mark.slow
def test_a_part_that_diverges_is_logged_so_exports_nothing_and_keeps_its_last_finite_state(tmp_path, dataset_dir):
    """At a rate that no network stands."""
    diverges = {"stage1_learning_rate": 1e30, "stage1_epochs": 3, "patches_per_epoch": NANO["stage1_batch_size"]}
    nano = write_yaml(tmp_path / "nano.yaml", {**NANO, **diverges})
    out = tmp_path / "eval"
    result = monai_bundle(
        *("run", "--config_file", stacked("configs/train.yaml", nano), "--dataset_dir", dataset_dir),
        *("--output_dir", out, "--tracking", "configs/mlflow.yaml"),
    )
    assert_told_in_one_line(result, "stage1 diverges: step 2, in epoch 2, has the loss")
    assert [path.name for path in out.glob("*.pt")] == ["stage1_checkpoint.pt"]
    checkpoint = load(out / "stage1_checkpoint.pt")
    assert checkpoint["trainer"]["iteration"] == 1
    assert all(value.isfinite().all() for name in ("network", "average") for value in checkpoint[name].values())
    client = mlflow.MlflowClient(f"sqlite:///{out}/mlruns.db")
    (experiment,) = (e for e in client.search_experiments() if e.name == "drift")
    assert [run.info.status for run in client.search_runs(experiment.experiment_id)] == ["FAILED"]
