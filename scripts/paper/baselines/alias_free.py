"""Layers whose nonlinearities add no frequency that the grid cannot hold, and convolutions that a style modulates.

Karras et al., NeurIPS 2021: the nonlinearity acts on a signal of twice the rate, between two low-pass filters. Left
out: the canvas' margins, the wider transition bands of the first layers, and the moving average of their input's size.
"""

import torch
from scipy.signal import firwin
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d, leaky_relu

TAPS = 6  # of a low-pass filter, for each sample of its coarser side
SLOPE = 0.2  # of the leaky ReLU
GAIN = 2**0.5  # which keeps the variance through it


def low_pass(factor: int) -> Tensor:
    """Kaiser-windowed filter between two rates, one `factor` times the other: passes half the lower rate, sums to 1."""
    transition = (2**0.5 - 1) * 2 / factor  # of the lower rate's octave, in units of the higher Nyquist frequency
    return torch.from_numpy(firwin(TAPS * factor, 1 / factor, width=transition)).float()


class AliasFreeActivation(nn.Module):
    """Leaky ReLU at twice the higher of two rates; from one grid to a grid of another rate, both cell-centred.

    Args:
        up: factor from the input's rate to the nonlinearity's: 2, or 4 to a grid twice as fine.
        down: from there to the output's: 2, or 4 to a grid twice as coarse.
    """

    def __init__(self, up: int, down: int):
        super().__init__()
        self.up, self.down = up, down
        self.rising: Tensor
        self.falling: Tensor
        self.register_buffer("rising", up * low_pass(up), persistent=False)
        self.register_buffer("falling", low_pass(down), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` to `(B, C, H up / down, W up / down)`."""
        h = x.flatten(0, 1)[:, None]
        edge = (TAPS - 1) * self.up // 2
        for kernel, stride, cut in (
            (self.rising[:, None], (self.up, 1), (edge, 0)),
            (self.rising[None], (1, self.up), (0, edge)),
        ):
            h = conv_transpose2d(h, kernel[None, None], stride=stride, padding=cut)
        h = leaky_relu(h, SLOPE) * GAIN
        edge = (TAPS - 1) * self.down // 2
        for kernel, stride, fill in (
            (self.falling[:, None], (self.down, 1), (edge, 0)),
            (self.falling[None], (1, self.down), (0, edge)),
        ):
            h = conv2d(h, kernel[None, None], stride=stride, padding=fill)
        return h[:, 0].unflatten(0, x.shape[:2])


class Dense(nn.Module):
    """A linear layer whose weights are scaled when used, so that one learning rate suits all.

    Args:
        inputs, outputs: features.
        rate: factor on the learning rate.
        bias: initial value.
    """

    def __init__(self, inputs: int, outputs: int, rate: float = 1.0, bias: float = 0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / rate)
        self.bias = nn.Parameter(torch.full((outputs,), bias / rate))
        self.gain, self.rate = rate / inputs**0.5, rate

    def forward(self, x: Tensor) -> Tensor:
        """`(B, inputs)` to `(B, outputs)`."""
        return x @ (self.gain * self.weight).T + self.rate * self.bias


class Convolution(nn.Module):
    """A convolution whose weights are scaled when used; a style scales its input channels.

    Args:
        inputs, outputs: channels.
        size: of the kernel.
        style: length of the style; 0 for none.
        demodulated: brings the styled weights back to unit norm.
    """

    def __init__(self, inputs: int, outputs: int, size: int, style: int = 0, demodulated: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.scales = Dense(style, inputs, bias=1.0) if style else None
        self.demodulated = demodulated
        self.fill = size // 2

    def forward(self, x: Tensor, style: Tensor | None = None) -> Tensor:
        """`(B, inputs, H, W)` to `(B, outputs, H, W)`; `style` is `(B, style)`."""
        weight = self.weight / self.weight[0].numel() ** 0.5
        if self.scales is None:
            return conv2d(x, weight, self.bias, padding=self.fill)
        styled = weight * self.scales(style)[:, None, :, None, None]  # (B, outputs, inputs, size, size)
        if self.demodulated:
            styled = styled * (styled.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        h = conv2d(x.flatten(0, 1)[None], styled.flatten(0, 1), padding=self.fill, groups=len(x))
        return h[0].unflatten(0, (len(x), -1)) + self.bias[:, None, None]


class Layer(nn.Module):
    """A convolution, styled or not, and an alias-free activation."""

    def __init__(self, inputs: int, outputs: int, up: int = 2, down: int = 2, style: int = 0):
        super().__init__()
        self.conv = Convolution(inputs, outputs, 3, style)
        self.act = AliasFreeActivation(up, down)

    def forward(self, x: Tensor, style: Tensor | None = None) -> Tensor:
        """`(B, inputs, H, W)` to `(B, outputs, H up / down, W up / down)`."""
        return self.act(self.conv(x, style))
