"""The ablation map of all heads, layer × head, computed on request."""

from dataclasses import dataclass

import streamlit as st

import interp
from analyses import HeadAblation, ablate_heads
from apps.commands.inputs import Inputs
from apps.explorer.session_state import METRICS, examples
from apps.explorer.widgets import errors_on_page
from apps.figure_layout import PLOTLY_CONFIG, apply_page_layout
from apps.wording import conclusion, explanation
from interp.interventions.replacements import METHODS
from interp.text.prompts import Prompt

THIS_PROMPT, ALL_EXAMPLES = "this prompt", "all examples"


@dataclass(frozen=True)
class AblationSettings:
    """The inputs of an ablation: equal settings give equal results."""

    model: str
    metric: str
    method: str
    prompts: tuple[Prompt, ...]


@st.fragment
def ablation_view(name: str, model: interp.Transformer, prompt: Prompt) -> None:
    """Settings, button and map of the ablation of all heads."""
    st.subheader("Which heads matter")
    with errors_on_page():
        settings = _settings_form(name, prompt)
        if st.button("Ablate every head", type="primary", key="ablate"):
            st.session_state.pop("ablation", None)
            st.session_state["ablation"] = settings, _ablate(model, settings)
        computed_for, result = st.session_state.get("ablation", (None, None))
        if result is None:
            st.caption("Ablates each head in turn and shows the change of the metric.")
        elif computed_for != settings:
            st.caption("The settings have changed; ablate again to update the map.")
        else:
            _show_result(result)


def _settings_form(name: str, prompt: Prompt) -> AblationSettings:
    mean = METHODS.index("mean")
    method = st.radio("Method", METHODS, index=mean, key="method", horizontal=True)
    metric = st.radio("Metric", list(METRICS), key="metric", horizontal=True)
    prompts = examples(name)
    options = [THIS_PROMPT, ALL_EXAMPLES] if prompts else [THIS_PROMPT]
    over = st.radio("Prompts", options, index=len(options) - 1, key="over", horizontal=True)
    used = tuple(prompts) if over == ALL_EXAMPLES else (prompt,)
    return AblationSettings(name, METRICS[metric], method, used)


def _ablate(model: interp.Transformer, settings: AblationSettings) -> HeadAblation:
    bar = st.progress(0.0)

    def tick(done: int, total: int) -> None:
        bar.progress(done / total, f"{done} of {total} heads")

    try:
        inputs = Inputs(model, settings.prompts, tick)
        return ablate_heads(
            model,
            inputs.texts,
            metric=inputs.metric(settings.metric),
            method=settings.method,
            progress=tick,
        )
    finally:
        bar.empty()


def _show_result(result: HeadAblation) -> None:
    st.write(conclusion(result))
    height = min(720, 150 + 34 * result.ablated.shape[0])
    st.plotly_chart(
        apply_page_layout(result.figure(), height, gap=1),
        theme=None,
        config=PLOTLY_CONFIG,
        key="map",
        alt="Mean effect of ablating each head, layers down, heads across",
    )
    with st.expander("As a table"):
        numbers = {
            name: st.column_config.NumberColumn(format="%+.4g")
            for name in ("effect", "low", "high")
        }
        columns = ["name", "effect", "low", "high", "size", "n", "q", "matters"]
        st.dataframe(result.to_frame()[columns], hide_index=True, column_config=numbers)
    st.caption(explanation(result))
