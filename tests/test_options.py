"""The door: what was typed is what is done, or it is refused before anything is evaluated or written."""

import re
import shlex
import sys

import pytest
from monai.bundle import ConfigParser

from bundle.pack import twin
from scripts.command_line import check_names, check_options
from scripts.errors import InputError
from scripts.options import GRANTED, MEANINGS, OPTIONS, PATTERNS, Option, as_arguments, sent
from tests.processes import ROOT

PROGRAM = "/anywhere/site-packages/monai/bundle/__main__.py"
CONFIG = ("--config_file", str(ROOT / "configs" / "inference.yaml"))
EVALUATE = ("--config_file", f"['{ROOT}/configs/inference.yaml', '{ROOT}/configs/evaluate.yaml']")
ERROR_MAP = ("--config_file", f"['{ROOT}/configs/train.yaml', '{ROOT}/configs/error_map.yaml']")
TRAIN = ("--config_file", f"['{ROOT}/configs/train.yaml', '{ROOT}/configs/models/small.yaml']")


def check(*typed, config=CONFIG):
    check_options([*config, *typed])


def refusal(*typed, config=CONFIG):
    with pytest.raises(InputError) as caught:
        check(*typed, config=config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_folder_of_a_config_is_searched_for_modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.yaml").write_text("both_planes: false")
    check(config=("--config_file", f"['{ROOT}/configs/inference.yaml', '{tmp_path}/mine.yaml']"))
    assert str(tmp_path) in sys.path


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("--slice_thicknes", "3"), "Did you mean --slice_thickness?"),
        (("-reprot",), "Did you mean --report?"),
        (("--infere#n_max", "5"), "Did you mean --inferer?"),
        (("--input", "a.nii", "--outputdir", "out"), "Did you mean --output_dir?"),
        (("--zzzz", "1"), "--zzzz is no option."),
        (("--inferer#n_mx", "5"), "--inferer#n_mx is no option: "),
        (("--run::1::otput", "5"), "--run::1::otput is no option: "),
    ],
)
def test_what_is_no_option_is_refused_with_the_nearest_one(typed, told):
    assert told in refusal(*typed)


@pytest.mark.parametrize(
    ("name", "value"), [("noise", "0"), ("guide", "auto"), ("slice_thickness", "4"), ("check", "true")]
)
def test_an_option_to_which_nothing_of_the_run_refers_is_refused(name, value):
    assert f"--{name}: nothing in `run` of this config refers to it." in refusal(f"--{name}", value, config=EVALUATE)
    check(f"--{name}", value)


def test_an_evaluation_takes_the_options_that_its_networks_take():
    check(
        "--dataset_dir",
        "DIR",
        "--consistency",
        "measure",
        "--both_planes",
        "false",
        "--error_map",
        "true",
        config=EVALUATE,
    )


@pytest.mark.parametrize("name", ["slice_thicknes", "infererr", "both_plane"])
def test_a_workflow_and_a_stacked_file_misspell_nothing_in_silence(name, tmp_path):
    (tmp_path / "mine.yaml").write_text(f"{name}: 3")
    config = ConfigParser()
    config.read_config([str(ROOT / "configs" / "inference.yaml"), str(tmp_path / "mine.yaml")])
    with pytest.raises(InputError, match=f"{name} is no name of this config"):
        check_names(config)


def test_a_name_of_ones_own_or_of_another_config_is_taken():
    config = ConfigParser()
    config.read_config(CONFIG[1])
    mine = {"_target_": "mine.Sharpener", "share": "@my_share"}
    config.update({"profiles": ["point"], "my_share": 0.4, "my_sharpener": mine})
    check_names(config)


def test_the_bundles_root_is_set_beside_a_twin_whose_root_is_code(tmp_path):
    place = tmp_path / "inference.json"
    place.write_bytes(twin((ROOT / "configs" / "inference.yaml").read_bytes()))
    check("--bundle_root", str(ROOT), config=("--config_file", str(place)))


@pytest.mark.parametrize(
    ("typed", "config", "meant"),
    [
        (("--output", "x"), CONFIG, "Did you mean --output_dir?"),
        (("--card=model.json",), CONFIG, "Did you mean --ckpt_path?"),
        (("--run", "5"), CONFIG, "--run::PART VALUE"),
        (("--network", "large"), TRAIN, "--network::PART VALUE"),
    ],
)
def test_a_component_is_no_option(typed, config, meant):
    message = refusal(*typed, config=config)
    assert "is no option but a component of the config" in message and meant in message


@pytest.mark.parametrize(
    "place", ["network_def: {_target_: scripts.networks.Drift}", "run: ['$scripts.networks.Drift(3)']"]
)
def test_a_config_that_names_what_is_not_there_is_refused(place, tmp_path):
    (tmp_path / "mine.yaml").write_text(place)
    message = refusal(config=("--config_file", f"['{CONFIG[1]}', '{tmp_path}/mine.yaml']"))
    assert "scripts.networks.Drift cannot be found" in message
    assert "cannot be found" in refusal("--inferer::_target_", "scripts.inference.DriftInferer")


def test_a_package_that_a_config_needs_is_named_with_what_installs_it(tmp_path, monkeypatch):
    """A training where the package's extra is not installed, and that was never imported."""
    monkeypatch.delattr("scripts.train.stage", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "ignite" or name == "scripts.train.stage"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ignite", None)  # as where it is not installed
    told = refusal(config=("--config_file", str(ROOT / "configs" / "train.yaml")))
    assert "ignite, which is not installed: pip install pytorch-ignite tensorboard" in told


@pytest.mark.parametrize(
    "typed",
    [
        ("--slice_thickness", "3", "--input", "scan.nii.gz", "--output_dir", "./2024"),
        ("--inferer::progress", "5", "--preprocessing::transforms::1::keys", "5", "--dataset::x", "5"),
        ("--inferer::n_max", "5", "--inferer#steps=2", "--_meta_::version", "1"),
        ("--input", "['a b.nii', \"c$.nii\"]", "--report", "--device", "$torch.device('cpu')"),
        ("run", "initialize", "--report"),
        ("--report", "true", "--noreport", "--logging_file", "x.conf", "--output-dir", "out"),
        ("--inferer::overlap", "-1", "--input=./$x", "--ckpt_path", "/2024/$a", "--", "--verbose"),
        ("--output", "{'_target_': 'x'}", "--network", "@weights", "--network_def::velocity::norm", "false"),
        ("--bfloat16", "False", "--slice_axis", "None", "--guide", "None", "--profile", "8"),
    ],
)
def test_what_is_known_passes(typed):
    check(*typed)


def test_files_that_are_stacked_and_those_of_tracking_bring_their_names():
    check("stage1", "--size", "'small'", "--train#trainer#max_epochs", "2", config=TRAIN)
    check("--bfloat16", "false", "--target_range", "[0.8, 1.2]", "--size", "small", config=TRAIN)
    tracking = ("--tracking", str(ROOT / "configs" / "mlflow.yaml"), "--experiment_name", "x")
    check("stage1", *tracking, config=TRAIN)
    assert "experiment_name" in refusal("stage1", "--experiment_name", "x", config=TRAIN)
    assert "Did you mean stage1?" in refusal("stage_1", config=TRAIN)


def test_a_config_without_the_file_on_which_it_stands_is_told_that_file():
    told = refusal(config=("--config_file", str(ROOT / "configs" / "evaluate.yaml")))
    assert told.startswith("both_planes, ckpt_path,") and "A file is missing under it" in told
    assert "['configs/inference.yaml','configs/evaluate.yaml']" in told


def test_options_of_a_file_count_as_typed(tmp_path):
    path = tmp_path / "options.yaml"
    path.write_text(f"config_file: {CONFIG[1]}\nslice_thicknes: 3\n")
    assert "--slice_thickness" in refusal("--args_file", str(path), config=())
    path.write_text(f"config_file: {CONFIG[1]}\nslice_thickness: 3\n")
    check("--args_file", str(path), config=())


@pytest.mark.parametrize(
    ("name", "text", "config"),
    [
        ("input", "$print(1)", CONFIG),
        ("label_dir", "@device", TRAIN),
        ("error_start", "%scan.nii.gz", ERROR_MAP),
        ("segmenter", "$print(1)", EVALUATE),
    ],
)
def test_a_path_that_would_be_evaluated_is_refused_with_the_remedy(name, text, config):
    assert f"Write it as ./{text}." in refusal(f"--{name}", text, config=config)
    assert f"--{name} {text} begins with {text[0]}" in refusal(f"--{name}", f"['a.nii', '{text}']", config=config)
    check(f"--{name}", f"./{text}", config=config)


@pytest.mark.parametrize(
    ("name", "text"),
    [("profile", "$print(1)"), ("slice_thickness", "@device"), ("deblocked", "%x"), ("profile", "['a', '$print(1)']")],
)
def test_a_text_that_would_be_evaluated_is_refused(name, text):
    assert "which MONAI would evaluate" in refusal(f"--{name}", text)


@pytest.mark.parametrize("text", ["2024_01_15", "True", "[2024_01_15, 'b']"])
def test_a_path_that_python_reads_as_something_else_is_refused_with_the_remedy(text):
    message = refusal("--input", text)
    assert "--input is read as " in message and "Write it as ./NAME." in message
    check("--input", f"./{text}")
    assert "is read as ('a', 'b')" in refusal("--output_dir", "a,b")


@pytest.mark.parametrize("text", ["*T2w*", "['*a*', 'b']", "01", "10,11"])
def test_patterns_and_labels_pass(text):
    check(*(word for name in PATTERNS for word in (f"--{name}", text)))


@pytest.mark.parametrize(("text", "remedy"), [("1e3", "['NAME']"), ("$*", "[$]*"), ("@a", "[@]a"), ("", "is empty")])
def test_patterns_that_would_be_read_as_something_else_are_refused_with_the_remedy(text, remedy):
    assert remedy in refusal("--include", text)


@pytest.mark.parametrize("typed", [("--input=",), ("--input",), ("--output_dir", ""), ("--input", "['']")])
def test_an_empty_path_is_refused(typed):
    message = refusal(*typed)
    assert "expected a path" in message and ("is empty" in message or "read as True" in message)


@pytest.mark.parametrize(
    "argv", [["pytest", "--x"], [PROGRAM, "verify_metadata", "--x"], ["bundle/pack.py", "run", "--x"]]
)
def test_the_options_of_the_program_itself_are_looked_at_and_those_of_others_are_not(argv, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    check_options()
    monkeypatch.setattr(sys, "argv", [PROGRAM, "run", *CONFIG, "--zzzz", "1"])
    with pytest.raises(InputError, match="--zzzz is no option"):
        check_options()


COMMANDS = [
    command.replace("\\\n", " ")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for command in re.findall(
        r"-m monai\.bundle run((?:\\\n|[^\n`#])*--config_file \S(?:\\\n|[^\n`#])*)", page.read_text()
    )
]


assert len(COMMANDS) > 5


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_commands_pass(command, monkeypatch, tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "mine.yaml").write_text("{}")  # a reader's own
    monkeypatch.chdir(tmp_path)
    check(*shlex.split(command), config=())


NUMBER_OR_AUTO = Option("method", "number", "a number, or auto", value="PERCENT", words=("auto",))


def test_a_host_sends_what_the_table_says_and_nothing_else():
    """Settings of one scan, as texts or as JSON has them; no file of the server, and no text that is code."""
    given = {"slice_thickness": "3", "slice_axis": 2, "isotropic": "true", "motion": "", "image": "a"}
    assert sent(given, ["image"]) == {"slice_thickness": 3.0, "slice_axis": 2, "isotropic": True}
    for name, value in {
        "thickness": 3,
        "ckpt_path": "a.pt",
        "config": "a.yaml",
        "report": True,
        "error_map": True,
    }.items():
        with pytest.raises(InputError, match=f"{name} is no option: expected .*slice_thickness"):
            sent({name: value}, ["image"])
    for name, value in {"slice_axis": 3, "slice_thickness": "$1", "isotropic": 1, "missing_slices": "@a"}.items():
        with pytest.raises(InputError, match=f"{name} is .* expected"):
            sent({name: value}, [])


def test_a_number_may_have_words_beside_it():
    assert [NUMBER_OR_AUTO.read("noise", one) for one in ("auto", "2.5", 0)] == ["auto", 2.5, 0.0]
    with pytest.raises(InputError, match="noise is '@a': expected a number or auto, or nothing"):
        NUMBER_OR_AUTO.read("noise", "@a")


def test_whoever_calls_a_function_reads_names_of_arguments():
    told = "Set --slice_thickness, or --inferer::roi_size 64 (--guide)."
    assert as_arguments(told) == "Set slice_thickness, or --inferer::roi_size 64 (guide)."


def test_words_of_other_programs_are_answered_by_what_to_do():
    assert "CUDA_VISIBLE_DEVICES" in refusal("--gpu", "1") and "OMP_NUM_THREADS" in refusal("--n_procs", "2")
    assert not {*MEANINGS, *GRANTED} & {*OPTIONS}
