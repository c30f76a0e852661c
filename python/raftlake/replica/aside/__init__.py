"""Work for clients that one turn may not do at once: it is bounded, done beside the turns, or left for later ones.

Reading order:

- `allowance`: `Allowance` is what the requests of one turn may cost together.
- `record_checks`: `RecordChecks` looks at the records of Produce requests, at once or aside.
- `check_line`: `CheckLine` lets connections take turns with the checks that wait.
- `time_searches`: `TimeSearches` answers where in a partition a time begins.
- `later_turns`: `LaterTurns` is an `Aside` without a thread.

Callers: `apis.produce` and `apis.offsets`. `turn` renews the allowance.

Invariants:

- Jobs that run on another thread touch only their arguments. Their results come back in an input of their own.
- What waits has a bound in number or in bytes, and an end in time.
- Appends of one connection to one group keep their order.
"""
