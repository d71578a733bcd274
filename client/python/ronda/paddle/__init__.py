# SPDX-License-Identifier: Apache-2.0

"""Ronda under the names of Paddle: `from ronda.paddle import fleet`."""
