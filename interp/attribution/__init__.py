"""What each part contributes to a metric: terms of a logit, and estimates from gradients."""
