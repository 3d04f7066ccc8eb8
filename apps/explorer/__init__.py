"""The explorer: one Streamlit page of attention patterns and head ablations."""
