"""DRIFT as a MONAI Deploy application: a folder of DICOM in, a derived MR series for each thick 2-D MR series out.

python bundle/deploy/app.py -i DICOM_FOLDER -o OUTPUT_FOLDER
"""

import sys
from pathlib import Path

from holoscan.conditions import BooleanCondition
from monai.bundle import ConfigParser
from monai.deploy.core import AppContext, Application, RuntimeEnv, init_app_context

OWN_BUNDLE = Path(__file__).absolute().parents[2]  # where this file lies in a bundle; in a package -m is set


def bundle_folder(path: Path) -> Path:
    """The bundle at a model path: the folder itself, or the one folder in it, as in a MONAI Application Package."""
    found = [folder for folder in (path, *path.glob("*")) if (folder / "configs" / "inference.yaml").is_file()]
    if len(found) != 1:
        raise SystemExit(
            f"error: {path} holds {len(found)} bundles: expected one. Give -m a folder with configs and models."
        )
    return found[0]


class DriftApplication(Application):
    """A single operator, which takes one series at a time.

    Args:
        context: the paths that the command line or the environment gives.
        bundle: folder with `configs`, `models` and `scripts`, on `sys.path`.

    Attributes:
        failures: the reason, in a sentence or two for each failed series.
    """

    def __init__(self, context: AppContext, bundle: Path):
        self.context, self.bundle = context, bundle
        self.failures: list[str] = []
        super().__init__()

    def compose(self) -> None:
        """Makes the operator of the bundle's parts."""
        from operators import Rebuilding  # here: it imports the bundle's scripts

        from scripts.files import sha256

        config = self.bundle / "configs" / "inference.yaml"
        parser = ConfigParser()
        parser.read_config(str(config))
        parser.read_meta(str(self.bundle / "configs" / "metadata.json"))
        parser["bundle_root"] = str(self.bundle)
        thin, weights, rebuilder = map(parser.get_parsed_content, ("selection::thin", "ckpt_path", "rebuilder"))
        folders = Path(self.context.input_path), Path(self.context.output_path)
        made_with = parser["_meta_"]["version"], sha256([config, weights])
        more = BooleanCondition(self, name="more")
        self.add_operator(Rebuilding(self, more, self.failures, folders, thin, rebuilder, made_with))


def main() -> None:
    """Runs the application on the SDK's arguments and variables; its exit code is 1 if it has failures."""
    context = init_app_context(runtime_env=RuntimeEnv({"model": ("HOLOSCAN_MODEL_PATH", str(OWN_BUNDLE))}))
    bundle = bundle_folder(Path(context.model_path).absolute())
    sys.path.insert(0, str(bundle))
    from scripts.errors import report_input_errors

    report_input_errors()
    application = DriftApplication(context, bundle)
    application.run()
    if application.failures:
        raise SystemExit("\n".join(f"error: {failure}" for failure in application.failures))


if __name__ == "__main__":
    main()
