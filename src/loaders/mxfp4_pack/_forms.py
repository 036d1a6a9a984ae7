"""Forms of JSON values, and the check of a value against a form. The forms name only members that this package uses, so
that later versions may add others.

    Text, Whole, Number, Flag       one value
    List(form), Map(form)           a list, an object with any names
    {"name": form, "other?": form}  an object with these members; members with ? may be missing
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from ._errors import Refused, printable

LONGEST_SHOWN = 60  # characters of a wrong value in a message


class Text(NamedTuple):
    """A string without control characters. among: the allowed values."""
    among: Collection[str] = ()

    def misses(self, value):
        if type(value) is not str:
            return "a string"
        if self.among and value not in self.among:
            return f"one of {', '.join(self.among)}"
        return None if value.isprintable() else "text without control characters"


class Whole(NamedTuple):
    """A whole number."""
    least: int = 0
    most: int = (1 << 48) - 1

    def misses(self, value):
        fits = type(value) is int and self.least <= value <= self.most
        return None if fits else f"a whole number from {self.least} to {self.most}"


class Number(NamedTuple):
    def misses(self, value):
        return None if type(value) in (int, float) and abs(value) < 1e30 else "a number"


class Flag(NamedTuple):
    def misses(self, value):
        return None if type(value) is bool else "true or false"


class Scalar(NamedTuple):
    """A string, a number or a flag."""

    def misses(self, value):
        fits = any(form.misses(value) is None for form in (Text(), Number(), Flag()))
        return None if fits else "a string, a number, true or false"


class List(NamedTuple):
    form: Any
    least: int = 0
    most: int = 1 << 32

    def misses(self, value):
        if type(value) is not list:
            return "a list"
        return None if self.least <= len(value) <= self.most else f"a list of {self.least} to {self.most} values"


class Map(NamedTuple):
    form: Any


def check(value: Any, form: Any, file: str, field: str = "") -> None:
    """Raises `Refused` with the place of the first value that does not have its form. file: the file's name in
    messages. field: the value's place in the file, empty for the whole file."""
    if isinstance(form, (dict, Map)):
        if type(value) is not dict:
            refuse(value, "an object", file, field)
        check_members(value, form, file, field)
    elif expected := form.misses(value):
        refuse(value, expected, file, field)
    elif isinstance(form, List):
        for number, item in enumerate(value):
            check(item, form.form, file, f"{field}[{number}]")


def check_members(value, form, file, field):
    if isinstance(form, Map):
        for name, member in value.items():
            check(name, Text(), file, f"{field or 'top level'}: a name")
            check(member, form.form, file, below(field, name))
        return
    for key, member in form.items():
        name = key.removesuffix("?")
        if name in value:
            check(value[name], member, file, below(field, name))
        elif name == key:
            raise Refused(f"{file}: {below(field, name)}: missing")


def below(field, name):
    return f"{field}.{name}" if field else name


def refuse(value, expected, file, field):
    place = f"{file}: {field}" if field else file
    raise Refused(f"{place}: {shown(value)}, {expected} was expected")


def shown(value):
    """A wrong value, short and printable."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list" if len(value) != 1 else "a list of one value"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a very large number"
    text = {None: "null", True: "true", False: "false"}[value] if value is None or type(value) is bool else repr(value)
    return printable(text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "...")
