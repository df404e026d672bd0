"""MONAI Label app: the bundle over REST. A thick-slice scan in, the isotropic scan on its own grid out."""

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from monai.bundle import ConfigParser
from monailabel.interfaces.app import MONAILabelApp
from monailabel.interfaces.exception import MONAILabelException
from monailabel.interfaces.tasks.infer_v2 import InferTask, InferType
from monailabel.transform.writer import Writer

ENDINGS = (".nii.gz", ".nii", ".nrrd")
HOSTS = (  # names of a request that are MONAI Label's
    "model image guide label device description logging session session_id save_label label_tag result_extension "
    "result_dtype result_compress result_write_to_file"
).split()


class Rebuild(InferTask):
    """Rebuilds one scan as `configs/inference.yaml` of the bundle says, which is importable."""

    def __init__(self, bundle: Path):
        self.bundle = bundle
        from scripts.options import SENT

        config = self._config_with({})
        self.loaded = {name: config.get_parsed_content(name) for name in ("network", "device")}
        # shown by clients; empty: the default
        options = {name: config[name] if one.kind == "switch" else "" for name, one in SENT.items()}
        super().__init__(InferType.OTHERS, None, 3, config["_meta_"]["description"], options)

    def _config_with(self, options: Mapping[str, Any]) -> ConfigParser:
        config = ConfigParser()
        config.read_config(self.bundle / "configs" / "inference.yaml")
        config.read_meta(self.bundle / "configs" / "metadata.json")
        config.update({"bundle_root": str(self.bundle), "inferer::progress": False, **options})
        return config

    def is_valid(self) -> bool:
        """Whether clients may use it: weights that cannot be loaded stop the server's start."""
        return True

    def __call__(self, request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Rebuilds the scan that a request names.

        Args:
            request: `image`, path of a scan or a folder with one DICOM series; `guide`, the same of a scan of another
                contrast of the head; options of a scan; `result_extension`, `.nii.gz` if it is left out.

        Returns:
            Path of a new float32 volume in the scan's units, what was taken for its acquisition (lengths in mm), and
            the record's warnings.
        """
        from scripts.errors import InputError
        from scripts.inputs.scans import scan_named, scans
        from scripts.options import sent
        from scripts.outputs.record import warnings_of

        start = time.perf_counter()
        ending = request.get("result_extension") or ENDINGS[0]
        if ending not in ENDINGS:
            raise InputError(f"result_extension is {ending!r}: expected {', '.join(ENDINGS)}.")
        config = self._config_with({**sent(request, HOSTS), **self.loaded})
        selection, rebuilder = map(config.get_parsed_content, ("selection", "rebuilder"))
        if not request["image"]:
            raise InputError("the studies have no image of that name. GET /datastore/?output=all lists them.")
        found = scans(request["image"], "", selection)
        if len(found) != 1:
            raise InputError(f"{request['image']} holds {len(found)} scans: expected one. Send them one by one.")
        measured, placed = rebuilder.measure(found[0].source), None
        if guide := request.get("guide"):
            placed = rebuilder.place(rebuilder.read_guide(scan_named(guide, "guide").source), measured)
            placed.check(measured)
        rebuilt = rebuilder(measured, placed)
        path, _ = Writer()({"pred": rebuilt.volume, "result_extension": ending, "result_dtype": "float32"})
        said = list(warnings_of(found[0], rebuilt, (found[0].mark, found[0].remark)))
        facts = {**asdict(rebuilt.slices.acquisition), "steps": rebuilt.steps, "sharp": rebuilt.sharp, "warnings": said}
        return path, {**facts, "seconds": round(time.perf_counter() - start, 1)}


class DriftApp(MONAILabelApp):
    """The app: one model, `drift`, of the bundle at `--conf bundle FOLDER`, else of the one that the app lies in."""

    def __init__(self, app_dir: str, studies: str, conf: Mapping[str, str]):
        self.bundle = Path(conf.get("bundle") or Path(__file__).parents[2]).resolve()
        if not (self.bundle / "configs" / "inference.yaml").is_file():
            raise ValueError(f"{self.bundle} has no configs/inference.yaml. Set --conf bundle to the bundle.")
        sys.path.insert(0, str(self.bundle))
        self.sent = tempfile.TemporaryDirectory(prefix="drift-label-")
        tempfile.tempdir = self.sent.name  # the server puts there what clients send, and results
        super().__init__(app_dir, studies, conf, "DRIFT", "Thick-slice brain MRI to isotropic resolution")

    def init_infers(self) -> dict[str, InferTask]:
        """The model."""
        return {"drift": Rebuild(self.bundle)}

    def infer(self, request: Mapping[str, Any], datastore: Any = None) -> dict[str, Any]:
        """Runs the model; a mistake of the user's is answered by status 400 and what to do.

        Args:
            request: its `image`, and its `guide` if it has one, is a name in the studies, or a path within them or of a
                file that was sent. MONAI Label alone would open any file of the server's.
            datastore: of the studies, if not the app's own.
        """
        from scripts.errors import InputError, input_error

        named = {name: str(request[name]) for name in ("image", "guide") if request.get(name)}
        found = {name: self._path(one, datastore or self.datastore()) for name, one in named.items()}
        try:
            if "guide" in found and not found["guide"]:
                raise InputError("the studies have no guide of that name. GET /datastore/?output=all lists them.")
            return super().infer({**request, "image": "", **found}, datastore)
        except Exception as error:
            mistake = error.msg if isinstance(error, MONAILabelException) else input_error(error)
            if mistake is None:
                raise
            raise HTTPException(400, str(mistake)) from error

    def _path(self, name: str, datastore: Any) -> str:
        """Path of a scan that a request names; empty if the studies have none of that name."""
        path = os.path.abspath(os.path.join(self.studies, name))  # a link in the studies may lead out of them
        roots = map(os.path.abspath, (self.studies, self.sent.name))
        within = any(path != root and Path(path).is_relative_to(root) for root in roots)
        return path if within and os.path.exists(path) else str(datastore.get_image_uri(name) or "")
