"""MMLU (Hendrycks et al. 2021, arXiv 2009.03300): questions with four choices.

A prompt has one question with its choices, without examples (zero-shot); the answer is the letter
that the model finds most probable.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from interp.compat.utils.datasets import load_from_hub
from interp.errors import InvalidInput, InvalidTokens, shorten

_SUBJECTS = """
    abstract_algebra anatomy astronomy business_ethics clinical_knowledge college_biology
    college_chemistry college_computer_science college_mathematics college_medicine college_physics
    computer_security conceptual_physics econometrics electrical_engineering elementary_mathematics
    formal_logic global_facts high_school_biology high_school_chemistry
    high_school_computer_science high_school_european_history high_school_geography
    high_school_government_and_politics high_school_macroeconomics high_school_mathematics
    high_school_microeconomics high_school_physics high_school_psychology high_school_statistics
    high_school_us_history high_school_world_history human_aging human_sexuality
    international_law jurisprudence logical_fallacies machine_learning management marketing
    medical_genetics miscellaneous moral_disputes moral_scenarios nutrition philosophy prehistory
    professional_accounting professional_law professional_medicine professional_psychology
    public_relations security_studies sociology us_foreign_policy virology world_religions
"""
MMLU_SUBJECTS = _SUBJECTS.split()
"""All 57 subjects."""
MMLU_ANSWER_LETTERS = ["A", "B", "C", "D"]
FIELDS = ("question", "choices", "answer")
"""Fields of a question; ``answer`` is the index of the right one of its ``choices``."""

Question = dict[str, Any]


def make_mmlu_data_loader(
    subjects: str | Sequence[str] | None = None,
    split: str = "test",
    num_samples: int | None = None,
    data: Mapping[str, Any] | None = None,
) -> list[Question]:
    """Questions as dictionaries: ``question``, ``choices``, ``answer`` (0 to 3), ``subject``.

    Args:
        subjects: one or several of :data:`MMLU_SUBJECTS`; all by default.
        split: ``test``, ``validation`` or ``dev``.
        num_samples: use only the first ``num_samples`` questions of each subject; by default all.
        data: the questions of each subject, instead of those on the hub (``cais/mmlu``): a
            ``datasets.Dataset`` of one split, or dictionaries. ``subjects`` is then by default the
            subjects of ``data``.

    Raises:
        InvalidInput: a subject is unknown, can't be loaded, or is missing from ``data``.
    """
    every = MMLU_SUBJECTS if data is None else list(data)
    wanted = every if subjects is None else [subjects] if isinstance(subjects, str) else subjects
    unknown = [subject for subject in wanted if subject not in every]
    if unknown:
        raise InvalidInput(f"Unknown subject {unknown[0]!r}; there are {', '.join(every)}.")
    found: list[Question] = []
    for subject in wanted:
        own = load_from_hub("cais/mmlu", subject, split=split) if data is None else data[subject]
        n = len(own) if num_samples is None else min(num_samples, len(own))
        questions = (own[at] for at in range(n))
        found += [{name: one[name] for name in FIELDS} | {"subject": subject} for one in questions]
    return found


@torch.inference_mode()
def mmlu_eval(
    model: Any,
    tokenizer: Any = None,
    subjects: str | Sequence[str] | None = None,
    split: str = "test",
    num_samples: int | None = None,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """How often the letter of the right choice is the most probable one.

    Args:
        model: a model with a tokenizer.
        tokenizer: the tokenizer; by default the model's.
        subjects: as for :func:`make_mmlu_data_loader`.
        split: as for :func:`make_mmlu_data_loader`.
        num_samples: as for :func:`make_mmlu_data_loader`.
        data: as for :func:`make_mmlu_data_loader`.

    Returns:
        ``accuracy``, ``num_correct``, ``num_total``, and ``subject_scores``: the accuracy of each
        subject.

    Raises:
        InvalidInput: there are no questions, or a question has more choices than letters.
    """
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    questions = make_mmlu_data_loader(subjects, split, num_samples, data)
    if not questions:
        raise InvalidInput("There are no questions; pass other subjects= or data=.")
    letters = [_token_of(tokenizer, letter) for letter in MMLU_ANSWER_LETTERS]
    right: dict[str, list[bool]] = {}
    for question in questions:
        n = len(question["choices"])
        if n > len(letters):
            raise InvalidInput(f"{shorten(question)} has {n} choices; at most 4 are supported.")
        ids = torch.tensor([_ids(tokenizer, prompt_of(question))], device=model.cfg.device)
        logits: Tensor = model(ids, return_type="logits")[0, -1]
        most_probable = int(logits[letters[:n]].argmax())
        right.setdefault(question["subject"], []).append(most_probable == question["answer"])
    every = [one for own in right.values() for one in own]
    return {
        "accuracy": sum(every) / len(every),
        "num_correct": sum(every),
        "num_total": len(every),
        "subject_scores": {subject: sum(own) / len(own) for subject, own in right.items()},
    }


def prompt_of(question: Mapping[str, Any]) -> str:
    """The prompt of a question, which ends where a letter is predicted."""
    pairs = zip(MMLU_ANSWER_LETTERS, question["choices"], strict=False)
    choices = "".join(f"{letter}. {choice}\n" for letter, choice in pairs)
    return f"Question: {question['question']}\nChoices:\n{choices}Answer:"


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text))


def _token_of(tokenizer: Any, letter: str) -> int:
    """The token of a letter after a space, or without the space if that is several tokens."""
    for text in (f" {letter}", letter):
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) == 1:
            return ids[0]
    raise InvalidTokens(f"The letter {letter} is not a single token of this tokenizer.")
