"""The harness: balancer processes, scriptable servers and clients."""
