"""The origin of a network: whose it is, and which weights were loaded into it. Records name it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from torch import nn

from ..files import sha256
from .networks import Drift
from .weights import LOADED

OURS = __name__.partition("method.")[0]  # begins the names of the bundle's modules
PARTS = (OURS, "torch.", "monai.")  # of which DRIFT's networks are made
SHOWN = 12  # digits of a hash in a sentence


@dataclass(frozen=True)
class Origin:
    """Whose a network is.

    Attributes:
        ours: whether it is DRIFT's network, in all its parts.
        name: of its class, or of a part's class that is not DRIFT's, as configs write it.
        file: that holds this class; empty for DRIFT's own, and for a class that no file holds.
        file_hash: SHA-256 of that file, since its code makes results.
        weights: SHA-256 of the file that `load_weights` has loaded into it; None for weights of another origin.
        version: of the bundle that trained these weights, as their card says; empty without a card.
        flows: whether the number of Euler steps is known to be what it was given.
    """

    ours: bool
    name: str
    file: str
    file_hash: str
    weights: str | None
    version: str
    flows: bool

    @classmethod
    def of(cls, network: nn.Module) -> Origin:
        """The origin of a network that is ready to rebuild."""
        kinds = [type(part) for part in network.modules()]
        strange = [kind for kind in kinds if not f"{kind.__module__}.".startswith(PARTS)]
        kind = strange[0] if strange else kinds[0]
        weights, version = getattr(network, LOADED, (None, ""))
        try:
            file = inspect.getfile(kind) if strange else ""
        except (OSError, TypeError):  # it was made at a prompt
            file = ""
        return cls(
            ours=isinstance(network, Drift) and not strange,
            name=f"{kind.__module__}.{kind.__qualname__}".removeprefix(OURS.removesuffix("scripts.")),
            file=file.replace("\\", "/").rpartition("/")[2],
            file_hash=sha256([file]) if file else "",
            weights=weights,
            version=version,
            flows=isinstance(network, Drift) or weights is not None,
        )

    def said(self, release: str = "") -> str:
        """Who rebuilt, in words for a sentence with "by".

        Args:
            release: of DRIFT, which ran the network; empty where it stands beside.

        Example:
            >>> Origin(True, "scripts.method.networks.Drift", "", "", "da01bb49b3e31c94", "0.27.0", True).said("0.27.1")
            'DRIFT 0.27.1, weights 0.27.0 (da01bb49b3e3)'
            >>> Origin(False, "my_module.MyNetwork", "my_module.py", "", None, "", False).said("0.27.1")
            'my_module.MyNetwork (my_module.py), without a weights file, run by DRIFT 0.27.1'
        """
        drift = f"DRIFT {release}".strip()
        if self.weights is None:
            weights = "without a weights file"
        else:
            weights = "weights {} ({})" if self.version else "weights{} {}"
            weights = weights.format(self.version, self.weights[:SHOWN])
        if self.ours:
            return f"{drift}, {weights}"
        file = f" ({self.file})" if self.file else ""
        return f"{self.name}{file}, {weights}{f', run by {drift}' if release else ''}"

    def entry(self) -> dict[str, str]:
        """The record's entry, without what is empty."""
        facts = {"Class": self.name, "File": self.file, "FileSHA256": self.file_hash, "WeightsVersion": self.version}
        return {"Description": self.said(), **{name: value for name, value in facts.items() if value}}
