"""The explorer: a Streamlit app for looking at one model, one prompt and a few analyses."""
