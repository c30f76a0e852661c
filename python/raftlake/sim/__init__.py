"""The deterministic cluster: the production driver over a simulated clock, network and disk, everything drawn from one seed."""
