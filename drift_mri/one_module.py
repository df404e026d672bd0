"""The bundle is `scripts` to its configs and hosts, and `drift_mri.scripts` to Python: one module by either name."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

NAMES = "scripts", f"{__package__}.scripts"


class SecondName(MetaPathFinder, Loader):
    """Gives the modules of the bundle a second name. The first name is the one by which they are loaded.

    `scripts` is a common name: whoever has a package of that name keeps it. So the modules are loaded as
    `drift_mri.scripts`, and `scripts` stands for them only where Python finds no other package, or finds the bundle's
    own folder on its path. Where a host has loaded the bundle as `scripts` before, `drift_mri.scripts` stands for that.
    """

    def __init__(self, bundle: Path):
        self.folder = bundle / "scripts"
        loaded = sys.modules.get(NAMES[0])
        places = [] if loaded is None else getattr(loaded, "__path__", [""])
        self.first, self.name = NAMES if self._is_folder(places) else reversed(NAMES)

    def _is_folder(self, places: Sequence[str]) -> bool:
        return any(Path(place).resolve() == self.folder.resolve() for place in places)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec; None for modules of others."""
        top = sys.modules.get(self.name)
        if name == self.name and self.name == NAMES[0]:
            other = PathFinder.find_spec(name)
            ours = other is None or self._is_folder(other.submodule_search_locations or [""])
        else:
            ours = name == self.name or (name.startswith(f"{self.name}.") and top is sys.modules.get(self.first))
        return spec_from_loader(name, self) if ours else None

    def exec_module(self, module: ModuleType) -> None:
        """Puts the module of the first name in the place of an empty one."""
        name = module.__name__
        sys.modules[name] = import_module(self.first + name.removeprefix(self.name))
