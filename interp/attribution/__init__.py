"""Effects of edges and of nodes on a metric, estimated from gradients along a path of inputs."""
