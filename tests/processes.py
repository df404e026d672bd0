"""Commands as people type them, each in a process of its own.

Python and MONAI take 6 s of a core to start. Where the start is not what is tested, a process is forked from a server
that has imported the libraries and nothing of this project: a command finds its code where a shell's would.
"""

import io
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMEOUT = 240  # s, on a busy machine
DRIFT_MRI = ("-c", "from drift_mri.command import main; main()")
BUNDLE = ("-m", "monai.bundle")
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["monai.bundle", "monai.engines", "fire", "jinja2", "pydicom.sr.codedict"])


def environment(**more):
    """The repository is found by MONAI alone, not by a path of ours."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    more = {name: str(value) for name, value in more.items()}
    return {**kept, "CUDA_VISIBLE_DEVICES": "", **more}


def run(*words, cwd=ROOT, **more):
    """`python *words` in a folder, to its end."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("out", "err")]
        for path in streams:
            path.touch()
        process = start(*words, cwd=cwd, streams=streams, **more)
        process.join(TIMEOUT)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(words, TIMEOUT, *(path.read_bytes() for path in streams))
        return subprocess.CompletedProcess(words, process.exitcode, *(path.read_text() for path in streams))


def monai_bundle(*words, cwd=ROOT):
    """`python -m monai.bundle *words`."""
    return run(*BUNDLE, *words, cwd=cwd)


def fresh(*words, cwd=ROOT, **more):
    """The same as `run`, from the very start of the interpreter."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def start(*words, cwd, streams, **more):
    """`python *words`, which runs on; it says what it says to two files, pipes or terminals that exist."""
    arguments = ([str(word) for word in words], str(cwd), environment(**more), [str(path) for path in streams])
    process = SERVER.Process(target=_child, args=arguments)
    process.start()
    return process


def _child(words, folder, variables, streams):
    """What the interpreter does with its arguments, on the same paths, streams, exit codes and signals."""
    for number, path in zip((1, 2), streams):
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
        os.dup2(opened, number)
        os.close(opened)
    encoding = variables.get("PYTHONIOENCODING")
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        stream = io.FileIO(number, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(stream, encoding, errors, write_through=True))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    own = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    libraries = [path for path in sys.path if "site-packages" in path or not Path(path).is_relative_to(ROOT)]
    sys.path[:] = [folder, *own, *filter(None, libraries)]
    try:
        if words[0] == "-m":
            sys.argv[:] = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv[:] = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv[:] = words
            sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
    except Exception:  # noqa: BLE001  # any fault of a command
        sys.excepthook(*sys.exc_info())
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        raise SystemExit(130) from None


def stacked(*files):
    return "[" + ",".join(f"'{file}'" for file in files) + "]"


def assert_told_in_one_line(result, *words):
    assert result.returncode == 1
    lines = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr + result.stdout
    for word in words:
        assert word in lines[0]
