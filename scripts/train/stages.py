"""A further stage of a training: the config of the first one, with other values for some of its ids."""

from copy import deepcopy

from monai.bundle import ConfigParser
from monai.engines import SupervisedTrainer

# All stages have these in common; volumes are read and cached once
SHARED = ("network", "data", "train::mixture", "train::weights", "validate::dataset")


def config_of(config: ConfigParser, name: str) -> ConfigParser:
    """The config of a stage, in which `train` trains that stage: ids have the values that `stages::NAME` gives them."""
    own = ConfigParser(deepcopy(config.get()))
    own.update(own[f"stages::{name}"])
    return own


class FurtherStage:
    """A stage of a training that is not the first one.

    Args:
        config: of the first stage.
        name: of the stage.

    Attributes:
        config: its own.
    """

    def __init__(self, config: ConfigParser, name: str):
        self.config = config_of(config, name)
        self.config.parse()
        self.config.ref_resolver.resolved_content.update({place: config.get_parsed_content(place) for place in SHARED})

    @property
    def trainer(self) -> SupervisedTrainer:
        """The trainer, with all its handlers."""
        return self.config.get_parsed_content("train::trainer")

    def run(self) -> None:
        """Trains."""
        self.trainer.run()
