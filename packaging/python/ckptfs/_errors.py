"""The exception of this package."""

from typing import Optional


class Error(Exception):
    """A checkpoint cannot be opened, or a tensor cannot be read or represented.

    `exit_code` is that of the program (docs/usage.md lists them) if the program failed, else None.
    """

    def __init__(self, message: str, exit_code: Optional[int] = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
