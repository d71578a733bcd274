# SPDX-License-Identifier: Apache-2.0

"""Tests the record of the operations in flight and the memory that they use."""

from __future__ import annotations

import random
import unittest

from ronda._in_flight import InFlight, Span, first_conflict


class Operation:
    """An operation that ends when the test ends it, or when a caller waits for it."""

    def __init__(self) -> None:
        self.has_ended = False
        self.is_awaited = False

    def poll(self) -> bool:
        return self.has_ended

    def settle(self) -> None:
        self.has_ended = self.is_awaited = True


def conflict(one: Span, other: Span) -> bool:
    overlap = max(one.begin, other.begin) < min(one.end, other.end)
    return overlap and (one.is_written or other.is_written)


def random_span(source: random.Random) -> Span:
    begin = source.randrange(200)
    return Span(begin, begin + source.choice((0, 1, 3, 10, 100)), source.random() < 0.5)


class InFlightTest(unittest.TestCase):
    def test_operations_whose_memory_is_used_are_awaited(self):
        """In random programs, a caller waits for exactly those operations that conflict with its
        own.
        """
        source = random.Random(7)
        for _ in range(200):
            record, alive = InFlight(), {}
            for _ in range(30):
                spans = [random_span(source) for _ in range(source.randrange(1, 4))]
                for operation in alive:
                    operation.has_ended = source.random() < 0.1
                    if operation.has_ended and source.random() < 0.5:
                        record.forget(operation)
                alive = {one: uses for one, uses in alive.items() if not one.has_ended}
                wanted = {
                    one
                    for one, uses in alive.items()
                    if any(conflict(mine, theirs) for mine in spans for theirs in uses)
                }
                self.assertEqual(
                    any(record.has_users_of(span) for span in spans), bool(wanted), spans
                )
                record.wait_for_users_of(spans)
                self.assertEqual({one for one in alive if one.is_awaited}, wanted)
                alive = {one: uses for one, uses in alive.items() if not one.has_ended}
                alive[latest := Operation()] = spans
                record.add(latest, spans)
                self.assertLessEqual(set(alive), set(record.operations()))
            for operation in alive:
                operation.has_ended = True
            record.forget_ended()
            self.assertEqual((record.operations(), bool(record)), ([], False))

    def test_repeated_runs_share_memory_only_with_runs_at_the_same_place(self):
        """Compares random spans with the sets of their addresses."""
        source, found = random.Random(5), set()
        for _ in range(5000):
            spans, addresses = [], []
            for _ in range(2):
                period = source.choice((0, 4, 6, 12))
                begin, width = source.randrange(40), source.randrange(1, 6)
                count = source.randrange(1, 5)
                if period == 0:
                    spans.append(Span(begin, begin + width, True))
                    addresses.append(set(range(begin, begin + width)))
                    continue
                width = min(width, period)
                begins = range(begin, begin + count * period, period)
                spans.append(Span(begin, begins[-1] + width, True, period, width))
                addresses.append({each + i for each in begins for i in range(width)})
            found.add(shares := spans[0].shares_memory_with(spans[1]))
            self.assertEqual(shares, spans[1].shares_memory_with(spans[0]), spans)
            if addresses[0] & addresses[1]:
                self.assertTrue(shares, spans)
            elif spans[0].period == spans[1].period != 0:
                overlap = spans[0].begin < spans[1].end and spans[1].begin < spans[0].end
                places = [{each % spans[0].period for each in one} for one in addresses]
                self.assertEqual(shares, overlap and bool(places[0] & places[1]), spans)
        self.assertEqual(found, {False, True})

    def test_ended_operations_do_not_pile_up(self):
        record = InFlight()
        for i in range(1000):
            operation, spans = Operation(), [Span(i, i + 1, True)]
            record.wait_for_users_of(spans)
            record.add(operation, spans)
            operation.has_ended = True
        self.assertLess(len(record.operations()), 10)

    def test_conflicts_within_a_group(self):
        source = random.Random(3)
        for _ in range(2000):
            members = [[random_span(source)] for _ in range(source.randrange(1, 5))]
            expected = any(
                conflict(*mine, *theirs) for i, mine in enumerate(members) for theirs in members[:i]
            )
            self.assertEqual(first_conflict(members) is not None, expected, members)
