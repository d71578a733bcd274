# SPDX-License-Identifier: Apache-2.0

"""Ronda with the API of Paddle's fleet: `from ronda.paddle import fleet`."""
