"""Topic configs: what a topic says over the settings of its node. Pure: values in, values out.

Reading order:

- `definitions`: the names, with types, accepted values, defaults and documentation. The one place that knows them.
- `changes`: SET, DELETE, APPEND and SUBTRACT, and what all configs of a topic have to keep together.
- `in_force`: what a node does for the partitions of a topic, out of the configs and the node's settings.
- `described`: what clients are told: values, where each comes from, and what it overrides.

Callers: `partition` and `hosting` take `InForce`; `apis` checks, changes and describes.

Invariants:

- No stored config makes any of these raise. A key may hold what another release wrote: a name that is not known has no effect,
  and a value that is not accepted here counts as not set.
- What is in force depends on the configs and the node's settings alone, so all nodes with the same settings obey alike.
"""
