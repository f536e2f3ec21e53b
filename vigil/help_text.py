"""Help and wrong options of commands in the chosen language.

Typer builds a command with its English texts. They are replaced in the built command, by
paragraphs. Labels such as ``Options`` are typer's own; a formatter replaces them, and breaks lines
by columns of the terminal, because Chinese characters take two.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from contract.sentences import message
from vigil.language import translated
from vigil.reports.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import IO

Command: TypeAlias = Any
"""Of the click that typer has in itself, or of the one that it depends on: by its release."""
_Formatter: Any = typer.Context.formatter_class

HEADINGS = (message("Usage"), message("Arguments"), message("Options"), message("Commands"))
_EXTRAS = {
    "env var: ": message("env var: {value}"),
    "default: ": message("default: {value}"),
    "required": message("required"),
}
"""What typer writes behind the help of an option, in brackets; semicolons between."""
_ERRORS = (
    message("No such option: {option} (Possible options: {options})"),
    message("No such option: {option}"),
    message("No such command '{command}'. Did you mean {commands}?"),
    message("No such command '{command}'."),
    message("Missing command."),
    message("Missing argument '{name}'."),
    message("Missing option '{name}'."),
    message("Option '{name}' requires an argument."),
    message("Got unexpected extra argument(s) ({arguments})"),
    message("Invalid value for {name}: {problem}"),
    message("Invalid value: {problem}"),
    message("Input should be a valid integer, unable to parse string as an integer"),
    message("Input should be a valid number, unable to parse string as a number"),
    message("Input should be less than or equal to {limit}"),
    message("Input should be greater than or equal to {limit}"),
    message("Value error, {value} is not one of {choices}."),
)
"""Errors of typer and of pydantic; the first that fits is meant."""
_FIELD = re.compile(r"\\{(\w+)\\}")
_WITH_EXTRAS = re.compile(r"(.*?)\s*\[([^\[\]]+)\]", re.DOTALL)
_FIRST_SENTENCE = re.compile(r".*?(?:。|\. |$)")


class _LanguageFormatter(_Formatter):  # type: ignore[misc]
    """Writes help in the chosen language."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:  # noqa: ARG002
        """Write how the command is called."""
        start = f"{translated('Usage')}：{prog} "
        self._write_lines(wrapped(args, self.width, start, " " * 4))

    def write_heading(self, heading: str) -> None:
        """Write the heading of a list."""
        self._write_lines([f"{' ' * self.current_indent}{translated(heading)}："])

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        indent = " " * self.current_indent
        for number, paragraph in enumerate(text.split("\n\n")):
            self.write("\n" if number else "")
            self._write_lines(wrapped(paragraph, self.width, indent, indent))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms, such as options, with their explanations."""
        table = list(rows)
        indent = " " * self.current_indent
        size = min(max(len(term) for term, _ in table), col_max)
        following = " " * (self.current_indent + size + col_spacing)
        for term, text in table:
            start = f"{indent}{term}"
            if len(term) > size:
                self._write_lines([start])
                start = ""
            lines = wrapped(_with_extras(text), self.width, f"{start:{len(following)}}", following)
            self._write_lines(lines)

    def _write_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(f"{line}\n")


class _LanguageContext(typer.Context):
    formatter_class = _LanguageFormatter


def translate_help(command: Command) -> None:
    """Replace the texts of ``command`` and of those below it by the ones of the chosen language."""
    replace_texts(command, translated)
    for each in _with_below(command):
        each.context_class = _LanguageContext
        # Typer would cut it at a space, which Chinese does not have.
        match = _FIRST_SENTENCE.match(each.help or "")
        each.short_help = match and match[0].strip()


def translate_error(error: Any) -> None:
    """Let ``error`` of the command line be shown in the chosen language.

    A text that the catalogue lacks is shown in English, behind a translated heading.
    """
    # Others, such as the help of a program without arguments, are shown as they are.
    if getattr(type(error), "show", None) is not typer.BadParameter.show:
        return

    def show(file: IO[str] | None = None) -> None:
        context, text = error.ctx, error.format_message()
        # What an option lacks is noticed without a context.
        if context is not None:
            command = f"{context.command_path} {context.help_option_names[0]}"
            hint = translated("Try '{command}' for help.", command=command)
            typer.echo(f"{context.get_usage()}\n{hint}\n", file=file, err=True)
        line = translated("Error: {error}", error=_error_text(text) or text)
        typer.echo(line, file=file, err=True)

    error.show = show


def _error_text(text: str) -> str | None:
    """Return an English error in the chosen language; ``None`` where the catalogue lacks it."""
    for template in _ERRORS:
        pattern = _FIELD.sub(r"(?P<\1>.+)", re.escape(template))
        match = re.fullmatch(pattern, text)
        if match is not None:
            fields = match.groupdict()
            if "problem" in fields:
                fields["problem"] = _error_text(fields["problem"])
            return None if None in fields.values() else translated(template, **fields)
    translation = translated(text)
    return translation if translation != text else None


def replace_texts(command: Command, replace: Callable[[str], str]) -> None:
    """Replace each paragraph and explanation of ``command`` and of those below it."""
    for each in _with_below(command):
        each.help = _replaced(each.help, replace)
        for parameter in each.get_params(typer.Context(each)):
            parameter.help = _replaced(parameter.help, replace)
            if isinstance(parameter.show_default, str):
                parameter.show_default = replace(parameter.show_default)


def _with_below(command: Command) -> Iterator[Command]:
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _with_below(below)


def _replaced(text: str | None, replace: Callable[[str], str]) -> str | None:
    if not text:
        return text
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(replace(" ".join(paragraph.split())) for paragraph in paragraphs)


def _with_extras(text: str) -> str:
    """Return the explanation of an option with what typer has added to it in brackets."""
    match = _WITH_EXTRAS.fullmatch(text)
    if match is None:
        return text
    extras = []
    for extra in match[2].split("; "):
        label = next((label for label in _EXTRAS if extra.startswith(label)), None)
        value = extra.removeprefix(label or "")
        extras.append(translated(_EXTRAS[label], value=value) if label else extra)
    return f"{match[1]}  [{'; '.join(extras)}]".strip()
