"""What one sees while scans are rebuilt: bars in a terminal, a few plain lines elsewhere."""

import os
import pty
import re
import termios
import threading

import pytest

from tests.cohort_files import add, texture
from tests.processes import DRIFT_MRI, ROOT, TIMEOUT, start


@pytest.mark.slow
def test_a_terminal_shows_a_bar_for_the_cohort_and_one_for_the_scan_and_whole_lines(tmp_path):
    for seed, name in enumerate(("first.nii.gz", "second.nii.gz")):
        add(tmp_path / "scans" / name, voxels=texture((12, 12, 5), seed))
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (50, 200))
    command = (*DRIFT_MRI, "scans", "-o", "out")
    process = start(*command, cwd=tmp_path, streams=[os.ttyname(terminal)] * 2, PYTHONPATH=ROOT)
    end = threading.Thread(target=lambda: (process.join(TIMEOUT), os.close(terminal)))
    end.start()
    said = b""
    while True:
        try:
            said += os.read(screen, 65536)
        except OSError:  # closed at the other end
            break
    os.close(screen)
    end.join()
    assert process.exitcode == 0
    text = said.decode()
    assert re.search(r"scans: +50%.*1/2 \[.*<.*second\.nii\.gz\]", text), "time left, and the name of the scan"
    assert all(f"{part}:" in text for part in ("planes", "windows", "reconciling"))
    lines = [re.sub(r"\x1b\[\w", "", part) for part in re.split(r"[\r\n]+", text)]
    told = [line for line in lines if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert sum("slices along axis" in line and line.endswith("mm") for line in told) == 2
    assert sum(" rebuilt, " in line and line.endswith("_sr.nii.gz") for line in told) == 2
    assert not [line for line in told if "it/s" in line or "windows:" in line or "planes:" in line or "scans:" in line]
