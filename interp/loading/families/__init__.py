"""One small file a family: what its configuration means, and where each weight goes."""
