"""Check of the arms that a claim names against the arms of its experiments.

A file of claims may be shared: `sight.yaml` is named by specs that have all its arms and by one that has few of
them, where some of its claims are not run. So an arm that a spec lacks may be meant for another experiment, or be
misspelt, and how alike two names are does not tell which: `clm-450` is near to `clm` and right, `word2vecs` may be
near to nothing and wrong. The claim itself tells: `needs.spec` is the experiment that has everything it names.

- A claim with `needs.spec` may name the arms of that experiment and no others. Where the spec at hand lacks some
  of them, the claim is not run there.
- A claim without it may name the arms that every spec has which names its file, and no others, also where all its
  other arms are there: that a claim can never be judged is noticed before days of training, not after.

An arm that is beside a claim follows the same rule: nobody would notice that it never shows.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ablations.spec.claim_checks import written_effects
from ablations.spec.problems import Fault, KeyPath
from ablations.wording import FEW, guess, listed, shown

ArmsOf = Callable[[str], Collection[str] | None]


class Mention(NamedTuple):
    """A place where a claim names an arm."""

    at: KeyPath
    subject: str
    """Subject of the sentence: what names the arm."""
    arm: str
    about: Literal["key", "value"] = "value"


def faults(claims: Any, *, arms: Collection[str] | None, spec: str, arms_of: ArmsOf) -> Iterator[Fault]:
    """Yield every arm that no experiment of its claim has, at each place that names it.

    Args:
        claims: as they are written.
        arms: of the spec that names the file; None where there is no such spec, or its arms cannot be read.
        spec: the file name of that spec.
        arms_of: the arms of another spec by its file name; None where these cannot be read, which others say.
    """
    for index, claim in enumerate(claims if isinstance(claims, list) else ()):
        if not isinstance(claim, dict):
            continue
        needs = claim["needs"] if isinstance(claim.get("needs"), dict) else {}
        elsewhere = needs.get("spec") or None
        if elsewhere is not None and not isinstance(elsewhere, str):
            continue
        allowed = arms if elsewhere is None else arms_of(elsewhere)
        if allowed is None:
            continue
        for mention in _mentions(claim, needs, ("claims", index)):
            if mention.arm not in allowed:
                sentence = _sentence(mention, allowed, spec=spec, elsewhere=elsewhere)
                yield Fault(mention.at, sentence, mention.about)


def _mentions(claim: Mapping[str, Any], needs: Mapping[str, Any], at: KeyPath) -> Iterator[Mention]:
    names = needs.get("arms")
    for place, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str):
            yield Mention((*at, "needs", "arms", place), "claims.needs.arms", name)
    for written in written_effects(claim, at):
        if written.effect is None:
            continue
        for keys, arm in written.effect.arms_at():
            is_key = len(keys) > 1 and keys[-1] == arm
            yield Mention((*written.at, *keys), written.name, arm, "key" if is_key else "value")
        for keys, of in written.effect.quantities_at():
            if of.measure == "run_distance":  # its groups are the arms of the other runs
                for place, group in enumerate(of.groups):
                    if "*" not in group:
                        yield Mention((*written.at, *keys, "groups", place), written.name, group)


def _sentence(mention: Mention, allowed: Collection[str], *, spec: str, elsewhere: str | None) -> str:
    named = f"{mention.subject} names the arm {shown(mention.arm)}"
    few = f"; its arms are {listed(list(allowed), 'and')}" if len(allowed) <= FEW else ""
    hint = guess(mention.arm, allowed) or few
    if elsewhere is not None:
        return f"{named}, but claims.needs.spec is {elsewhere}, which does not have it{hint}"
    other = "if another experiment has it, name that in claims.needs.spec"
    return f"{named}, but {spec} does not have it{hint} ({other})"
