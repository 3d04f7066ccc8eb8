"""The Transformer, part by part; the forward reads like its formula."""
