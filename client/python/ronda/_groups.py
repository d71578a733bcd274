# SPDX-License-Identifier: Apache-2.0

"""Groups of gradients that are reduced together, for Horovod's arguments `groups` and
`num_groups`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

Groups = int | Sequence[Sequence[Any]] | None


def chosen(groups: Groups, num_groups: int) -> Groups:
    """Returns the groups that the program has asked for. Warns if the program has used
    `num_groups`.
    """
    if num_groups == 0:
        return groups
    warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=3)
    return num_groups if groups is None else groups


def check(groups: Groups, noun: str, is_member: Callable[[Any], bool]) -> None:
    """
    Args:
        groups: as for DistributedOptimizer.
        noun: what error texts call a member of a group.
        is_member: whether an object may be a member.

    Raises:
        ValueError: DistributedOptimizer does not accept this kind of `groups`.
    """
    if groups is None:
        return
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups should be a non-negative integer, or lists of {noun}")
        return
    seen: set[int] = set()
    for member in (each for group in groups for each in group):
        if not is_member(member):
            raise ValueError(f"groups must consist of {noun}, not {type(member).__name__}")
        if id(member) in seen:
            raise ValueError("a parameter can only appear once in groups")
        seen.add(id(member))


def divide(total: int, count: int) -> list[range]:
    """Divides `total` indices into `count` ranges of about equal length. Leaves out empty
    ranges.
    """
    count = min(count, total)
    cuts = [i * total // count for i in range(count + 1)] if count else []
    return [range(a, b) for a, b in zip(cuts, cuts[1:])]


def reduce_in_groups(
    groups: Groups,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    reduce: Callable[[str, list[Any]], list[Any]],
) -> list[Any]:
    """Returns the reduced gradients; None stays None.

    Args:
        groups: as for DistributedOptimizer.
        variables: one for each gradient; only used if `groups` are lists.
        reduce: called with the suffix of the group's name, and the group's gradients.

    Raises:
        ValueError: none of the variables in the lists is in `variables`.
    """
    reduced = list(gradients)
    present = [i for i, each in enumerate(gradients) if each is not None]
    for number, group in enumerate(_partition(groups, variables, present)):
        ending = f".{number}" if groups else ""
        for i, each in zip(group, reduce(ending, [gradients[i] for i in group])):
            reduced[i] = each
    return reduced


def _partition(groups: Groups, variables: Sequence[Any], present: list[int]) -> list[list[int]]:
    """Returns each group's gradient indices, in the order in which the groups are reduced."""
    if not groups:
        return [present] if present else []
    if isinstance(groups, int):
        return [[present[i] for i in part] for part in divide(len(present), groups)]
    by_id = {id(each): i for i, each in enumerate(variables)}
    listed = [[by_id[id(each)] for each in group if id(each) in by_id] for group in groups]
    known = {i for group in listed for i in group}
    if not known:
        raise ValueError(
            f"groups has no variable of the {len(variables)} whose gradients are reduced: pass the"
            " same objects, as model.trainable_variables has them"
        )
    kept = [[i for i in group if i in present] for group in listed]
    return [group for group in kept if group] + [[i] for i in present if i not in known]
