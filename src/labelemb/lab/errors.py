"""What the lab raises when the user, not the code, has to change something."""


class LabError(Exception):
    """A user error. Its text is one line that names the value, what is allowed, and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))
