"""SwinIR: restoration by shifted-window attention, image to image on one grid (Liang et al., ICCV Workshops 2021)."""

from collections.abc import Sequence

from monai.networks.nets.swin_unetr import BasicLayer
from torch import Tensor, nn
from torch.nn.functional import pad


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of `(B, C, H, W)`."""

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class SwinIR(nn.Module):
    """Shallow features, groups of Swin blocks with a convolution each around a skip, and the input added at the end.

    Sec. 3 of the publication, without upsampling: degraded and sharp plane share the fine grid.

    Args:
        channels: of the features; the compared one has 96.
        depths: Swin blocks of each group; every second block shifts its windows by half. Compared: (6, 6, 6, 6).
        heads: of the attention; compared: 6.
        window: edge of the attention's windows, in pixels.
        mlp_ratio: hidden width of the blocks' perceptrons over `channels`; compared: 4.
    """

    def __init__(self, channels: int, depths: Sequence[int], heads: int, window: int = 8, mlp_ratio: float = 4.0):
        super().__init__()
        self.window = window
        self.conv_in = nn.Conv2d(1, channels, 3, padding=1)
        self.norm_in = ChannelNorm(channels)
        self.groups = nn.ModuleList(
            BasicLayer(channels, depth, heads, (window, window), [0.0] * depth, mlp_ratio, qkv_bias=True)
            for depth in depths
        )
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in depths)
        self.norm_out = ChannelNorm(channels)
        self.conv_body = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv_out = nn.Conv2d(channels, 1, 3, padding=1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> Tensor:
        """Args: `image`, `(B, 1, H, W)` in [-1, 1]. Returns `(B, 1, H, W)`."""
        height, width = image.shape[2:]
        # windows shrink to shorter sides; others are filled up by reflection, as MONAI would by zeros
        bottom, right = (-n % self.window if n > self.window else 0 for n in (height, width))
        shallow = self.conv_in(pad(image, (0, right, 0, bottom), mode="reflect"))
        h = self.norm_in(shallow)
        for group, conv in zip(self.groups, self.convs):
            h = h + conv(group(h))
        change = self.conv_out(shallow + self.conv_body(self.norm_out(h)))
        return image + change[:, :, :height, :width]
