"""The package as machine code, by mypyc: for wheels, for `make bench`, for long sweeps of the simulator.

- `plain`: source as mypyc can compile it: dataclasses written out as plain classes, names that C does not take renamed.
- `translate`: the process that compiles a copy of the package where it lies.
- `package`: a compiled copy in the cache, one for each state of the source.
- `wheel_hook`: what hatchling calls for `make wheel`; it puts the machine code into the wheel.

The source stays what people read and change, and what runs from a checkout. Nothing of the product imports this.
"""
