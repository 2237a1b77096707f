"""What a plan carries for the engine of findings: the operator's rules, and the options of the build."""

from __future__ import annotations

import json

from ddtree_console.domain.build import Build, BuildFlag
from ddtree_console.domain.plan import plan_from_json
from ddtree_console.domain.spec import Profile
from ddtree_console.services import preflight
from ddtree_console.services.plans import Choice, Operator, Planner
from tests.services.doubles import fleet

PROFILE = Profile("p1", engine="generic", command=("/bin/server",))
ROW = {"id": "ours", "slug": "unknown", "any": ["ticket 12"], "cases": []}


def test_rules_and_flags_travel_as_json() -> None:
    made = fleet({"p1": PROFILE})
    planner = Planner(made, Operator("ana@desk"), [ROW])
    plan = planner.deploy(made.service("h1/s1"), PROFILE, made.profiles, Choice(), ("tp-size", "tp"))
    back = plan_from_json(json.loads(json.dumps(plan.to_json())))
    assert (back.rules, back.build_flags) == ((ROW,), ("tp-size", "tp"))
    assert planner.rollback(made.service("h1/s1"), "way-back", made.profiles, False).rules == (ROW,)
    old = {k: v for k, v in plan.to_json().items() if k not in ("rules", "build_flags")}
    assert plan_from_json(old).build_flags == (), "an older console knows nothing of them"


def test_flags_are_those_of_the_build_that_was_looked_at() -> None:
    known = preflight.Preflights(lambda: 0.0)
    assert known.flags("h1/s1", PROFILE) == ()
    build = Build(flags=(BuildFlag("tp-size", ("tp",)), BuildFlag("gone", refused=True)))
    known._known["h1/s1"] = preflight._Known(build, preflight._interpreter(PROFILE))
    assert known.flags("h1/s1", PROFILE) == ("tp-size", "tp")
    assert known.flags("h1/s1", Profile("p2", engine="generic", command=("/bin/other",))) == ()
