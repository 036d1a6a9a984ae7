"""Exceptions, and safe output of files' texts and paths."""


def printable(text: str, keep: str = "") -> str:
    """Escapes every character that a terminal or a log could obey or hide. These are control characters, characters
    that change the direction of writing, other line ends, zero-width characters and halves of surrogate pairs. keep:
    characters that are not escaped."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


class Refused(ValueError):
    """The packed files cannot be served as requested. The message has the reason and the next step."""

    def __init__(self, message: object = ""):
        super().__init__(printable(str(message), keep="\n"))


def refuse_options(options: dict[str, object]) -> None:
    """Refuses those of {option: value} that are set."""
    if set_ := [name for name, value in options.items() if value]:
        raise Refused(f"packed MXFP4 experts cannot be served with {', '.join(set_)}. Leave it out, or serve the "
                      "original checkpoint (mxfp4-pack unpack makes it again)")


class Misfit(Refused):
    """The set's bytes or sizes differ from those of the installed engine, which could convert unpacked experts
    itself."""


class Unconverted(Misfit):
    """The engine's own conversion failed, so nothing was compared."""
