"""Linear maps fitted to rows of activations: ridge and logistic regression, and erasure."""
