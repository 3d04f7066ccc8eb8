"""Linear maps fitted to rows: ridge and logistic regression, and least-squares erasure."""
