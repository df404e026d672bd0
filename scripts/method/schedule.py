"""The number of Euler steps of a scan: Physics-Aware Difficulty (PAD) and the Adaptive Integration Scheduler (AIS).

Both depend on slice thickness alone (Sec. 3.6). All planes of a volume share one schedule.
"""

from __future__ import annotations

import torch

N_MIN = 0  # Sec. 3.6
N_MAX = 15  # Sec. S7


def pad(slice_thickness: float, target_thickness: float) -> float:
    """Physics-Aware Difficulty: the share of through-plane bandwidth that a thick slice loses (Eq. 13).

    Args:
        slice_thickness: of the measured slices, `T_i`, in mm.
        target_thickness: to be reached, `T_hr`, in mm.

    Returns:
        `1 - T_hr / T_i`, in [0, 1).

    Example:
        >>> pad(5.0, 1.0)
        0.8
    """
    if not 0 < target_thickness <= slice_thickness:
        raise ValueError(
            f"slice thickness {slice_thickness:g} mm and target thickness {target_thickness:g} mm: expected "
            "0 < target <= slice thickness. Give a target no thicker than the slices."
        )
    return 1.0 - target_thickness / slice_thickness


def ais_steps(slice_thickness: float, target_thickness: float, n_max: int = N_MAX) -> int:
    """Number of Euler steps `N = clamp(round(N_max * PAD), N_min, N_max)` (Eq. 14).

    Ties round to even. The product is first rounded to nine decimals, so that the last bit of a division decides
    nothing. Example: 15 * (1 - 0.7 / 4.2) is 12.5 on paper, a tie.

    Args:
        slice_thickness: `T_i` in mm.
        target_thickness: `T_hr` in mm.
        n_max: most steps, 0 or more.

    Example:
        >>> ais_steps(5.0, 1.0), ais_steps(4.2, 0.7), ais_steps(1.0, 1.0)
        (12, 12, 0)
    """
    if n_max < N_MIN:
        raise ValueError(f"n_max is {n_max}: expected {N_MIN} or more.")
    return round(round(n_max * pad(slice_thickness, target_thickness), 9))  # N_MIN to N_max, for PAD is in [0, 1)


def euler_times(steps: int) -> torch.Tensor:
    """Uniform times `0 = t_0 < ... < t_N = 1` of `N` Euler steps (Sec. S4.5).

    Args:
        steps: `N >= 0`. For `N = 0` there is no interval: the only time is 0, and the flow does not move.

    Returns:
        `(N + 1,)` float tensor.

    Example:
        >>> euler_times(4)
        tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    if steps < 0:
        raise ValueError(f"steps is {steps}: expected 0 or more.")
    return torch.linspace(0.0, 1.0 if steps else 0.0, steps + 1)
