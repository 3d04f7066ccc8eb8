"""A question: a call of an analysis as a value, which can be compared, run and written as code.

Equal questions have equal answers, so answers are stored by their questions. A question can be
written as Python code that gives the same numbers.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import analyses
import interp
from analyses.results import Progress, Result
from apps.explorer.offered import with_dictionaries
from interp.io import TensorData
from interp.metrics import Metric

LIVE = ("progress", "cancelled", "resume")
"""Arguments that affect how an analysis runs, but not its result."""
ESTIMATES = "estimate_"
"""How the names of functions begin that estimate what an analysis takes."""


@dataclass(frozen=True)
class Question:
    """A call of ``analyses.NAME(model, *arguments, **settings)``.

    Attributes:
        name: the name of the function in :mod:`analyses`.
        model: the name by which the model is loaded.
        arguments: the arguments after the model; lists of texts as tuples, so that they are
            hashable.
        settings: the keyword arguments, each hashable.
        dictionaries: what the dictionaries are loaded from that the model has in this question.
        scored_by: for ``prune``, the question whose result has the ``scores`` that it takes before
            the model.
    """

    name: str
    model: str
    arguments: tuple[object, ...] = ()
    settings: tuple[tuple[str, object], ...] = ()
    dictionaries: tuple[str, ...] = ()
    scored_by: "Question | None" = None

    @property
    def function(self) -> Callable[..., Result]:
        """The function of the analysis."""
        return getattr(analyses, self.name)

    def takes(self, name: str) -> bool:
        """Whether the analysis has an argument of that name."""
        return name in inspect.signature(self.function).parameters

    def run(
        self,
        model: interp.Transformer,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
        resume: object = None,
        scored: Result | None = None,
    ) -> Result:
        """Run the analysis.

        Args:
            model: the model of that name.
            progress: called with ``(done, total)``; passed on, like the others, if the analysis
                takes it.
            cancelled: as for :func:`interp.sweep`.
            resume: the ``partial`` of an earlier answer.
            scored: the answer to ``scored_by``, if there is one already.

        Raises:
            InterpError: the analysis raised it.
        """
        if self.dictionaries:
            model = with_dictionaries(model, self.dictionaries)
        live = dict(zip(LIVE, (progress, cancelled, resume), strict=True))
        taken = {name: value for name, value in live.items() if self.takes(name)}
        settings = {name: _to_lists(value) for name, value in self.settings}
        scores = [] if self.scored_by is None else [_scores(scored or self.scored_by.run(model))]
        return self.function(*scores, model, *map(_to_lists, self.arguments), **settings, **taken)

    def code(self, source: str | None = None) -> str:
        """Python code for the same call; its last line is the table of the result, or an estimate.

        Args:
            source: what the model is loaded from, if that is not its name.
        """
        scored = self.scored_by
        names = [self.name] if scored is None else [scored.name, self.name]
        return "\n".join(
            [
                "import interp",
                *(["from interp import metrics"] if self._measures else []),
                f"from analyses import {', '.join(names)}",
                "",
                f"model = interp.load({source or self.model!r})",
                *(
                    [
                        f"names = {[*self.dictionaries]!r}",
                        "dictionaries = [interp.dictionaries.load_any(name) for name in names]",
                        "model = interp.with_dictionaries(model, dictionaries)",
                    ]
                    if self.dictionaries
                    else []
                ),
                *([] if scored is None else [f"scores = {scored._call}.scores"]),
                f"result = {self._call}",
                "print(result)" if self.name.startswith(ESTIMATES) else "result.to_frame()",
            ]
        )

    @property
    def _call(self) -> str:
        scores = [] if self.scored_by is None else ["scores"]
        arguments = [*scores, "model", *(repr(_to_lists(argument)) for argument in self.arguments)]
        settings = [f"{name}={_to_code(_to_lists(value))}" for name, value in self.settings]
        return f"{self.name}({', '.join([*arguments, *settings])})"

    @property
    def _measures(self) -> bool:
        return any(isinstance(value, Metric) for _, value in self.settings)


def question(
    function: Callable[..., object], model: str, *arguments: object, **settings: object
) -> Question:
    """The call of an analysis as a question; lists become tuples, and ``None`` is left out."""
    setting_pairs = tuple(
        (name, _to_tuples(value)) for name, value in settings.items() if value is not None
    )
    return Question(function.__name__, model, tuple(map(_to_tuples, arguments)), setting_pairs)


def _scores(answer: Any) -> object:  # noqa: ANN401 - a result that scores edges
    return answer.scores


def _to_tuples(value: object) -> object:
    return tuple(map(_to_tuples, value)) if isinstance(value, list | tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _to_lists(value: Any) -> Any:  # noqa: ANN401 - an argument
    """Convert tuples of texts back to the lists that ``model.batch`` takes for several prompts."""
    if isinstance(value, tuple) and value and all(isinstance(item, str) for item in value):
        return [*value]
    if isinstance(value, tuple) and value and all(isinstance(item, tuple) for item in value):
        return tuple(map(_to_lists, value))
    return value


def _nested(values: TensorData) -> list[object]:
    return values.tensor.tolist()


def _to_code(value: object) -> str:
    """An argument as Python code."""
    if not isinstance(value, Metric):
        return repr(value)
    settings = {
        name: setting for name, setting in value.to_dict(_nested).items() if setting is not None
    }
    kind = settings.pop("kind")
    return (
        f"metrics.{kind}({', '.join(f'{name}={setting!r}' for name, setting in settings.items())})"
    )
