"""What each suite's presets change, as YAML; read by `experiments.settings`."""
