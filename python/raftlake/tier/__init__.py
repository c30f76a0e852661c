"""The remote tier (KIP-405): history as a Delta table for each topic."""
