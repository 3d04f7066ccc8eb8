"""The attention pattern of one head on the prompt."""

import streamlit as st

import interp
from analyses import attention_pattern
from apps.explorer.session_state import update_url
from apps.explorer.widgets import errors_on_page
from apps.figure_layout import PLOTLY_CONFIG, apply_page_layout
from interp.text.prompts import Prompt


@st.fragment
def pattern_view(model: interp.Transformer, prompt: Prompt) -> None:
    """Heatmap and table of the selected head's attention pattern."""
    st.subheader("Attention pattern")
    with errors_on_page():
        layer = _index_radio("Layer", "layer", len(model.blocks))
        head = _index_radio("Head", "head", model.blocks[layer].attn.n_heads)
        update_url()
        result = attention_pattern(model, prompt.text, layer, head)
        height = min(720, 160 + 22 * len(result.queries))
        st.plotly_chart(
            apply_page_layout(result.figure(), height),
            theme=None,
            config=PLOTLY_CONFIG,
            key="pattern",
            alt=f"Attention weight of each query over the keys in {result.name}",
        )
        with st.expander("As a table: the most attended key of each query"):
            frame = result.to_frame()
            most = frame.loc[frame.groupby("query")["attention"].idxmax()]
            columns = ["query", "query_token", "key", "key_token", "attention"]
            st.dataframe(
                most[columns],
                hide_index=True,
                column_config={"attention": st.column_config.NumberColumn(format="%.3f")},
            )


def _index_radio(label: str, key: str, n: int) -> int:
    """Radio buttons 0 to n − 1; an index that the model lacks becomes 0."""
    if st.session_state[key] not in range(n):
        st.session_state[key] = 0
    return st.radio(label, range(n), key=key, horizontal=True)
