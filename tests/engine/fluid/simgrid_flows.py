"""Flows over shared links in SimGrid (run by the system's Python, which has Debian's python3-simgrid).

Reads a list of ``{"capacities": [bytes/s], "flows": [[bytes, [link, ...]], ...]}`` and prints when each flow ends,
seconds. Every case runs in a process of its own, since SimGrid has one engine a process.
"""

import json
import subprocess
import sys
from typing import Any

OPTIONS = (
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/bandwidth-factor:1",
    "--cfg=network/latency-factor:1",
    "--cfg=network/weight-S:0",
    "--cfg=network/crosstraffic:0",
    "--cfg=maxmin/precision:1e-9",
    "--log=root.thres:critical",
)


def simulate(case: dict[str, Any]) -> list[float]:
    """End of each flow of one case."""
    from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone  # type: ignore[import-not-found,unused-ignore]

    engine = Engine([sys.argv[0], *OPTIONS])
    zone = NetZone.create_full_zone("zone")
    links = [zone.create_link(f"l{r}", capacity).set_latency(0).seal() for r, capacity in enumerate(case["capacities"])]
    pairs = []
    for k, (_, used) in enumerate(case["flows"]):
        ends = [zone.create_host(f"{side}{k}", 1e9).seal() for side in "ab"]
        route = [LinkInRoute(links[r]) for r in used]
        zone.add_route(ends[0].netpoint, ends[1].netpoint, None, None, route, False)
        pairs.append(ends)
    zone.seal()
    finished = [0.0] * len(pairs)

    def send(k: int, size: float) -> None:
        Mailbox.by_name(str(k)).put("x", int(size))

    def receive(k: int) -> None:
        Mailbox.by_name(str(k)).get()
        finished[k] = Engine.clock

    for k, (size, _) in enumerate(case["flows"]):
        Actor.create(f"s{k}", pairs[k][0], send, k, size)
        Actor.create(f"r{k}", pairs[k][1], receive, k)
    engine.run()
    return finished


def main() -> None:
    """All cases of the input, or the one on the command line."""
    if len(sys.argv) > 1:
        print(json.dumps(simulate(json.loads(sys.argv[1]))))
        return
    ends = []
    for case in json.load(sys.stdin):
        done = subprocess.run(
            [sys.executable, __file__, json.dumps(case)], capture_output=True, text=True, check=True, timeout=60
        )
        ends.append(json.loads(done.stdout.splitlines()[-1]))
    print(json.dumps(ends))


if __name__ == "__main__":
    main()
