"""From measured values to what people read: a table in Markdown and a plot in SVG."""

import statistics
from html import escape

PLOT_WIDTH, LABELS, BAR, STEP = 760, 330, 14, 22  # In pixels.
FULL_SCALE = 1.5  # A longer bar is cut off; its number tells the truth.


def judge(rows, values):
    """One dictionary per goal whose figures were measured, in the order of the rows."""
    judged = []
    for name, row in rows.items():
        for goal in row.goals:
            mine = values.get((name, goal.figure, "ckptfs"))
            other = values.get((name, goal.base or goal.figure, goal.against))
            if not mine or (goal.against and not other):
                continue
            ours = statistics.median(mine)
            theirs = statistics.median(other) if goal.against else None
            ratio = ours / theirs if goal.against else ours
            judged.append({"row": name, "figure": goal.figure, "ckptfs": ours, "other": theirs,
                           "against": goal.against, "base": goal.base, "ratio": ratio,
                           "goal": goal.limit, "is_met": ratio <= goal.limit})
    return judged


def quantity(value, figure):
    """A value with its unit, which the figure names after the last colon."""
    figure = figure.rpartition(": ")[2]
    if figure.endswith("MiB"):
        return f"{value:.1f} MiB"
    if figure.endswith("KiB"):
        return f"{value:.1f} KiB"
    if figure.startswith(("bytes", "round trips", "requests")):
        return f"{value:.3g}"
    if figure.endswith("reads/s"):
        return f"{value:.0f} /s"
    if figure.endswith("s/GiB"):
        return f"{value:.2f} s/GiB"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def beside(result):
    if not result["against"]:
        return ""
    what = f"{result['against']}, {result['base']}" if result["base"] else result["against"]
    return f"{what}: {quantity(result['other'], result['figure'])}"


def table(judged):
    lines = ["| row | figure | ckptfs | beside it | ratio | goal | |",
             "|---|---|--:|--:|--:|--:|---|"]
    for result in judged:
        has_ratio = result["against"] is not None
        ratio = f"{result['ratio']:.3g}" if has_ratio else ""
        limit = result["goal"]
        goal = f"≤ {limit:g}" if has_ratio else f"≤ {quantity(limit, result['figure'])}"
        lines.append(f"| {result['row']} | {result['figure']} "
                     f"| {quantity(result['ckptfs'], result['figure'])} | {beside(result)} "
                     f"| {ratio} | {goal} | {'pass' if result['is_met'] else 'miss'} |")
    return "\n".join(lines) + "\n"


def all_figures(values):
    """What was measured and is in no goal too: the median, the least and the most."""
    lines = ["| row | figure | of | median | least | most | rounds |",
             "|---|---|---|--:|--:|--:|--:|"]
    for (row, figure, contender), numbers in values.items():
        median, least, most = (quantity(f(numbers), figure)
                               for f in (statistics.median, min, max))
        lines.append(f"| {row} | {figure} | {contender} | {median} | {least} | {most} "
                     f"| {len(numbers)} |")
    return "\n".join(lines) + "\n"


def plot(judged, title):
    """Bars of how much of each goal is used up: up to the line is good."""
    height = 60 + STEP * len(judged)
    unit = (PLOT_WIDTH - LABELS - 60) / FULL_SCALE
    goal = LABELS + unit
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{PLOT_WIDTH}" height="{height}" '
             f'font-family="sans-serif" font-size="12">',
             f'<rect width="{PLOT_WIDTH}" height="{height}" fill="#ffffff"/>',
             f'<text x="10" y="20" font-size="14">{escape(title)}</text>']
    for i, result in enumerate(judged):
        used = result["ratio"] / result["goal"]
        y = 40 + STEP * i
        color = "#2a7f62" if result["is_met"] else "#c0392b"
        against = f" / {result['against']}" if result["against"] else ""
        label = escape(f"{result['row']}: {result['figure']}{against}")
        width = unit * min(used, FULL_SCALE)
        parts += [f'<text x="{LABELS - 8}" y="{y + 11}" text-anchor="end">{label}</text>',
                  f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{color}"/>',
                  f'<text x="{PLOT_WIDTH - 10}" y="{y + 11}" text-anchor="end">{used:.2f}</text>']
    parts += [f'<line x1="{goal:.1f}" x2="{goal:.1f}" y1="30" y2="{height - 15}" '
              'stroke="#333333"/>',
              f'<text x="{goal:.1f}" y="{height - 3}" text-anchor="middle">goal</text>', "</svg>"]
    return "\n".join(parts) + "\n"
