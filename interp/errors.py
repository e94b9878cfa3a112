"""The one error class of this package."""


class BoolensError(ValueError):
    """Input that cannot be used: the message names the value, the limit and the way out."""
