"""The explorer: one Streamlit page that shows where heads look and which of them matter."""
