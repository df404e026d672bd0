"""Processor time of the exported networks beside the eager one, on one CPU thread: the table of docs/hosts.md.

python -m benchmarks.export model.ts model.onnx [--planes 4] [--size 160] [--rounds 5]

The files are made as docs/hosts.md says. Rounds take turns, so that other load slows all three alike.
"""

import statistics
import time

import onnxruntime
import torch

from benchmarks import CKPT_PATH, parser_of, shipped_network
from scripts.method.schedule import euler_times

LENGTHS = torch.tensor([[5.0, 1.0, 5.0, 1.0, 0.02]])  # mm; noise


def runners(options):
    """Runners by name, which take the same image, lengths, times and rows."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(options.onnx, settings, providers=["CPUExecutionProvider"])

    def onnx(image, lengths, times, rows):  # the times are its own
        values = {"image": image.numpy(), "lengths": lengths.numpy(), "rows": rows.numpy()}
        return torch.from_numpy(session.run(None, values)[0])

    return {
        "eager": shipped_network(options.ckpt_path),
        "TorchScript": torch.jit.load(options.torchscript).eval(),
        "ONNX Runtime": onnx,
    }


@torch.no_grad()
def main():
    """Prints the table: median processor seconds, ratio to eager of the same round, largest difference from eager."""
    parser = parser_of(__doc__)
    parser.add_argument("torchscript")
    parser.add_argument("onnx")
    parser.add_argument("--ckpt_path", default=CKPT_PATH)
    parser.add_argument("--planes", type=int, default=4)
    parser.add_argument("--size", type=int, default=160, help="pixels, and rows of the result")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    slices = options.size // 5
    networks = runners(options)
    image = 2 * torch.rand(options.planes, networks["eager"].apn.planes, slices, options.size) - 1
    rows = (torch.arange(5 * slices)[None] + 0.5) / 5 - 0.5
    inputs = (image, LENGTHS, euler_times(4), rows)
    for _ in range(2):  # TorchScript optimises in its first two calls
        results = {name: network(*inputs) for name, network in networks.items()}
    seconds = {name: [] for name in networks}
    for _ in range(options.rounds):
        for name, network in networks.items():
            start = time.process_time()
            network(*inputs)
            seconds[name].append(time.process_time() - start)
    print("| network | s | times eager's | largest difference |\n| --- | --- | --- | --- |")
    for name in networks:
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds["eager"]))
        difference = (results[name] - results["eager"]).abs().max()
        print(f"| {name} | {statistics.median(seconds[name]):.2f} | {ratio:.2f} | {difference:.0e} |")


if __name__ == "__main__":
    main()
