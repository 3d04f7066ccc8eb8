"""Which heads matter here? The layer × head map, computed when asked."""

from dataclasses import dataclass

import streamlit as st

import interp
from analyses import HeadAblation, ablate_heads
from analyses.ablate_heads import METHODS
from apps.explorer.metric import LOGIT_DIFF, LOSS
from apps.explorer.session_state import examples
from apps.explorer.widgets import faults_shown
from apps.figure_layout import CHART, fitted
from apps.wording import answer, reading
from interp.metrics.prompts import logit_diff_of_prompts
from interp.text.prompts import Prompt

ONE, ALL = "this prompt", "all examples"


@dataclass(frozen=True)
class Question:
    """What is asked: equal questions have equal answers."""

    model: str
    metric: str
    method: str
    prompts: tuple[Prompt, ...]


@st.fragment
def ablation_view(name: str, model: interp.Transformer, prompt: Prompt) -> None:
    """The ablation map of all heads."""
    st.subheader("Which heads matter")
    with faults_shown():
        question = _ask(name, prompt)
        if st.button("Ablate every head", type="primary", key="ablate"):
            st.session_state.pop("ablation", None)
            st.session_state["ablation"] = question, _ablate(model, question)
        asked, result = st.session_state.get("ablation", (None, None))
        if result is None:
            st.caption("Each head in turn is replaced, and the change of the metric is shown.")
        elif asked != question:
            st.caption("The settings have changed since; ablate again to see their map.")
        else:
            _show(result)


def _ask(name: str, prompt: Prompt) -> Question:
    mean = METHODS.index("mean")
    method = st.radio("Method", METHODS, index=mean, key="method", horizontal=True)
    metric = st.radio("Metric", [LOSS, LOGIT_DIFF], key="metric", horizontal=True)
    some = examples(name)
    over = [ONE, ALL] if some else [ONE]
    chosen = st.radio("Prompts", over, index=len(over) - 1, key="over", horizontal=True)
    return Question(name, metric, method, tuple(some) if chosen == ALL else (prompt,))


def _ablate(model: interp.Transformer, question: Question) -> HeadAblation:
    prompts = list(question.prompts)
    metric = (
        logit_diff_of_prompts(model.to_single_token, prompts)
        if question.metric == LOGIT_DIFF
        else "loss"
    )
    bar = st.progress(0.0)

    def tick(done: int, of: int) -> None:
        bar.progress(done / of, f"{done} of {of} heads")

    try:
        return ablate_heads(
            model,
            [prompt.text for prompt in prompts],
            metric=metric,
            method=question.method,
            progress=tick,
        )
    finally:
        bar.empty()


def _show(result: HeadAblation) -> None:
    st.write(answer(result))
    height = min(720, 150 + 34 * result.ablated.shape[0])
    st.plotly_chart(
        fitted(result.figure(), height, gap=1),
        theme=None,
        config=CHART,
        key="map",
        alt="Mean effect of replacing each head, layers down, heads across",
    )
    with st.expander("As a table"):
        numbers = {
            name: st.column_config.NumberColumn(format="%+.4g")
            for name in ("effect", "low", "high")
        }
        columns = ["name", "effect", "low", "high", "n", "matters"]
        st.dataframe(result.to_frame()[columns], hide_index=True, column_config=numbers)
    st.caption(reading(result))
