"""Ronda under the names of Paddle: `from ronda.paddle import fleet`."""
