"""Draw ``docs/results/people.svg``: words of names that stay, from ``people.csv``.

Run it with ``python docs/people_chart.py``.
"""

from __future__ import annotations

import csv
from pathlib import Path

FOLDER = Path(__file__).with_name("results")
KINDS = (
    ("biographies", "name word"),
    ("prompts", "capitalised word"),
    ("court cases", "name word"),
)
SETTINGS = {"none": ("-", "no detector", "#cf222e"), "auto": ("chat", "--detect auto", "#0969da")}
WIDTH, LEFT, BAR, STEP, SCALE = 560, 150, 16, 20, 1_350  # the last: units for a share of 1


def main() -> None:
    """Draw and write the picture."""
    with (FOLDER / "people.csv").open(encoding="utf-8") as file:
        keys = ("question", "set", "kind", "detector", "policy", "setting")
        share = {
            tuple(row[key] for key in keys): float(row["share"]) for row in csv.DictReader(file)
        }
    rows, y = [], 30
    for name, kind in KINDS:
        rows.append(f'<text class="title" x="16" y="{y}">{name}: {kind}</text>')
        for detector, (policy, shown, colour) in SETTINGS.items():
            for recovery in ("0.05", "0.1", "0.2"):
                y += STEP
                found = share["stays", name, kind, detector, policy, f"recovery {recovery}"]
                long = max(2, round(found * SCALE))
                said = f"{shown if recovery == '0.05' else ''} {recovery}"
                rows.append(f'<text class="end" x="{LEFT - 8}" y="{y}">{said}</text>')
                rows.append(
                    f'<rect x="{LEFT}" y="{y - 12}" width="{long}" height="{BAR}" fill="{colour}"/>'
                )
                figure = f"{found:.1%}".replace("%", " %")
                rows.append(f'<text x="{LEFT + long + 6}" y="{y}">{figure}</text>')
        y += 2 * STEP
    svg = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 14}" width="{WIDTH}" height="{y - 14}"
 role="img" aria-label="Share of words of names that stay, by set, detector and recovery rate">
<style>
text {{ font: 14px system-ui, sans-serif; fill: #1f2328 }}
.title {{ font-weight: 700 }}
.end {{ text-anchor: end }}
.page {{ fill: #ffffff; stroke: #d1d9e0 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #f0f6fc }} .page {{ fill: #0d1117; stroke: #3d444d }} }}
</style>
<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{y - 15}" rx="8"/>
{chr(10).join(rows)}
</svg>
"""
    (FOLDER / "people.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
