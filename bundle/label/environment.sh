#!/bin/sh
# Makes the environment that serves the bundle:  sh bundle/label/environment.sh FOLDER
# MONAI Label 0.8.5 demands packages that exclude the bundle's (numpy 1, by way of pydicom-seg) or want a compiler and
# gigabytes (sam2, numpymaxflow, torchvision), for labelling alone. Hence its requirements are installed without those.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python3.11 -m venv "$1"  # MONAI Label imports distutils, which Python 3.12 has no more
"$1/bin/pip" install "$here/../..[decoders]" -r "$here/requirements.txt"
"$1/bin/pip" install --no-deps monailabel==0.8.5
site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo '"""Stands in for pydicom-seg, which needs pydicom 2: MONAI Label imports it for DICOM SEG alone."""' \
  > "$site/pydicom_seg.py"
"$1/bin/python" -c 'import monailabel.app'
