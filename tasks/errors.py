"""The one error class of this package."""


class TaskError(ValueError):
    """A task that cannot exist, or data that cannot be drawn from it.

    The message names the offending value, the limit, and the way out.
    """
