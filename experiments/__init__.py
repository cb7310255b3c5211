"""Commands: train, evaluate, watch, report, reproduce."""
