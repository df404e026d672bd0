"""The paper's experiments on two small files with tiny networks: what is made once, refused, written."""

import json
import shutil
import sys
from copy import deepcopy

import nibabel as nib
import numpy as np
import pytest
import torch
import yaml

from scripts.paper.experiments import fill
from tests.config_files import CONFIGS, parser, raw
from tests.nano import NETWORK, random_weights

EXPERIMENTS = raw("paper/reproduce.yaml")["experiments"]
NANO = {**NETWORK, "num_workers": 0, "stage1_batch_size": 2, "stage2_batch_size": 2, "bfloat16": False}
PAIR = {  # two variants on one stage 1
    "section": "none",
    "about": "a pair",
    "variants": {"with": {}, "without": {"stage2": {"ceta_weight": 0.0}}},
    "evaluation": {"thicknesses": [4.0], "slab": 4},
    "table": {"columns": ["psnr", "lpips"], "against": "without"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, phantom):
    """Two sharp files, small networks and weights of theirs."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "data").mkdir()
    for k in range(2):
        volume = np.ascontiguousarray((phantom, phantom[::-1])[k][:32, :28, :24])
        nib.save(nib.Nifti1Image(volume, np.eye(4)), folder / "data" / f"sub-{k}_T1w.nii.gz")
    (folder / "nano.yaml").write_text(yaml.safe_dump(NANO))
    random_weights(folder / "weights.pt")
    return folder


def run(place, experiment, **given):
    """`configs/paper/reproduce.yaml`, as `monai.bundle run` does it."""
    own = {"dataset_dir": str(place / "data"), "output_dir": str(place / "out"), "files": [str(place / "nano.yaml")]}
    own |= {"ckpt_path": str(place / "weights.pt"), "experiment": experiment, "budget": 4, "stage1_length": 1}
    parser("paper/reproduce.yaml", **own | {"training::patch_size": 32} | given).get_parsed_content("run")


def times(folder):
    """Of each file's last change."""
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def pair(place):
    """`PAIR`, done."""
    run(place, "pair", experiments={"pair": PAIR})
    return place / "out"


def test_variants_share_their_stage_1_and_the_table_holds_their_rows(pair):
    stages = sorted(path.name.split("-")[0] for path in (pair / "trainings").iterdir() if path.is_dir())
    assert stages == ["stage1", "stage2", "stage2"]
    (apn,) = (torch.load(path, weights_only=True) for path in pair.glob("trainings/*/stage1.pt"))
    first, second = (torch.load(path, weights_only=True) for path in pair.glob("trainings/*/model.pt"))
    assert all(torch.equal(apn[name], both[name]) for both in (first, second) for name in apn if name.startswith("apn"))
    assert not all(torch.equal(first[name], second[name]) for name in first)
    content = json.loads((pair / "pair.json").read_text())
    told, (one, other) = {row["label"]: row for row in content["table"]}, content["rows"]
    assert (one["label"], one["slice_thickness"]) == ("with", 4.0)
    assert told["with"]["psnr mean"] == pytest.approx(one["psnr"])
    assert told["with"]["psnr difference"] == pytest.approx(one["psnr"] - other["psnr"])
    assert "lpips mean" not in told["with"], "no such column, no such number"
    assert "| with | " in (pair / "pair.md").read_text()


def test_what_is_complete_is_left_alone_and_what_is_half_done_is_done_again(pair, place, log):
    made = {name: at for name, at in times(pair).items() if name.parts[0] in ("trainings", "evaluations")}
    (gone, *_) = sorted((pair / "evaluations").glob("[!.]*"))
    gone.rename(gone.with_name(f".{gone.name}"))  # killed before its end
    run(place, "pair", experiments={"pair": PAIR})
    again = times(pair)
    changed = {name.parts[:2] for name, at in made.items() if again[name] != at and not name.name.endswith(".lock")}
    assert changed == {("evaluations", gone.name)} and not gone.with_name(f".{gone.name}").exists()
    assert "nothing to train" in log.text


def test_stage_1_alone_and_a_flow_build_on_stages_that_are_there_and_say_what_they_cost(pair, place):
    made = {path.name for path in pair.glob("trainings/*")}
    alone = {"stage2": None, "evaluation": {"inferer::steps": 0}}
    variants = {"alone": alone, "flow": {"steps": [2]}}
    spec = {**PAIR, "variants": variants, "table": {"columns": ["psnr", "minutes", "parameters", "multiply_adds"]}}
    run(place, "more", experiments={"more": spec})
    new = [path.name.split("-")[0] for path in pair.glob("trainings/*") if path.name not in made]
    assert new == [], "they are the pair's"
    content = json.loads((pair / "more.json").read_text())
    assert {row["label"]: row["steps"] for row in content["rows"]} == {"alone": 0, "N = 2": 2, "flow": 11}
    told = {row["label"]: row for row in content["table"]}
    network = parser("train.yaml", **NANO).get_parsed_content("network_def")
    sizes = [sum(p.numel() for p in part.parameters()) / 1e6 for part in (network.apn, network)]
    assert [told[name]["parameters mean"] for name in ("alone", "flow")] == pytest.approx(sizes)
    for cost in ("minutes mean", "multiply_adds mean"):
        assert told["flow"][cost] > told["alone"][cost] > 0


def test_without_a_name_the_experiments_are_listed_and_nothing_is_made(tmp_path, place, log):
    run(place, None, dataset_dir=None, output_dir=str(tmp_path / "out"))
    for name, spec in EXPERIMENTS.items():
        assert f"| {name} | {spec['section']} |" in log.text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("experiment", "given", "message"),
    [
        ("componets", {}, "Did you mean components"),
        ("steps", {"dataset_dir": None}, "--dataset_dir"),
        ("segmentation", {}, "--segmenter"),
        ("steps", {"size": "huge"}, "--size"),
        ("components", {"budget": 0}, "--budget"),
        ("components", {"seeds": "three"}, "--seeds"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_written(tmp_path, place, refusal, experiment, given, message):
    assert message in refusal(run, place, experiment, **{"output_dir": str(tmp_path / "out"), **given})
    assert not (tmp_path / "out").exists()


def test_every_id_of_a_variant_is_one_of_the_config_that_it_changes():
    """MONAI makes a key of a misspelt one."""
    files = {"training": "train.yaml", "stage1": "train.yaml", "stage2": "train.yaml", "network": "train.yaml"}
    files["evaluation"] = "evaluate.yaml"
    content = raw("paper/reproduce.yaml")
    parts = [(name, content[name]) for name in ("training", "evaluation")]
    for spec in content["experiments"].values():
        parts.append(("evaluation", spec.get("evaluation", {})))
        for variant in spec.get("variants", {}).values():
            parts += [(name, ids or {}) for name, ids in variant.items() if name in files]
            extra = {*files, "files", "length", "stage1_length", "value", "shipped", "baseline", "methods", "seeds"}
            extra |= {"size", "sees", "steps"}
            assert set(variant) <= extra
    assert len(parts) > 5
    for name, ids in parts:
        config = parser(files[name], "models/tiny.yaml")
        replaced = {key.removesuffix("::_target_") for key in ids if key.endswith("::_target_")}
        for key in ids:  # or an argument of a component that takes another's place
            assert key in config or key.rpartition("::")[0] in replaced, f"{files[name]} has no {key}"


def test_results_go_into_their_places_on_a_page(tmp_path):
    out, page = tmp_path / "out", tmp_path / "page.md"
    out.mkdir()
    (out / "steps.md").write_text("# steps: many\n\n- size: tiny\n\n| a |\n| --- |\n| 1 |\n")
    (out / "steps.png").write_bytes(b"picture")
    page.write_text("before\n\n<!-- steps -->\nold\n<!-- end -->\n\n<!-- pad -->\nkept\n<!-- end -->\nafter\n")
    for _ in range(2):  # again, and nothing grows
        fill(page, out)
        text = page.read_text()
        assert text.count("| 1 |") == 1 and "old" not in text and "- size: tiny" in text
        assert "<!-- pad -->\nkept\n<!-- end -->\nafter\n" in text and text.startswith("before\n")
        assert "![steps](page/steps.png)" in text and (tmp_path / "page" / "steps.png").read_bytes() == b"picture"


# what others do, too, with other variants: it would take a quarter of an hour
ALIKE = {"ceta_gap", "ceta_time", "ceta_why", "alpha", "stages"}
ALIKE |= {f"baselines_{what}" for what in ("steps", "tpdm", "voxels", "long", "off", "shipped")}
FEWER = {  # experiment -> variants, one of a kind, and what makes them short
    "ceta_weight": {"weight 0": {}, "weight 1": {}},
    "baselines": {"DRIFT, stage 1": {"stage1_length": 0.5}, "DRIFT": {"stage1_length": 0.5}, "LTE": {"length": 0.5}},
}


@pytest.mark.slow
def test_experiments_run_on_two_files(place, tmp_path):
    """Segmentation by a command that calls everything above the mean one structure; thick scans as a user's own."""
    scan = nib.load(place / "data" / "sub-1_T1w.nii.gz")
    nib.save(nib.Nifti1Image(scan.get_fdata()[..., ::4], np.diag([1.0, 1, 4, 1])), tmp_path / "thick.nii.gz")
    sharp = [str(place / "data" / f"sub-{k}_T1w.nii.gz") for k in range(2)]
    lists = {"training": sharp[:1], "validation": sharp[1:], "thick": ["thick.nii.gz"]}
    (tmp_path / "list.json").write_text(
        json.dumps({name: [{"image": p} for p in paths] for name, paths in lists.items()})
    )
    code = "import sys, nibabel as n; i = n.load(sys.argv[1]); d = i.get_fdata(); "
    code += "n.save(n.Nifti1Image((d > d.mean()).astype('int16'), i.affine), sys.argv[2])"
    segmenter = f'{sys.executable} -c "{code}" {{image}} {{labels}}'
    small = {"network_def::apn::channels": [4, 8]}  # of any stage 1
    small |= {"network_def::velocity::channels": [4, 8], "network_def::velocity::width": 8}
    settings = {name: value for name, value in NANO.items() if name not in NETWORK}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(small | settings))
    shutil.copytree(CONFIGS, tmp_path / "configs")
    for size in ("small", "base", "large"):  # each would start a process
        (tmp_path / "configs" / "models" / f"{size}.yaml").unlink()
    chosen = {name: spec for name, spec in deepcopy(EXPERIMENTS).items() if name not in ALIKE}
    for name, variants in FEWER.items():
        chosen[name]["variants"] = {one: chosen[name]["variants"][one] | short for one, short in variants.items()}
    chosen["baselines"]["figure"]["variants"] = chosen["baselines"]["variants"]
    for spec in chosen.values():
        spec.get("sweep", {}).get("evaluation", {}).update({"thicknesses": [1.5, 3.0, 6.0]})
    given = {"dataset_dir": str(tmp_path / "list.json"), "output_dir": str(tmp_path / "out"), "segmenter": segmenter}
    given |= {"files": [str(tmp_path / "small.yaml")], "bundle_root": str(tmp_path), "experiments": chosen}
    run(place, "all", seeds=1, budget=16, **given, **{"evaluation::thicknesses": [3.0, 5.0]})
    for name in chosen:
        assert json.loads((tmp_path / "out" / f"{name}.json").read_text())["table"], name
        assert (tmp_path / "out" / f"{name}.md").is_file() and (tmp_path / "out" / f"{name}.csv").is_file()
        assert (tmp_path / "out" / f"{name}.svg").is_file() == ("figure" in EXPERIMENTS[name])
