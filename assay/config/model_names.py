"""The one name of a model that is no path and no name on a hub: that of the built-in model."""

TINY = "tiny"


def is_tiny(name: str) -> bool:
    """Whether `name` stands for the built-in model, which a training run makes."""
    return name == TINY
