"""What the page calls the metrics that it offers."""

LOSS, LOGIT_DIFF = "loss", "logit difference"
