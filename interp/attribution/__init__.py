"""Effects of edges and nodes on a metric, estimated from gradients."""
