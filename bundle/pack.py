"""Packs the bundle as the MONAI model zoo lays it out.

python bundle/pack.py OUT [--weights_url URL]

writes OUT/drift_mri_superresolution.zip, byte for byte the same from the same files: what inference, training and
evaluation need. The weights travel with their card, whose hash is checked when they are loaded. Beside each config lies
its twin in JSON, which `monai.bundle.load` and the zoo's checks look for.
"""

import argparse
import json
import re
import sys
import zipfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file

from scripts.errors import InputError, report_input_errors  # noqa: E402
from scripts.files import whole_file  # noqa: E402
from scripts.method.weights import card_path, check_card  # noqa: E402

NAME = "drift_mri_superresolution"
CONTENT = (
    *("LICENSE", "README.md", "pyproject.toml", "docs/README.md", "docs/data_license.txt", "docs/data.json"),
    *("docs/gallery/t1w.png", "docs/method.png"),  # the model card's pictures
    *("configs/metadata.json", "configs/logging.conf", "configs/*.yaml", "configs/models/*.yaml"),
    *("scripts/**/*.py", "scripts/pages/*.html", "scripts/pages/*.js", "drift_mri/*.py", "drift_mri/py.typed"),
)
LEFT_OUT = "scripts/paper/"  # the paper's experiments
# The folder of the config, wherever a workflow of MONAI is started
HERE = (
    "$next((str(one.frame.f_locals['self'].config_root_path.absolute().parent) for one in inspect.stack(0) "
    "if 'config_root_path' in getattr(one.frame.f_locals.get('self'), '__dict__', {})), '.')"
)
WEIGHTS = "models/model.pt"


def twin(config: bytes) -> bytes:
    """A config in JSON. Its bundle is the folder that it lies in, whatever the current one: `load` sets no other."""
    found = yaml.safe_load(config)
    if found.get("bundle_root") == ".":
        found |= {"imports": [*found.get("imports", []), "$import inspect"], "bundle_root": HERE}
    return json.dumps(found, indent=1).encode() + b"\n"


def content(root: Path, weights_url: str | None = None) -> dict[str, bytes]:
    """Files of the package, by path inside it.

    With `weights_url` the weights stay out, and `large_files.yml` has their address and hash for
    `monai.bundle download_large_files`.
    """
    files: dict[str, bytes] = {}
    for pattern in (*CONTENT, WEIGHTS, card_path(WEIGHTS).as_posix()):
        found = [path for path in root.glob(pattern) if path.is_file()]
        found = [path for path in found if not path.relative_to(root).as_posix().startswith(LEFT_OUT)]
        if not found:
            raise InputError(
                f"{root} has no {pattern}: expected a whole copy of the bundle. Get or train what is missing."
            )
        files |= {path.relative_to(root).as_posix(): path.read_bytes() for path in found}
    for name in [name for name in files if re.fullmatch(r"configs/\w+\.yaml", name)]:
        files[name.replace(".yaml", ".json")] = twin(files[name])
    card = check_card(root / WEIGHTS)
    if weights_url is not None:
        del files[WEIGHTS]
        entry = {"path": WEIGHTS, "url": weights_url, "hash_val": card.sha256, "hash_type": "sha256"}
        files["large_files.yml"] = json.dumps({"large_files": [entry]}, indent=2).encode()  # JSON is YAML
    return files


def pack(out: Path, root: Path = ROOT, weights_url: str | None = None) -> Path:
    """Writes the package into a folder, which is made if missing. Returns its path."""
    files = content(root, weights_url)
    package = Path(out) / f"{NAME}.zip"
    with whole_file(package) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{NAME}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, wherever it is packed
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED)
    return package


def main() -> None:
    """The command."""
    report_input_errors()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write the package to")
    parser.add_argument(
        "--weights_url", help="leave the weights out; large_files.yml names this address and their hash"
    )
    options = parser.parse_args()
    print(pack(options.out, weights_url=options.weights_url))


if __name__ == "__main__":
    main()
