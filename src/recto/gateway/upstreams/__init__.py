"""The models behind the gateway: remote endpoints and the embedded model."""
