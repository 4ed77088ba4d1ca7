"""The table of the remote rows: what ckptfs takes, as a multiple of what the link allows and of the best
peer of the same run. Rows that miss a goal, or in which a peer is better, are marked."""

import statistics

from report import quantity


def counterpart(values, row, figure, contender):
    """The median of the figure of another contender that `figure` of ckptfs is compared with; None if there
    is none. Readings of a whole file have the figures "read" and, for all orders, the same units."""
    unit = figure.rpartition(": ")[2]
    for name in (figure, unit, *(["read"] if unit == figure else [])):
        if numbers := values.get((row, name, contender)):
            return statistics.median(numbers)
    return None


def compare(rows, values):
    """One dictionary per figure of ckptfs."""
    compared = []
    for (row, figure, contender), numbers in values.items():
        if contender != "ckptfs" or row not in rows:
            continue
        goal = rows[row].goal(figure)
        is_rate = figure.endswith("reads/s")  # More of it is better.
        ours = statistics.median(numbers)
        ratio = lambda other: None if other is None else other / ours if is_rate else ours / other
        link = ratio(counterpart(values, row, figure, "link"))
        peers = {name: counterpart(values, row, figure, name) for name in rows[row].contenders
                 if name not in ("ckptfs", "link")}
        peers = {name: value for name, value in peers.items() if value is not None}
        best = min(peers, key=peers.get, default=None)
        peer = ratio(peers[best]) if best else None
        is_beyond = goal.value is not None and (ours < goal.value if is_rate else ours > goal.value)
        compared.append({
            "row": row, "figure": figure, "ckptfs": ours, "over_link": link, "over_best_peer": peer,
            "best_peer": best, "of_best_peer": peers.get(best), "goals": goal._asdict(),
            "is_met": not (is_beyond or exceeds(link, goal.link) or exceeds(peer, goal.peer))})
    return compared


def exceeds(ratio, limit):
    return ratio is not None and limit is not None and ratio > limit


def ratio_text(ratio, limit):
    if ratio is None:
        return ""
    return f"{ratio:.2f}" + (f" (≤ {limit:.3g})" if limit is not None else "")


def verdict(result):
    if not result["is_met"]:
        return "**missed**"
    return "**behind**" if (result["over_best_peer"] or 0) > 1 else ""


def table(compared):
    lines = ["| ckptfs / link | ckptfs / best peer | | row | figure | ckptfs | best peer |",
             "|--:|--:|---|---|---|--:|--:|"]
    for result in compared:
        goals, figure = result["goals"], result["figure"]
        best, limit = result["best_peer"], goals["value"]
        beside = f"{best}: {quantity(result['of_best_peer'], figure)}" if best else ""
        if limit is not None:
            beside = f"goal: {quantity(limit, figure)}"
        lines.append(f"| {ratio_text(result['over_link'], goals['link'])} "
                     f"| {ratio_text(result['over_best_peer'], goals['peer'])} | {verdict(result)} "
                     f"| {result['row']} | {figure} | {quantity(result['ckptfs'], figure)} | {beside} |")
    return "\n".join(lines) + "\n"
