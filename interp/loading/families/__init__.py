"""The supported families, one module each: how ``config.json`` and the weights are interpreted."""
