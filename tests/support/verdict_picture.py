"""Picture of docs/claims.md: intervals of made effects, and the verdicts that the rule gives them."""

import numpy as np

from reports.claims.verdicts import ALPHA, judge
from reports.statistics.seed_tests import SeedEffects

SMALLEST = 0.1
SPREAD = np.array([-1.0, -0.6, 0.1, 0.5, 1.0])
EXAMPLES = {  # mean, and how far the seeds lie around it
    "supported": (0.3, 0.1, "all of the interval lies above 0"),
    "supported ": (0.17, 0.12, "above 0, though perhaps too small to matter"),
    "contradicted": (-0.3, 0.1, "all of it lies below 0"),
    "equivalent": (0.0, 0.06, "the mean is surely in the band"),
    "equivalent ": (0.04, 0.025, "above 0, and surely too small to matter"),
    "undecided": (0.1, 0.2, "it may lie on either side; more seeds may decide"),
}
WIDTH, ROW, LEFT, SCALE = 780, 34, 130, 340
INK = 'stroke="#0072b2"'
CENTRE = LEFT + 0.5 * SCALE


def picture():
    """The picture as SVG."""
    bottom = 30 + ROW * len(EXAMPLES)
    low, high = (CENTRE + side * SMALLEST * SCALE for side in (-1, 1))
    marks = [
        f'<rect x="{low:.0f}" y="20" width="{high - low:.0f}" height="{bottom - 20}" fill="#ddd"/>',
        f'<line x1="{CENTRE:.0f}" y1="20" x2="{CENTRE:.0f}" y2="{bottom}" stroke="#000"/>',
        f'<text x="{CENTRE:.0f}" y="14" text-anchor="middle">0 and effects that are too small to matter</text>',
    ]
    for number, (expected, (mean, spread, why)) in enumerate(EXAMPLES.items()):
        values = mean + spread * (SPREAD - SPREAD.mean())
        effects = SeedEffects(seeds=tuple(range(len(values))), values=values)
        judged = judge({"effect": effects}, {"effect": SMALLEST}, level=ALPHA)
        assert judged.verdict == expected.strip(), (expected, judged)
        part = judged.parts["effect"]
        y = 30 + ROW * number + ROW / 2
        x_low, x_high, x_mean = (CENTRE + value * SCALE for value in (part.low, part.high, part.effect))
        marks += [
            f'<text x="10" y="{y + 5:.0f}" font-weight="bold">{judged.verdict}</text>',
            f'<line x1="{x_low:.1f}" y1="{y:.0f}" x2="{x_high:.1f}" y2="{y:.0f}" {INK} stroke-width="3"/>',
            *(
                f'<circle cx="{CENTRE + value * SCALE:.1f}" cy="{y:.0f}" r="3" fill="#fff" {INK}/>'
                for value in values
            ),
            f'<rect x="{x_mean - 1.5:.1f}" y="{y - 8:.0f}" width="3" height="16" fill="#0072b2"/>',
            f'<text x="{LEFT + SCALE + 20}" y="{y + 5:.0f}" font-size="12">{why}</text>',
        ]
    inner = "\n".join(marks)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 10}" font-family="sans-serif" '
        f'font-size="14">\n<rect width="{WIDTH}" height="{bottom + 10}" fill="#fff"/>\n{inner}\n</svg>\n'
    )
