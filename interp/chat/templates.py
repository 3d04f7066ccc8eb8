"""The chat templates of a model, by name, and the texts of the special tokens that they write."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from interp.errors import InvalidInput, nearest, shorten
from interp.io import as_object, parse_json

DEFAULT = "default"
"""The name of the template that is used unless another one is chosen."""
MAX_TEMPLATE = 2**18
"""Maximum number of characters of a template."""
MAX_TEMPLATES = 100


@dataclass(frozen=True)
class ChatTemplates:
    """The chat templates of a model.

    Attributes:
        templates: templates of Jinja by name.
        special_tokens: the texts of special tokens by the names that templates use, such as
            ``bos_token``.
        problem: why the templates can't be used; ``""`` if they can. A model with damaged templates
            loads, and this is raised when one is used.
    """

    templates: Mapping[str, str] = field(default_factory=dict[str, str])
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str = ""

    @classmethod
    def of(cls, templates: object, special_tokens: object, source: str) -> "ChatTemplates | None":
        """The templates of a file or a tokenizer.

        Args:
            templates: a template, templates by name, or a list of objects with ``name`` and
                ``template``; ``None`` if there are none.
            special_tokens: an object; entries that are no texts are left out.
            source: where they were read, for messages.

        Returns:
            ``None`` if there are none; their :attr:`problem` is set if they are something else.
        """
        if templates is None:
            return None
        special = special_tokens if isinstance(special_tokens, Mapping) else {}
        texts = {str(name): str(text) for name, text in special.items() if isinstance(text, str)}
        try:
            return cls(_by_name(templates), texts)
        except ValueError as error:
            return cls(problem=f"{source} has a chat template that can't be used: {error}.")

    @classmethod
    def from_json(cls, text: str) -> "ChatTemplates | None":
        """The templates in the form of :meth:`to_json`.

        Raises:
            ValueError: the text is something else.
        """
        fields = as_object(parse_json(text), "the file")
        return cls.of(fields.get("templates"), fields.get("special_tokens"), "the file")

    def to_json(self) -> dict[str, dict[str, str]]:
        """The templates and the special tokens as JSON values."""
        return {"templates": {**self.templates}, "special_tokens": {**self.special_tokens}}

    def choose(self, template: str | None) -> str:
        """The template of a name, or the given template itself.

        Args:
            template: a name, a template (which contains a brace), or ``None`` for the default one.

        Raises:
            InvalidInput: there is no template of this name.
        """
        if template is not None and "{" in template:
            return _checked(template)
        if self.problem:
            raise InvalidInput(f"{self.problem} Give one as template=.")
        names = [*self.templates]
        wanted = template or (names[0] if len(names) == 1 else DEFAULT)
        if wanted not in self.templates:
            raise InvalidInput(
                f"There is no chat template {shorten(wanted)}; template= takes "
                f"{', '.join(map(shorten, names)) or 'a template'}.{nearest(wanted, names)}"
            )
        return self.templates[wanted]


def _by_name(templates: object) -> dict[str, str]:
    """Templates by name.

    Raises:
        ValueError: they are something else.
    """
    if isinstance(templates, str):
        templates = {DEFAULT: templates}
    if isinstance(templates, list | tuple):
        templates = dict(map(_entry, templates[: MAX_TEMPLATES + 1]))
    if not isinstance(templates, Mapping) or not templates:
        raise ValueError(
            "expected a text, or a list of objects with name and template, got "
            f"{shorten(templates)}"
        )
    if len(templates) > MAX_TEMPLATES:
        raise ValueError(f"there are more than {MAX_TEMPLATES}")
    for name, text in templates.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError(f"{shorten(name)} should be a text, got {shorten(text)}")  # noqa: TRY004
        _check_length(text)
    return {str(name): str(text) for name, text in templates.items()}


def _entry(entry: object) -> tuple[object, object]:
    match entry:
        case {"name": name, "template": template}:
            return name, template
        case _:
            raise ValueError(f"expected an object with name and template, got {shorten(entry)}")


def _check_length(template: str) -> None:
    if len(template) > MAX_TEMPLATE:
        raise ValueError(f"it has {len(template)} characters, at most {MAX_TEMPLATE} are read")


def _checked(template: str) -> str:
    try:
        _check_length(template)
    except ValueError as error:
        raise InvalidInput(f"template= is too long: {error}.") from error
    return template
