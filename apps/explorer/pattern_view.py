"""Where does one head look on this prompt?"""

import streamlit as st

import interp
from analyses import attention_pattern
from apps.explorer.session_state import share
from apps.explorer.widgets import faults_shown
from apps.figure_layout import CHART, fitted
from interp.text.prompts import Prompt


@st.fragment
def pattern_view(model: interp.Transformer, prompt: Prompt) -> None:
    """The attention pattern of a chosen head."""
    st.subheader("Attention pattern")
    with faults_shown():
        layer = _choose("Layer", "layer", len(model.blocks))
        head = _choose("Head", "head", model.blocks[layer].attn.n_heads)
        share()
        found = attention_pattern(model, prompt.text, layer, head)
        height = min(720, 160 + 22 * len(found.queries))
        st.plotly_chart(
            fitted(found.figure(), height),
            theme=None,
            config=CHART,
            key="pattern",
            alt=f"How much each query attends to each key in {found.name}",
        )
        with st.expander("As a table: what each token looks at most"):
            frame = found.to_frame()
            most = frame.loc[frame.groupby("query")["attention"].idxmax()]
            columns = ["query", "query_token", "key", "key_token", "attention"]
            st.dataframe(
                most[columns],
                hide_index=True,
                column_config={"attention": st.column_config.NumberColumn(format="%.3f")},
            )


def _choose(label: str, key: str, n: int) -> int:
    if st.session_state[key] not in range(n):
        st.session_state[key] = 0
    return st.radio(label, range(n), key=key, horizontal=True)
